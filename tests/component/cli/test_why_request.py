"""`tpumon why --request`: what is printed, and what is said where no answer is possible."""

from __future__ import annotations

import json

import pytest

from support.captures import saved
from support.traces import LOOP, Named, Traced
from tpumon.cli.commands.why import run_request
from tpumon.errors import UsageError

MS = 1000.0  # microseconds


def trace(*ids, programs=True):
    """One batch of 15 ms for each request, one every 20 ms, with a program of 10 ms."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    for number, request in enumerate(ids):
        stats = {"request_id1": Named(request)} if request else {}
        host.event("python", "execute_model: 1 reqs, 4 toks", 20 * number * MS, 15 * MS, **stats)
        for line, what in (("XLA Modules", "jit_run_model_impl(7)"), ("XLA Ops", LOOP)) if programs else ():
            core.event(line, what, (20 * number + 2) * MS, 10 * MS)
    return traced


def test_text(tmp_path, capsys):
    assert run_request("b", [str(path) for path in saved(tmp_path, trace("a", "b", "c", "b", "a"))], "text") == 0
    assert capsys.readouterr().out.splitlines() == [
        'request "b" on "host-0": 55.0 ms, batches with it: 2',
        "  device    20.0 ms   36.4%  programs ran on a device",
        "  compile       0 s    0.0%  the host traced or compiled functions",
        "  host gap  15.0 ms   27.3%  neither",
        "  queue     20.0 ms   36.4%  turns of batches without it: 1",
    ]


def test_a_request_at_the_end_may_go_on(tmp_path, capsys):
    run_request("a", [str(path) for path in saved(tmp_path, trace("b", "a"))], "text")
    assert capsys.readouterr().out.endswith("it may have begun before, or gone on after.\n")


def test_a_trace_that_is_truncated_says_so(tmp_path, capsys):
    lossy = trace("a", "b", "a", "b")
    lossy.space.warnings.append("TPU:0 dropped 48211 events")
    run_request("a", [str(path) for path in saved(tmp_path, lossy)], "text")
    assert "  The trace is truncated: " in capsys.readouterr().out


def test_each_host_that_has_it(tmp_path, capsys):
    """A directory of three hosts; the third serves others."""
    saved(tmp_path, trace("a", "b"), trace("b", "a"), trace("c"))
    assert run_request("a", [str(tmp_path)], "json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["request"]) == (1, "a")
    assert [(each["host"], each["batches"]) for each in answer["hosts"]] == [("host-0", 1), ("host-1", 1)]


def test_no_annotation_has_ids(tmp_path):
    saved(tmp_path, trace("", ""))
    with pytest.raises(UsageError, match=r"tpu-inference writes .* --level 0 --host-tracer-level 1 --logdir DIR$"):
        run_request("a", [str(tmp_path)], "text")


def test_no_such_request_names_five_that_are_similar(tmp_path):
    saved(tmp_path, trace("x", *(f"r-7{i}" for i in range(5)), "r-1", "evil\nwords"))
    with pytest.raises(UsageError) as error:
        run_request("r-7", [str(tmp_path)], "text")
    there = ", ".join(f'"r-7{i}"' for i in range(5))
    assert str(error.value) == f'no batch in the trace has request "r-7"; there are {there} and 3 more'
    with pytest.raises(UsageError, match='"evil_words"'):
        run_request("evil", [str(tmp_path)], "text")


def test_long_ids_are_named_whole(tmp_path):
    name = "chatcmpl-0b1e7a52-6ad0-4a0c-9d6c-1c7d53f6f4be-8c21"
    saved(tmp_path, trace(name))
    with pytest.raises(UsageError, match=name):
        run_request("x", [str(tmp_path)], "text")


def test_files_that_cannot_be_read(tmp_path, capsys):
    """One beside others fails the command, which answers still; one alone is not taken for one without the request."""
    saved(tmp_path, trace("a"))
    (tmp_path / "broken.xplane.pb").write_bytes(b"\xff" * 20)
    assert run_request("a", [str(tmp_path)], "text") == 1
    assert 'request "a"' in capsys.readouterr().out
    assert run_request("a", [str(tmp_path / "broken.xplane.pb")], "text") == 1
    assert "broken.xplane.pb: not a trace" in capsys.readouterr().err


def test_a_trace_without_programs(tmp_path, capsys):
    saved(tmp_path, trace("a", programs=False))
    assert run_request("a", [str(tmp_path)], "text") == 1
    assert "shows no program" in capsys.readouterr().err

"""`tpumon analyze`: which files, what is printed, what becomes of those that cannot be read."""

from __future__ import annotations

import gzip
import json
import os
import subprocess

import pytest

from support.samples import sample
from support.traces import CONV, INFEED, LOOP, Traced, run_step
from tpumon.cli.commands.analyze import run
from tpumon.errors import UsageError
from tpumon.model import SIMULATED_MARK


def trace(name="", *, longer_us=0, start_ns=0, mxu=40.0):
    traced = Traced()
    for number in range(2):
        plane, at_us = traced.core(number), 100.0
        for _ in range(4):
            at_us = run_step(plane, at_us, [(INFEED, 100), (CONV, 700 + longer_us), (LOOP, 150)]) + 50
    traced.host(mxu)
    if name:
        traced.space.hostnames.append(name)
    if start_ns:
        environment = traced.named("Task Environment")
        environment.put(environment.plane.stats, {"profile_start_time": start_ns})
    return traced


def put(directory, name, traced):
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{name}.xplane.pb"
    file.write_bytes(traced.bytes() if isinstance(traced, Traced) else traced)
    return file


def analyzed(capsys, *paths, output="json"):
    status = run(paths=[str(path) for path in paths], output=output)
    printed = capsys.readouterr()
    return status, json.loads(printed.out) if output == "json" else printed.out, printed.err


def test_a_file_as_text(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    file = put(tmp_path, "10.0.0.1_9999", trace(start_ns=1_700_000_000 * 10**9))
    status, text, errors = analyzed(capsys, file, output="text")
    lines = text.split("\n")
    assert lines[0].startswith("Timestamp: ")
    assert lines[1:] == [
        "TPU type: TPU v5",
        "Number of TPU cores: 2",
        "TPU idle time (lower is better): 3.80%",
        "Utilization of TPU Matrix Units (higher is better): 40.0%",
        "Step time: 0.950ms (avg), 0.950ms (min), 0.950ms (max)",
        "Infeed percentage: 10.5% (avg), 10.5% (min), 10.5% (max)",
        "",
        "",
    ]
    assert (status, errors) == (0, "")


def test_a_file_as_json_is_a_sample(tmp_path, capsys):
    file = put(tmp_path, "10.0.0.1_9999", trace(start_ns=1_700_000_000 * 10**9))
    status, found, _ = analyzed(capsys, file)
    (host,) = found["hosts"]
    empty = sample().to_json()
    assert host.keys() == empty.keys()
    assert (host["worker"], host["address"], host["source"]) == ("10.0.0.1_9999", str(file), "file")
    assert host["time_unix_s"] == 1_700_000_000
    assert host["step_time_s"]["avg"] == pytest.approx(950e-6)
    assert len(host["per_core"]) == 2
    assert found["combined"] == host
    assert status == 0


def test_hosts_of_a_session_are_shown_and_combined(tmp_path, capsys):
    put(tmp_path, "a", trace("worker-a"))
    put(tmp_path, "b", trace("worker-b", longer_us=300, mxu=20.0))
    _, found, _ = analyzed(capsys, tmp_path)
    assert [host["worker"] for host in found["hosts"]] == ["worker-a", "worker-b"]
    combined = found["combined"]
    assert combined["cores"] == 4
    assert combined["mxu_utilization_ratio"] == pytest.approx(0.3)
    assert combined["step_time_s"]["avg"] == pytest.approx(1250e-6)
    _, text, _ = analyzed(capsys, tmp_path, output="text")
    assert [line for line in text.split("\n") if line.startswith("Worker: ")] == [
        "Worker: worker-a",
        "Worker: worker-b",
        "Worker: all 2 hosts",
    ]


def test_the_newest_session_of_a_log_directory_is_taken_unless_one_is_named(tmp_path, capsys):
    sessions = tmp_path / "plugins" / "profile"
    for i, name in enumerate(("2026_01_02_10_00_00", "2026_01_01_10_00_00", "empty")):
        put(sessions / name, name, trace(name))
        os.utime(sessions / name, (1000 + i, 1000 + i))
    (sessions / "empty" / "empty.xplane.pb").unlink()
    os.utime(sessions / "empty", (2000, 2000))
    for path, expected in (
        (tmp_path, "2026_01_01_10_00_00"),
        (sessions, "2026_01_01_10_00_00"),
        (sessions / "2026_01_02_10_00_00", "2026_01_02_10_00_00"),
    ):
        _, found, _ = analyzed(capsys, path)
        assert [host["worker"] for host in found["hosts"]] == [expected]


def test_a_file_given_twice_is_read_once(tmp_path, capsys):
    file = put(tmp_path, "a", trace())
    _, found, _ = analyzed(capsys, file, tmp_path)
    assert len(found["hosts"]) == 1


def test_what_cannot_be_read_is_said_and_the_others_are_shown(tmp_path, capsys):
    put(tmp_path, "a", trace("worker-a"))
    put(tmp_path, "b", b"no trace")
    put(tmp_path, "c", b"")
    status, found, errors = analyzed(capsys, tmp_path)
    assert status == 1
    assert [host["source"] for host in found["hosts"]] == ["file", None, None]
    assert [host["errors"][0]["reason"] for host in found["hosts"][1:]] == ["malformed", "empty-trace"]
    assert found["combined"] == found["hosts"][0]
    lines = errors.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"tpumon: {tmp_path}") for line in lines)
    status, text, _ = analyzed(capsys, tmp_path, output="text")
    assert status == 1
    assert text.count("Worker: ") == 1


def test_a_file_that_may_not_be_opened_is_unreadable(tmp_path, capsys, monkeypatch):
    file = put(tmp_path, "a", trace())

    def refuse(_path, _flags):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tpumon.xspace.files.os.open", refuse)
    status, found, errors = analyzed(capsys, file)
    assert status == 1
    assert found["hosts"][0]["errors"] == [
        {"source": "file", "reason": "unavailable", "message": "Permission denied", "address": None, "detail": None}
    ]
    assert errors == f"tpumon: {file}: Permission denied\n"


def test_a_packed_file_is_to_be_unpacked_first(tmp_path, capsys):
    """By the command that is advised, whatever the file's name is."""
    file = put(tmp_path, "its name", gzip.compress(trace().bytes()))
    status, found, errors = analyzed(capsys, file)
    assert status == 1
    assert found["hosts"][0]["errors"][0]["reason"] == "refused"
    said, _, command = errors.partition(" first: ")
    assert said == f"tpumon: {file}: it is packed; unpack it"
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert analyzed(capsys, tmp_path / "unpacked.xplane.pb")[0] == 0
    file.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    assert f"unpack it first: zstd -dc < '{file}' > unpacked.xplane.pb" in analyzed(capsys, file)[2]


@pytest.mark.parametrize("what", ["nothing there", "no trace in it"])
def test_a_path_without_a_trace_is_a_usage_error(what, tmp_path):
    path = tmp_path / "gone" if what == "nothing there" else tmp_path
    with pytest.raises(UsageError, match=str(path)):
        run(paths=[str(path)])


def test_warnings_are_said_once_and_simulated_data_says_so(tmp_path, capsys):
    traced = trace("worker-a")
    traced.space.warnings.extend([f"{SIMULATED_MARK}: scenario steady", "the buffer was full"])
    put(tmp_path, "a", traced)
    put(tmp_path, "b", trace("worker-b"))
    _, text, errors = analyzed(capsys, tmp_path, output="text")
    assert text.count(SIMULATED_MARK) == 2  # worker-a, and all of them
    assert [line for line in errors.splitlines() if "buffer" in line] == [
        "tpumon: worker-a: the buffer was full",
        (
            "tpumon: worker-a: the trace is truncated: the profiler says: the buffer was full; "
            "the figures cover 0.00395 s of 0.00395 s"
        ),
    ]

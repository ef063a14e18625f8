"""`analyze` and level 0: what is wrong with one file or worker concerns that one alone."""

from __future__ import annotations

import json
import os

import pytest

from fakes.protobuf import plane, xspace
from fakes.tpu_node import TpuNode, Trace
from support.traces import CONV, Traced, run_step
from tpumon.cli.commands import analyze, capture
from tpumon.cli.commands.capture import CaptureSettings
from tpumon.discovery.selection import Selection

EVENTS = [("jit_train", i * 10**9, 10**9) for i in range(5)]
TRACE = xspace(plane("/device:TPU:0", [("XLA Ops", EVENTS)]), plane("/host:CPU", [("python", EVENTS)]))


def put(directory, name):
    traced = Traced()
    core, at_us = traced.core(0), 100.0
    for _ in range(4):
        at_us = run_step(core, at_us, [(CONV, 700)]) + 50
    traced.host(40.0)
    file = directory / f"{name}.xplane.pb"
    file.write_bytes(traced.bytes())
    return file


def analyzed(capsys, *paths):
    status = analyze.run(paths=[str(path) for path in paths], output="json")
    printed = capsys.readouterr()
    return status, json.loads(printed.out), printed.err


@pytest.mark.parametrize("kind", ["a pipe", "/dev/zero"])
def test_what_never_ends_is_not_read(kind, tmp_path, capsys):
    """A pipe that nobody writes to, and a device without an end, beside a good file."""
    good, bad = put(tmp_path, "good"), tmp_path / "bad.xplane.pb"
    if kind == "a pipe":
        os.mkfifo(bad)
    else:
        bad.symlink_to(kind)
    status, shown, errors = analyzed(capsys, bad, good)
    assert status == 1
    assert [host["mxu_utilization_ratio"] for host in shown["hosts"]] == [None, 0.4]
    assert shown["hosts"][0]["errors"][0]["reason"] == "refused"
    assert "not a regular file" in errors


@pytest.mark.parametrize("error", [OverflowError("int too large"), RecursionError("deep"), MemoryError()])
def test_a_file_that_meets_a_bug_does_not_hide_the_others(error, tmp_path, capsys, monkeypatch):
    """Its figures are absent with a reason; the others' are printed, and the status says so."""
    files = [put(tmp_path, name) for name in ("a", "b", "c")]
    real, broken = analyze.figures_of_hosts, iter([True])

    def figures(traces):
        if next(broken, False):
            raise error
        return real(traces)

    monkeypatch.setattr(analyze, "figures_of_hosts", figures)
    status, shown, errors = analyzed(capsys, *files)
    assert status == 1
    assert [host["mxu_utilization_ratio"] for host in shown["hosts"]] == [None, 0.4, 0.4]
    assert shown["combined"]["mxu_utilization_ratio"] == 0.4
    assert "a.xplane.pb" in errors


def test_figures_of_all_hosts_that_cannot_be_computed_leave_each_hosts_own(tmp_path, capsys, monkeypatch):
    """`combined` is null, and a line says why."""
    files = [put(tmp_path, name) for name in ("a", "b")]
    real = analyze.figures_of_hosts

    def figures(traces):
        if len(traces) > 1:
            raise ZeroDivisionError("division by zero")
        return real(traces)

    monkeypatch.setattr(analyze, "figures_of_hosts", figures)
    _, shown, errors = analyzed(capsys, *files)
    assert [host["mxu_utilization_ratio"] for host in shown["hosts"]] == [0.4, 0.4]
    assert shown["combined"] is None
    assert "all hosts: a bug" in errors


@pytest.mark.parametrize("call", ["approach", "take"])
def test_one_workers_bug_costs_no_other_its_profile(call, tmp_path, capsys, monkeypatch):
    """Whatever an attempt raises is that worker's failure; the other profile is saved."""
    with (
        TpuNode(captures=Trace(xspace=TRACE), device=True) as good,
        TpuNode(captures=Trace(xspace=TRACE), device=True) as bad,
    ):
        real = getattr(capture.Profiler, call)

        async def broken(self, *given):
            if self._client.address == bad.address:
                raise KeyError("nobody expected this")
            return await real(self, *given)

        monkeypatch.setattr(capture.Profiler, call, broken)
        selection = Selection(addresses=(good.address, bad.address))
        status = capture.run(CaptureSettings(logdir=str(tmp_path), selection=selection, window_s=0.06, attempts=1))
    printed = capsys.readouterr()
    assert status == 1
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1
    assert "Profile of 1 of 2" in printed.out
    assert "a bug in tpumon: KeyError" in printed.err


def test_no_more_profiles_are_held_than_there_is_memory_for(tmp_path, capsys, monkeypatch):
    """One after the other where the memory is for one; a line says so, and all are saved."""
    monkeypatch.setattr(capture, "memory_limit_bytes", lambda: 1 << 20)
    running, most = 0, 0
    real = capture.Profiler.take

    async def take(self, *given):
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await real(self, *given)
        finally:
            running -= 1

    monkeypatch.setattr(capture.Profiler, "take", take)
    with (
        TpuNode(captures=Trace(xspace=TRACE), device=True) as one,
        TpuNode(captures=Trace(xspace=TRACE), device=True) as other,
    ):
        selection = Selection(addresses=(one.address, other.address))
        status = capture.run(CaptureSettings(logdir=str(tmp_path), selection=selection, window_s=0.06, attempts=1))
    assert status == 0
    assert most == 1
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 2
    assert "memory for 1 profiles at a time" in capsys.readouterr().err

"""Where the time of a request went, in traces made by hand; all times in milliseconds."""

from __future__ import annotations

import pytest

from support.traces import LOOP, Named, Plane, Traced
from tpumon.errors import SourceError
from tpumon.xspace.request_times import read_request

MS = 1000.0  # microseconds
PARTS = ("device_s", "compile_s", "host_gap_s", "queue_s")


def batch(host, begin, length, *ids, tokens=4):
    """A batch as tpu-inference annotates it; a trace holds texts as names, and texts of digits as numbers."""
    stats = {f"request_id{i}": int(each) if each.isdigit() else Named(each) for i, each in enumerate(ids, 1)}
    host.event("python", f"execute_model: {len(ids)} reqs, {tokens} toks", begin * MS, length * MS, **stats)


def run(core, begin, length, name="jit_run_model_impl(7)"):
    core.event("XLA Modules", name, begin * MS, length * MS)
    core.event("XLA Ops", LOOP, begin * MS, length * MS)


def times_of(traced, request):
    """Of the request; the parts add up to the picosecond."""
    times, _ = read_request(traced.bytes(), request, "file")
    assert round(times.span_s * 1e12) == sum(round(getattr(times, part) * 1e12) for part in PARTS)
    return times


def parts(times):
    return [round(1000 * getattr(times, part), 9) for part in ("span_s", *PARTS)]


def in_turn():
    """Batches at 0, 20, 40 and 60 ms of a, b, a, b; each lasts 15 ms and runs a program from 2 to 12 ms."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    for number, request in enumerate("abab"):
        batch(host, 20 * number, 15, request)
        run(core, 20 * number + 2, 10)
    return traced


def test_two_requests_in_turn():
    """a: from 0 to 55. Turns 0-20 and 40-55 are its own, with 20 of programs; 20-40 is b's."""
    times = times_of(in_turn(), "a")
    assert parts(times) == [55, 20, 0, 15, 20]
    assert (times.batches, times.other_batches, times.programs, times.cut) == (2, 1, "device", True)
    times = times_of(in_turn(), "b")
    assert parts(times) == [55, 20, 0, 15, 20]
    assert times.truncated is None


def test_ids_that_are_there():
    assert read_request(in_turn().bytes(), "c", "file") == (None, {"a", "b"})


def test_compiling_counts_while_no_program_runs():
    """a's first turn: 0-30. A program 2-12, compiling 8-25 of which 12-25 is without; gaps 0-2 and 25-30."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    for begin, request in ((-10, "b"), (0, "a"), (30, "b"), (40, "a"), (60, "b")):
        batch(host, begin + 10, 5, request)
    run(core, 12, 10)
    run(core, 41, 6)  # of b: queue
    run(core, 51, 3)
    run(core, 54, 4)  # ends after the span
    host.event("python", "backend_compile", 18 * MS, 17 * MS)
    host.event("compiler", "backend_compile", 20 * MS, 3 * MS)  # at once in another thread: counts once
    times = times_of(traced, "a")
    assert parts(times) == [45, 10 + 3 + 1, 13, 2 + 5 + 1, 10]
    assert times.cut is False


def test_several_requests_in_a_batch_and_several_cores():
    """Any core's programs count, each moment once: 1-5 and 3-9."""
    traced = Traced()
    host = traced.host()
    batch(host, 0, 10, "x", "a", "12")
    for number, (begin, length) in enumerate([(1, 4), (3, 6)]):
        run(traced.core(number), begin, length)
    for request in ("a", "12"):
        assert parts(times_of(traced, request)) == [10, 8, 0, 2, 0]


def test_a_program_that_the_window_cuts_shows_its_ops():
    traced = Traced()
    core, host = traced.core(0), traced.host()
    core.event("XLA Ops", LOOP, 0, 4 * MS)
    batch(host, 1, 9, "a")
    run(core, 6, 2)
    assert parts(times_of(traced, "a")) == [9, 5, 0, 4, 0]


def test_a_program_is_on_a_core_for_longer_than_its_ops():
    traced = Traced()
    core, host = traced.core(0), traced.host()
    batch(host, 0, 10, "a")
    core.event("XLA Modules", "jit_run_model_impl(7)", 1 * MS, 6 * MS)
    core.event("XLA Ops", LOOP, 2 * MS, 2 * MS)
    assert parts(times_of(traced, "a")) == [10, 6, 0, 4, 0]


def test_programs_of_the_hosts_own_processors():
    """2-7, by their ops; calls say less."""
    traced = Traced()
    host = traced.host()
    batch(host, 0, 10, "a")
    host.event("python", "PjitFunction(run_model_impl)", 1 * MS, 1 * MS)
    op = host.event("tf_XLAEigen", "fusion.1", 2 * MS, 5 * MS)
    host.put(op.stats, {"hlo_module": Named("jit_run_model_impl"), "run_id": 1, "device_ordinal": 0, "program_id": 5})
    times = times_of(traced, "a")
    assert (times.programs, parts(times)) == ("host", [10, 5, 0, 5, 0])


def test_times_are_those_since_the_begin_of_the_trace():
    """Which lines count by the clock, each from a moment of its own; events stand in any order."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    for plane, line in ((core, "XLA Modules"), (core, "XLA Ops"), (host, "python")):
        plane.line(line, timestamp_ns=1_700_000_000_000_000_000 + (5_000_000 if plane is host else 0))
    for begin in (35, 15, -5):  # at 40, 20 and 0 ms by the core's lines
        batch(host, begin, 15, "b" if begin == 15 else "a")
        run(core, begin + 7, 10)
    assert parts(times_of(traced, "a")) == [55, 20, 0, 15, 20]


def test_a_batch_within_another_one():
    """The span ends with the longer one."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    batch(host, 0, 30, "a")
    batch(host, 10, 5, "a", tokens=2)
    run(core, 20, 5)
    assert parts(times_of(traced, "a")) == [30, 5, 0, 25, 0]


def test_a_batch_at_an_impossible_time_is_none():
    traced = in_turn()
    Plane(traced.space.planes[1]).line("python").events[0].offset_ps = 1 << 62
    times = times_of(traced, "b")
    assert (times.batches, times.cut, read_request(traced.bytes(), "a", "file")[0].batches) == (2, True, 1)


def test_what_is_lost_and_the_name_of_the_host():
    traced = in_turn()
    assert times_of(traced, "a").host == "file"
    traced.space.hostnames.append("vm-7")
    traced.space.warnings.append("TPU:0 dropped 48211 events")
    times = times_of(traced, "a")
    assert (times.host, "dropped" in times.truncated) == ("vm-7", True)


def test_so_many_ids_are_known(monkeypatch):
    monkeypatch.setattr("tpumon.xspace.request_times._MOST_IDS", 1)
    assert read_request(in_turn().bytes(), "c", "file") == (None, {"a"})


def test_batches_of_no_tokens_take_no_turn():
    """Nobody else is served in 12-20: the request waits for its host."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    batch(host, 0, 10, "a")
    batch(host, 12, 2, tokens=0)
    batch(host, 20, 10, "a")
    run(core, 1, 9)
    run(core, 21, 9)
    times = times_of(traced, "a")
    assert parts(times) == [30, 18, 0, 12, 0]
    assert (times.batches, times.other_batches) == (2, 0)


def test_batches_of_another_thread_take_no_turn():
    """Two engines in one process."""
    traced = in_turn()
    stats = {"request_id1": Named("z")}
    Plane(traced.space.planes[1]).event("engine 1", "execute_model: 1 reqs, 4 toks", 5 * MS, 40 * MS, **stats)
    assert parts(times_of(traced, "a")) == [55, 20, 0, 15, 20]
    assert parts(times_of(traced, "z")) == [40, 7 + 10 + 3, 0, 20, 0]  # 5-12, 22-32, 42-45


def test_calls_on_the_host():
    """A call holds its compiling: 1-9, of which 2-7 is compiling."""
    traced = Traced()
    host = traced.host()
    batch(host, 0, 10, "a")
    host.event("python", "PjitFunction(run_model_impl)", 1 * MS, 8 * MS)
    host.event("python", "backend_compile", 2 * MS, 5 * MS)
    times = times_of(traced, "a")
    assert parts(times) == [10, 3, 5, 2, 0]
    assert times.programs == "calls"


def test_a_trace_without_programs_says_nothing():
    traced = Traced()
    batch(traced.host(), 0, 10, "a")
    with pytest.raises(SourceError, match="shows no program"):
        read_request(traced.bytes(), "a", "file")


def test_batches_without_ids():
    traced = Traced()
    run(traced.core(0), 0, 5)
    batch(traced.host(), 0, 10)
    assert read_request(traced.bytes(), "a", "file") == (None, set())


def test_more_batches_than_are_read(monkeypatch):
    monkeypatch.setattr("tpumon.xspace.request_times._MOST_BATCHES", 3)
    with pytest.raises(SourceError, match="more than 3 batches"):
        read_request(in_turn().bytes(), "a", "file")

"""What a trace costs is bounded by its size, and a trace that costs too much is given up without harm to others."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.protobuf import field
from support import odd_reading, wait_until
from support.growth import cost
from support.processes import is_running
from support.traces import CONV, US, Traced, run_step
from tpumon.collection.sources.traces import readers
from tpumon.errors import SourceError
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts


def nested_roots(count):
    """Roots of the host within events within events, and steps on a device that wait for what those start."""
    traced = Traced()
    core = traced.core(0)
    for step in range(10):
        run_step(core, 100 * step, [(CONV, 50)])
    for number, step in enumerate(core.line("Steps").events):
        core.put(step.stats, {"_ct": 1, "_c": number})
    host = traced.host()
    for depth in range(count):
        host.event("thread", "call", depth, 8 * count - 2 * depth, _pt=1, _p=1_000_000 + depth)
    for root in range(count):
        host.event("thread", "root", count + 2 * root, 1, _r=1, _pt=1, _p=root % 10)
    return traced.bytes()


def module_ids(count):
    """Every run of a module is of a module of its own."""
    traced = Traced()
    core = traced.core(0)
    for module in range(count):
        core.event("XLA Modules", f"m{module}", module, 1)
    run_step(core, count + 1, [(CONV, 50)])
    return traced.bytes()


def cores(count):
    """As many TensorCores."""
    traced = Traced()
    for core in range(count):
        run_step(traced.core(core), 1, [(CONV, 50)])
    return traced.bytes()


def threads(count):
    """As many threads, each with a stat of its own."""
    traced = Traced()
    host = traced.host()
    for number in range(count):
        line = host.line(f"thread {number}", number + 1)
        event = line.events.add(metadata_id=host.event_id(f"event {number}"), offset_ps=number * US, duration_ps=US)
        host.put(event.stats, {f"stat {number}": 1})
    return traced.bytes()


def step_names(count):
    """As many calls of jitted functions, no two of the same."""
    traced = Traced()
    host = traced.host()
    for number in range(count):
        host.event("python", f"PjitFunction(f{number})", 3 * number, 2)
    return traced.bytes()


def empty_events(count):
    """Events without anything."""
    return field(1, field(2, "/host:CPU") + field(3, field(2, "thread") + b"\x22\x00" * count))


SHAPES = [(nested_roots, 300), (module_ids, 100), (cores, 8), (threads, 60), (step_names, 200), (empty_events, 2000)]


@pytest.mark.parametrize(("shape", "count"), SHAPES, ids=[shape.__name__ for shape, _ in SHAPES])
def test_four_times_the_trace_costs_far_less_than_sixteen_times(shape, count):
    """Nothing in the analysis grows with the square of anything."""
    _, once, four_times = (cost(shape(size)) for size in (count, count, 4 * count))  # the first one imports
    assert four_times[0] < 5 * once[0]
    assert four_times[1] < 5 * once[1]


@pytest.fixture
def own_readers():
    """Processes of this test alone."""
    with odd_reading.own_readers(cpu_s=1.0):
        yield


@pytest.fixture
def odd_readers():
    """Traces are read by processes that obey marks."""
    with odd_reading.odd_readers(cpu_s=1.0):
        yield


def odd(mark):
    """A trace with a mark."""
    return field(1, field(2, mark))


def read(*traces):
    """What comes of reading these, one after the other: figures or the error."""

    async def main():
        out = []
        for trace in traces:
            try:
                out.append((await readers.QUICK.read(trace))[0])
            except SourceError as error:
                out.append(error)
        return out

    return asyncio.run(main())


def the_process():
    """The only process that was started."""
    (process,) = [each for each in readers.QUICK._free.queue if each is not None]
    return process


def test_a_trace_is_read_elsewhere_with_the_same_figures():
    """A process of its own gives what reading here gives; an error keeps its reason and words."""
    good = nested_roots(10)
    here = figures_of_hosts([read_host_totals(good)])
    there, broken, again = read(good, b"\xff" * 100, good)
    assert there == again == here
    assert broken.reason == "malformed"


def with_bytes(size):
    """A trace with a number of bytes that nobody reads."""
    return nested_roots(10) + field(1, field(2, "/host:metadata") + field(6, field(5, bytes(size))))


def test_a_reader_reads_each_trace_and_nothing_of_the_one_before(own_readers):
    """Large, small and empty traces in any order come out as if each were the first."""
    small, smaller, larger, large = nested_roots(10), nested_roots(5), with_bytes(1000), with_bytes(20_000_000)
    first, *results = read(small, smaller, larger, large, b"", smaller, small)
    assert results[0] == results[4] != first
    assert first == results[1] == results[2] == results[5]
    assert results[3].reason == "empty-trace"
    the_process()


def test_what_receiving_a_large_trace_took_is_given_back(monkeypatch, own_readers):
    asked = []
    monkeypatch.setattr(readers, "give_back_memory", lambda: asked.append(True))
    read(nested_roots(10), with_bytes(20_000_000), nested_roots(10))
    assert asked == [True]


def test_slow_readers_yield_to_all_others(own_readers):
    asyncio.run(readers.SLOW.read(nested_roots(10)))
    (process,) = readers.SLOW._free.queue
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)


def test_a_reader_that_ended_while_it_waited_costs_no_trace(own_readers):
    before = read(nested_roots(10))
    ended = the_process()
    os.kill(ended.pid, signal.SIGKILL)
    ended.wait()
    assert read(nested_roots(10)) == before
    assert the_process() is not ended


def test_a_reader_that_hangs_is_ended(monkeypatch, own_readers):
    """Even one that takes no processor time; the next trace is read by another."""
    before = read(nested_roots(10))
    hung = the_process()
    os.kill(hung.pid, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(readers, "_WALL_S", 0.0)
        (given_up,) = read(with_bytes(1_000_000))  # more than a pipe takes
    assert given_up.reason == "too-large"
    assert hung.returncode == -signal.SIGKILL
    assert read(nested_roots(10)) == before


async def test_a_reader_that_dies_costs_its_own_trace_alone(odd_readers):
    """As when memory runs out; meanwhile another trace is read."""
    good, slow = nested_roots(10), odd(odd_reading.ENDLESS)
    dying = asyncio.create_task(readers.QUICK.read(slow))
    await asyncio.sleep(0)
    others = [await readers.QUICK.read(good) for _ in range(3)]
    with pytest.raises(SourceError, match="given up"):
        await dying
    assert len({found.figures.idle_ratio for found, _ in [*others, await readers.QUICK.read(good)]}) == 1


def test_a_reader_that_does_not_start_is_not_called_a_large_trace(monkeypatch, own_readers):
    monkeypatch.setattr(readers, "_PROGRAM", "no.such.module")
    (failed,) = read(nested_roots(10))
    assert (failed.reason, failed.message) == ("internal", "the process that reads traces does not start")


async def test_more_traces_than_processes_wait_for_each_other(own_readers):
    assert len(await asyncio.gather(*(readers.QUICK.read(nested_roots(10)) for _ in range(8)))) == 8
    assert readers.QUICK._free.qsize() == 2


_LEFT_BEHIND = """
import asyncio, os
from tpumon.errors import SourceError
from tpumon.collection.sources.traces import readers
try:
    asyncio.run(readers.QUICK.read(b""))
except SourceError:
    print([process.pid for process in readers.QUICK._free.queue if process][0], flush=True)
input()
"""


def test_no_reader_outlives_a_monitor_that_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", _LEFT_BEHIND],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as monitor:
        pid = int(monitor.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        monitor.kill()
    wait_until(lambda: not is_running(pid), 10, "the reader ends")


def test_a_trace_that_takes_too_long_is_given_up(odd_readers, monkeypatch):
    """Its process is ended in the middle of it, and the next trace is read by another."""
    monkeypatch.setattr(readers, "_CPU_S_PER_MB", 0.0)
    good, slow = nested_roots(10), odd(odd_reading.ENDLESS)
    given_up, after = read(slow, good)
    assert given_up.reason == "too-large"
    assert "given up" in given_up.message
    assert after.figures.idle_ratio is not None


def test_a_trace_that_takes_too_much_memory_is_given_up(odd_readers, monkeypatch):
    """Memory has a limit of its own in the process that reads, and the monitor goes on."""
    monkeypatch.setattr(readers, "_CPU_S_PER_MB", 1e6)
    good, large = nested_roots(10), odd(odd_reading.HUNGRY)
    given_up, after = read(large, good)
    assert given_up.reason == "too-large"
    assert "memory" in given_up.message
    assert after.figures.idle_ratio is not None

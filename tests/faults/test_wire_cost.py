"""What a trace costs is bounded by its size, and a trace that costs too much is given up without harm to others."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from pathlib import Path

import pytest

from fakes.protobuf import field
from support import odd_reading
from support.growth import cost
from support.traces import CONV, US, Traced, run_step
from tpumon.errors import SourceError
from tpumon.sources import readers
from tpumon.sources.sharing import Bytes, Sharing
from tpumon.xspace import figures, read_trace, reading
from tpumon.xspace.reading import LARGE_BYTES


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


SHAPES = [(nested_roots, 300), (module_ids, 300), (cores, 8), (threads, 100), (step_names, 200), (empty_events, 2000)]


@pytest.mark.parametrize(("shape", "count"), SHAPES, ids=[shape.__name__ for shape, _ in SHAPES])
def test_four_times_the_trace_costs_far_less_than_sixteen_times(shape, count):
    """Nothing in the analysis grows with the square of anything."""
    _, once, four_times = (cost(shape(size)) for size in (count, count, 4 * count))  # the first one imports
    assert four_times[0] < 5 * once[0]
    assert four_times[1] < 5 * once[1]


@pytest.fixture
def pool(monkeypatch):
    """Processes of this test alone."""
    pool = readers._Pool(0)
    monkeypatch.setattr(readers, "_pools", {0: pool})
    yield pool
    pool.end_all()


@pytest.fixture
def odd_readers():
    """Traces are read by processes that obey marks."""
    with odd_reading.odd_readers():
        yield


def odd(mark):
    """A trace with a mark."""
    return field(1, field(2, mark))


def read(*traces):
    """What comes of reading these, one after the other: figures or the error."""

    async def main():
        sharing = Sharing()
        out = []
        for trace in traces:
            try:
                out.append((await readers.read(trace, sharing.quick))[0])
            except SourceError as error:
                out.append(error)
        return out

    return asyncio.run(main())


def test_a_trace_is_read_elsewhere_with_the_same_figures():
    """A process of its own gives what reading here gives; an error keeps its reason and words."""
    good = nested_roots(10)
    here = figures([read_trace(good)])
    there, broken, again = read(good, b"\xff" * 100, good)
    assert there == again == here
    assert broken.reason == "malformed"


def with_bytes(size):
    """A trace with a number of bytes that nobody reads."""
    return nested_roots(10) + field(1, field(2, "/host:metadata") + field(6, field(5, bytes(size))))


def size_of_file(pool):
    """How much there is now in the file from which the only process reads."""
    (reader,) = pool._all
    return os.fstat(reader._trace.fileno()).st_size


@pytest.mark.parametrize("has_memfd", [True, False])
def test_a_reader_reads_each_trace_and_nothing_of_the_one_before(monkeypatch, pool, has_memfd):
    """Large, small and empty traces in any order come out as if each were the first."""
    if not has_memfd:
        monkeypatch.setattr("ctypes.CDLL", lambda _name: None)
    small, smaller, larger, large = nested_roots(10), nested_roots(5), with_bytes(1000), with_bytes(LARGE_BYTES)
    first, *results = read(small, smaller, larger, large, b"", smaller, small)
    assert results[0] == results[4] != first
    assert first == results[1] == results[2] == results[5]
    assert results[3].reason == "empty-trace"
    assert size_of_file(pool) == len(small)
    (reader,) = pool._all
    assert ("memfd:" in str(Path(f"/proc/self/fd/{reader._trace.fileno()}").readlink())) == has_memfd


def test_what_cannot_be_mapped_is_left_to_be_read_from_its_file():
    """As on some disks, where there are no files in memory."""
    mapped = memoryview(b"before")
    pipe, other_end = os.pipe()
    os.close(other_end)
    with os.fdopen(pipe, "rb", buffering=0) as cannot:
        assert reading._mapped(cannot, len(mapped) + 1, mapped) is mapped


def test_the_memory_of_a_large_trace_is_given_back(pool):
    assert read(with_bytes(LARGE_BYTES))[0].figures
    assert size_of_file(pool) == 0


@pytest.mark.parametrize("trace", [nested_roots(10), b""])
def test_the_memory_of_every_trace_is_given_back_later(monkeypatch, pool, trace):
    asked = []
    monkeypatch.setattr(readers, "give_back_memory_soon", lambda: asked.append(len(pool._idle)))
    read(trace)
    assert asked == [1]  # when it has been read


def test_a_reader_that_ended_while_it_waited_costs_no_trace(pool):
    before = read(nested_roots(10))
    (reader,) = pool._all
    os.kill(reader._process.pid, signal.SIGKILL)
    reader._process.wait()
    assert read(nested_roots(10)) == before
    assert reader not in pool._all


def test_a_trace_that_cannot_be_handed_on_is_not_called_large(pool):
    """The failure is this machine's: no shorter trace is asked for because of it."""
    before = read(nested_roots(10))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        (failed,) = read(nested_roots(10))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert failed.reason == "internal"
    assert failed.message.startswith("cannot hand this trace of 0.0 MB to the process that reads it: File too large")
    assert read(nested_roots(10)) == before


def test_a_reader_that_hangs_is_ended(monkeypatch, pool):
    """Even one that takes no processor time; the next trace is read by another."""
    before = read(nested_roots(10))
    (reader,) = pool._all
    os.kill(reader._process.pid, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(readers, "_WALL_S", 0.0)
        (given_up,) = read(nested_roots(10))
    assert given_up.reason == "too-large"
    assert reader._process.returncode == -signal.SIGKILL
    assert read(nested_roots(10)) == before


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


def test_one_trace_is_in_the_works_while_another_waits_for_memory():
    """Reading takes turns where memory is short; who wants more than there is gets it alone."""
    memory = Bytes(100)
    most = 0

    async def main():
        nonlocal most
        held = 0

        async def hold(amount):
            nonlocal held, most
            async with memory.hold(amount) as lent:
                held += lent.amount
                most = max(most, held)
                await asyncio.sleep(0)
                held -= lent.amount

        await asyncio.gather(*(hold(amount) for amount in (60, 60, 500, 10, 90)))
        return memory._free

    assert asyncio.run(main()) == 100
    assert most == 100

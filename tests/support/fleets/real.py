"""A real trace of a TPU v6e with four chips, cut into windows, shifted, stretched and damaged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from support import REAL_TRACE
from support.fleets.courses import INTERVAL_S, Expected, Fleet, Truth, read, targets
from tpumon.model import Sample
from tpumon.proto.xplane_pb2 import XEvent, XLine, XSpace

_PS = 1_000_000_000_000
_STEP_S = 0.85  # from run to run of its program
_TPU = "/device:TPU:"
_KNOWN = {"async-wait": Expected(None, since_s=0.0)}  # 84 % of the time is copy-done


@cache
def _space() -> XSpace:
    return XSpace.FromString(REAL_TRACE.read_bytes())


def _begin_s(line: XLine, event: XEvent) -> float:
    return line.timestamp_ns / 1e9 + event.offset_ps / _PS


@cache
def _span_s() -> tuple[float, float]:
    """From the tenth to the last run of its program on a device: it does something else before."""
    begins = [
        _begin_s(line, event)
        for plane in _space().planes if plane.name.startswith(_TPU)
        for line in plane.lines if line.name == "XLA Modules"
        for event in line.events if plane.event_metadata[event.metadata_id].name.startswith("jit_f(")
    ]  # fmt: skip
    begins.sort()
    return begins[40], begins[-1]


def _kept(keep: Callable[[str, XLine, XEvent], bool], *, stretched: float = 1.0, chips: tuple[int, ...] = ()) -> bytes:
    """The trace with some of the events of its devices, of some chips; all times may be stretched."""
    space = XSpace()
    space.CopyFrom(_space())
    for plane in list(space.planes):
        of_device = plane.name.startswith(_TPU)
        if of_device and chips and int(plane.name.removeprefix(_TPU)) not in chips:
            space.planes.remove(plane)
            continue
        for line in plane.lines:
            events = [event for event in line.events if keep(plane.name, line, event)] if of_device else line.events
            if len(events) == len(line.events) and stretched == 1.0:
                continue
            kept = [XEvent.FromString(event.SerializeToString()) for event in events]
            for event in kept if of_device else ():
                _stretch(plane.stat_metadata, event, stretched)
            del line.events[:]
            line.events.extend(kept)
    return space.SerializeToString()


def _stretch(names: Mapping[int, object], event: XEvent, by: float) -> None:
    event.offset_ps, event.duration_ps = round(event.offset_ps * by), round(event.duration_ps * by)
    for stat in event.stats:
        if names[stat.metadata_id].name in {"device_offset_ps", "device_duration_ps"}:  # type: ignore[attr-defined]
            stat.uint64_value = round(stat.uint64_value * by)


def _window(from_s: float, to_s: float, **given) -> Sample:
    """A whole window without events of the host."""

    def within(_plane: str, line: XLine, event: XEvent) -> bool:
        at_s = _begin_s(line, event)
        return from_s <= at_s and at_s + event.duration_ps / _PS <= to_s

    space = XSpace.FromString(_kept(within, **given))
    for plane in list(space.planes):
        if not plane.name.startswith(_TPU):
            space.planes.remove(plane)
    return read(space.SerializeToString())


def _fleet(name: str, workers: int, seen: Callable[[int, int], Sample], truth: Truth, rounds: int = 12) -> Fleet:
    return Fleet(f"a real trace, {name}", "real trace", targets(workers), rounds, seen, lambda: truth)


def cuts() -> Iterator[Fleet]:
    """Windows of the trace; none where the trace is not there."""
    if not REAL_TRACE.exists():
        return
    for steps in (3.6, 6.0, 12.0):
        yield _windows(f"windows of {steps} steps", steps, 1)
        yield _windows(f"a chip a worker, windows of {steps} steps", steps, 4)
    for by in (1.1, 1.3, 1.6):
        yield _stretched(by)
    for share in (0.25, 0.5, 0.75, 0.9):
        yield _cut(f"all chips end at {share:.0%}", share, range(4))
        yield _cut(f"one chip ends at {share:.0%}", share, range(1, 2))
    begin_s, end_s = _span_s()
    whole = _Once(lambda: read(_kept(lambda *_: begin_s <= end_s)))
    yield _fleet("whole", 1, lambda _worker, _round: whole(), Truth(_KNOWN))


class _Once:
    """A sample that is made when it is asked for, and once."""

    def __init__(self, make: Callable[[], Sample]) -> None:
        self._make, self._made = make, None

    def __call__(self) -> Sample:
        self._made = self._made or self._make()
        return self._made


def _windows(name: str, steps: float, workers: int) -> Fleet:
    begin_s, end_s = _span_s()
    draw = random.Random(steps)
    made: dict[tuple[int, int], _Once] = {}
    for worker in range(workers):
        for number in range(6):
            at_s = draw.uniform(begin_s + 1, end_s - steps * _STEP_S - 1)
            chips = (worker,) if workers > 1 else ()
            made[worker, number] = _Once(
                lambda at_s=at_s, chips=chips: _window(at_s, at_s + steps * _STEP_S, chips=chips)
            )
    seen = lambda worker, number: made[worker, draw.randrange(6)]()  # noqa: E731
    return _fleet(name, workers, seen, Truth(_KNOWN))


def _stretched(by: float) -> Fleet:
    begin_s, end_s = _span_s()
    draw = random.Random(by)
    starts = [draw.uniform(begin_s + 1, end_s - 8 * _STEP_S) for _ in range(8)]
    usual = [_Once(lambda at_s=at_s: _window(at_s, at_s + 6 * _STEP_S)) for at_s in starts]
    longer = [_Once(lambda at_s=at_s: _window(at_s, at_s + 6 * _STEP_S, stretched=by)) for at_s in starts]
    seen = lambda _worker, number: draw.choice(usual if number < 40 else longer)()  # noqa: E731
    truth = Truth({**_KNOWN, "slow-down": Expected(frozenset({"w0"}), since_s=40 * INTERVAL_S)})
    return _fleet(f"stretched by {by - 1:.0%} after 40 samples", 1, seen, truth, rounds=80)


def _cut(name: str, share: float, chips: range) -> Fleet:
    """The events of some chips are lost from a moment on, while the host has dispatched all runs."""
    begin_s, end_s = _span_s()
    until_s = begin_s + share * (end_s - begin_s)
    names = {f"{_TPU}{chip}" for chip in chips}
    lost = _Once(lambda: read(_kept(lambda plane, line, event: plane not in names or _begin_s(line, event) < until_s)))
    truth = Truth({"truncated": Expected(frozenset({"w0"}), since_s=0.0)}, frozenset({"async-wait", "idle"}))
    return _fleet(name, 1, lambda _worker, _round: lost(), truth)

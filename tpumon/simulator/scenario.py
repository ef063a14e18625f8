"""The simulated job: a pure function of scenario, seed, worker and time since its start.

Time is divided into chapters of 8 s. A chapter holds a whole number of steps whose lengths come from a hash of seed and
chapter. So any moment of a job, even days after its start, is computed at once, and the same seed gives the same job.
The number of steps per chapter models slow drift, the lengths of the steps model jitter.

All workers start a step at the same moment, as in synchronous training. A core's step is its infeed, compute,
collective and outfeed, with some idle time between them. A core that is done waits for the slowest one, outside its
step.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from tpumon.errors import UsageError
from tpumon.simulator.topology import Topology

MS = 1_000_000  # ns
SECOND = 1_000 * MS
CHAPTER_NS = 8 * SECOND
STEP_GAP_NS = 20_000
"""Gap between steps: XProf assigns an op that begins exactly where a step ends to that step."""

FUSIONS = 3  # convolution fusions per step, and as many loop fusions


class Category(IntEnum):
    """Category of an op; the value is its index in `HLO_CATEGORIES`."""

    INFEED = 0
    CONVOLUTION = 1
    LOOP = 2
    ALL_REDUCE = 3
    OUTFEED = 4


HLO_CATEGORIES = ("infeed", "convolution fusion", "loop fusion", "all-reduce", "outfeed")

OPS: tuple[tuple[str, Category], ...] = (
    ("infeed.1", Category.INFEED),
    *(
        op
        for i in range(1, FUSIONS + 1)
        for op in ((f"convolution_fusion.{i}", Category.CONVOLUTION), (f"loop_fusion.{i}", Category.LOOP))
    ),
    ("all-reduce.1", Category.ALL_REDUCE),
    ("outfeed.1", Category.OUTFEED),
)
"""Name and category of the ops of a step, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """Nominal duration of the parts of one step, in milliseconds, on a core that is not slow."""

    infeed: float
    convolution: float = 38.4
    loop: float = 10.9
    all_reduce: float = 5.1
    outfeed: float = 0.3
    idle: float = 8.0
    slow_factor: float = 1.0  # of the straggler's compute

    period: float = field(init=False)
    slow_period: float = field(init=False)

    def __post_init__(self) -> None:
        compute, rest = self.convolution + self.loop, self.infeed + self.all_reduce + self.outfeed + self.idle
        object.__setattr__(self, "period", compute + rest)
        object.__setattr__(self, "slow_period", compute * self.slow_factor + rest)


_STEADY = _Shape(infeed=1.3)
_SHAPES: dict[str, _Shape | None] = {
    "steady": _STEADY,
    "input-bound": _Shape(infeed=50.0),
    "straggler": _Shape(infeed=1.3, slow_factor=1.4),
    "compile-pause": _STEADY,
    "idle": None,
    "flaky": _STEADY,
    "crash-and-return": _STEADY,
    "overflow": _STEADY,
    "overflow-refused": _STEADY,
    "overflow-nothing": _STEADY,
}

SCENARIOS: tuple[str, ...] = tuple(_SHAPES)
"""Every scenario; the first is the default."""

CONVOLUTION_EFFICIENCY = 0.75
"""Share of the peak that a convolution fusion reaches at its nominal length. Its FLOPs are constant, as in a real
program, so that a slower step means a lower MXU utilization."""

LOOP_BANDWIDTH_SHARE = 0.7
CONVOLUTION_BANDWIDTH_SHARE = 0.25
"""Shares of the HBM bandwidth that the fusions use at their nominal length."""

_DRIFT = 0.03  # of the step time, up and down
_DRIFT_CHAPTERS = 23.0  # about three minutes
_JITTER = 0.015
_STRETCH = 0.006 / 0x10000  # of an op's length, per unit of a 16-bit random number
_EARLY = 0.002 / 0x10000  # how much earlier than others a core may be done, per unit of a 16-bit random number
_PAUSE_EVERY_CHAPTERS = 4
_CRASH_CYCLE_NS = 40 * SECOND
_UP_NS = 25 * SECOND
_FLAKY_UNAVAILABLE = 0.15
_FLAKY_HANG = 0.04


class Step(NamedTuple):
    """One step of the whole job: `start_ns` counts from the job's start, `period_ns` lasts until the next step."""

    number: int
    start_ns: int
    period_ns: int


class Parts(NamedTuple):
    """How one core spends a step, in nanoseconds; `marker` is the step's length on this core, idle time included."""

    infeed: int
    convolution: int
    loop: int
    all_reduce: int
    outfeed: int
    marker: int

    @property
    def busy(self) -> int:
        """Time in which an op runs, in nanoseconds."""
        return self.infeed + self.convolution + self.loop + self.all_reduce + self.outfeed

    @property
    def idle(self) -> int:
        """Time in which no op runs, in nanoseconds."""
        return self.marker - self.busy


class Slot(NamedTuple):
    """One op of a core's step: its index in `OPS`, its offset from the step's start, and its duration."""

    op: int
    offset_ns: int
    duration_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job on a TPU that follows a scenario.

    Devices are numbered from 0 on each worker. Times are nanoseconds since the job's start.

    Attributes:
        topology: the TPU that it runs on.
        scenario: one of SCENARIOS.
        seed: the same seed makes the same job.

    Raises:
        UsageError: no such scenario.
    """

    topology: Topology
    scenario: str = "steady"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.scenario not in _SHAPES:
            raise UsageError(f"unknown scenario {self.scenario!r}; choose one of {', '.join(SCENARIOS)}")

    def steps(self, start_ns: int, stop_ns: int) -> Iterator[Step]:
        """Yields every step that overlaps [start_ns, stop_ns)."""
        for chapter in range(max(start_ns, 0) // CHAPTER_NS, max(stop_ns, 0) // CHAPTER_NS + 1):
            for step in _chapter(self.scenario, self.seed, chapter):
                if step.start_ns >= stop_ns:
                    return
                if step.start_ns + step.period_ns > start_ns:
                    yield step

    def parts(self, step: Step, worker: int, device: int) -> Parts:
        """Computes how one core spends one step."""
        shape = _SHAPES[self.scenario]
        assert shape is not None, "an idle job has no steps"
        slow = self.is_slow(worker, device)
        # An op varies by only 0.3 % in length. Whatever else makes a step longer is waiting, for input or otherwise.
        bits = _hash(self.seed, step.number, worker, device)
        factor = MS * (shape.slow_factor if slow else 1.0)
        convolution = int(shape.convolution * factor * (0.997 + (bits & 0xFFFF) * _STRETCH))
        loop = int(shape.loop * factor * (0.997 + (bits >> 16 & 0xFFFF) * _STRETCH))
        all_reduce = int(shape.all_reduce * MS * (0.997 + (bits >> 32 & 0xFFFF) * _STRETCH))
        outfeed = int(shape.outfeed * MS)
        own_period = step.period_ns * (shape.slow_period if slow else shape.period) / shape.slow_period
        marker = int(own_period * (1 - (bits >> 48) * _EARLY)) - STEP_GAP_NS
        waiting = marker - convolution - loop - all_reduce - outfeed
        infeed = int(waiting * shape.infeed / (shape.infeed + shape.idle))
        return Parts(infeed, convolution, loop, all_reduce, outfeed, marker)

    def is_slow(self, worker: int, device: int) -> bool:
        """Whether this is the straggler: one worker of several, or one device of a single worker."""
        if self.scenario != "straggler":
            return False
        pick = _hash(self.seed, 1, 0, 0)
        if self.topology.hosts > 1:
            return worker == pick % self.topology.hosts
        return device == pick % self.topology.devices_per_host

    def up_since_ns(self, worker: int, time_ns: int) -> int | None:
        """When the job last started on this worker; None while it is down."""
        if self.scenario != "crash-and-return":
            return 0
        cycle, within_ns = divmod(max(time_ns, 0), _CRASH_CYCLE_NS)
        if within_ns < _UP_NS:
            return self._return_ns(worker, cycle - 1) if cycle else 0
        back_ns = self._return_ns(worker, cycle)
        return back_ns if time_ns >= back_ns else None

    def _return_ns(self, worker: int, cycle: int) -> int:
        """When a worker returns after the crash of a cycle: 6 to 10 s later, at a time of its own."""
        away_ns = 6 * SECOND + _hash(self.seed, 2, worker, cycle) % (4 * SECOND)
        return cycle * _CRASH_CYCLE_NS + _UP_NS + away_ns

    def call_fails(self, worker: int, call: int) -> str | None:
        """How call number `call` of a flaky worker fails: "unavailable" or "hang"; None if it succeeds."""
        if self.scenario != "flaky":
            return None
        dice = _hash(self.seed, 3, worker, call) / (1 << 64)
        if dice < _FLAKY_UNAVAILABLE:
            return "unavailable"
        return "hang" if dice < _FLAKY_UNAVAILABLE + _FLAKY_HANG else None

    @property
    def overflow(self) -> str | None:
        """What the profiler makes of options for smaller traces, if whole ones overflow: accepted, refused, nothing.

        `nothing`: it accepts them and collects nothing. None: traces do not overflow.
        """
        first, _, rest = self.scenario.partition("-")
        return (rest or "accepted") if first == "overflow" else None

    def hbm_used_bytes(self, worker: int, device: int, time_ns: int) -> int:
        """HBM used on a device: about 60 % with a slow wave; almost nothing on an idle TPU."""
        total = self.topology.device_hbm_bytes
        if _SHAPES[self.scenario] is None:
            return total // 500
        own = 0.02 * (_hash(self.seed, 4, worker, device) / (1 << 64) - 0.5)
        wave = 0.01 * math.sin(2 * math.pi * time_ns / (90 * SECOND) + _phase(self.seed))
        return int(total * (0.6 + own + wave))


def to_ns(seconds: float) -> int:
    """Converts a wall clock's seconds to nanoseconds, rounded to microseconds: a float is no more precise."""
    return round(seconds * 1e6) * 1000


def op_flops(scenario: str, peak_flops: float) -> int:
    """FLOPs of one convolution fusion on a device with that peak; the same in every scenario."""
    shape = _SHAPES[scenario] or _STEADY
    return int(peak_flops * CONVOLUTION_EFFICIENCY * shape.convolution / 1e3 / FUSIONS)


def op_bytes(scenario: str, category: Category, bandwidth_bytes_per_s: float) -> int:
    """Bytes that one op of a category moves to and from HBM."""
    shape = _SHAPES[scenario] or _STEADY
    if category is Category.CONVOLUTION:
        return int(bandwidth_bytes_per_s * CONVOLUTION_BANDWIDTH_SHARE * shape.convolution / 1e3 / FUSIONS)
    if category is Category.LOOP:
        return int(bandwidth_bytes_per_s * LOOP_BANDWIDTH_SHARE * shape.loop / 1e3 / FUSIONS)
    return 0


def layout(parts: Parts) -> tuple[Slot, ...]:
    """Places the ops of a step: infeed, fusions with idle time between them, all-reduce, outfeed."""
    slots = [Slot(0, 0, parts.infeed)]
    at = parts.infeed
    for i in range(FUSIONS):
        at += parts.idle // FUSIONS
        for op, total in ((1 + 2 * i, parts.convolution), (2 + 2 * i, parts.loop)):
            duration = total // FUSIONS if i else total - total // FUSIONS * (FUSIONS - 1)
            slots.append(Slot(op, at, duration))
            at += duration
    at = parts.marker - parts.outfeed
    slots.append(Slot(len(OPS) - 2, at - parts.all_reduce, parts.all_reduce))
    slots.append(Slot(len(OPS) - 1, at, parts.outfeed))
    return tuple(slots)


def _hash(seed: int, *keys: int) -> int:
    packed = struct.pack("<4q", *((key + (1 << 63)) % (1 << 64) - (1 << 63) for key in (seed, *keys)))
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), "little")


def _phase(seed: int) -> float:
    return 2 * math.pi * _hash(seed, 5, 0, 0) / (1 << 64)


def _pause_ns(scenario: str, seed: int, chapter: int) -> int:
    """How long a chapter starts without steps: compilation takes 4 to 6 s of every fourth one."""
    if scenario != "compile-pause" or chapter % _PAUSE_EVERY_CHAPTERS != 2:
        return 0
    return 4 * SECOND + _hash(seed, 6, chapter, 0) % (2 * SECOND)


def _count(scenario: str, seed: int, chapter: int) -> int:
    """Number of steps in a chapter."""
    shape = _SHAPES[scenario]
    if shape is None:
        return 0
    period_ns = shape.slow_period * MS
    drift = 1 + _DRIFT * math.sin(2 * math.pi * chapter / _DRIFT_CHAPTERS + _phase(seed))
    return max(1, round((CHAPTER_NS - _pause_ns(scenario, seed, chapter)) / (period_ns * drift)))


_steps_before: dict[tuple[str, int], list[int]] = {}  # by scenario and seed; grows by chapter


def _first_number(scenario: str, seed: int, chapter: int) -> int:
    sums = _steps_before.setdefault((scenario, seed), [0])
    while len(sums) <= chapter:
        sums.append(sums[-1] + _count(scenario, seed, len(sums) - 1))
    return sums[chapter]


@lru_cache(maxsize=256)
def _chapter(scenario: str, seed: int, chapter: int) -> tuple[Step, ...]:
    count = _count(scenario, seed, chapter)
    if not count:
        return ()
    pause_ns = _pause_ns(scenario, seed, chapter)
    weights = [1 + _JITTER * (2 * _hash(seed, 7, chapter, i) / (1 << 64) - 1) for i in range(count)]
    scale = (CHAPTER_NS - pause_ns) / sum(weights)
    first = _first_number(scenario, seed, chapter)
    steps: list[Step] = []
    done = 0.0
    for i, weight in enumerate(weights):
        start_ns = int(done)
        done += weight * scale
        end_ns = CHAPTER_NS - pause_ns if i == count - 1 else int(done)
        steps.append(Step(first + i, chapter * CHAPTER_NS + pause_ns + start_ns, end_ns - start_ns))
    return tuple(steps)

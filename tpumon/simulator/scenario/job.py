"""The simulated job: a pure function of scenario, seed, worker and time since its start."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from tpumon.simulator.scenario.basics import SECOND, chance, hashed
from tpumon.simulator.scenario.clock import Clock, Interval, Step, clock_of, phase
from tpumon.simulator.scenario.core_steps import CoreStepParts, Slot, before_collective, layout, split
from tpumon.simulator.scenario.fault_table import POOL_PRESSURE, SERVING
from tpumon.simulator.scenario.faults import Fault, check_together, parse_faults
from tpumon.simulator.scenario.step_work import StepPart, StepWork
from tpumon.simulator.topology import Topology

USABLE_HBM_RATIO = 31.25 / 32
"""Share of the HBM that a job can use: libtpu reports 31.25 of the 32 GiB of a v6e as the total; the same ratio is
assumed for the other generations."""

BATCH = 32
"""Requests that a server runs at once, each with one token a step."""

_FULL_HBM_RATIO = 0.995 * USABLE_HBM_RATIO
_NEARLY_FULL_HBM_RATIO = 0.95 * USABLE_HBM_RATIO
_POOL_HBM_RATIO = 0.9 * USABLE_HBM_RATIO  # a server's weights, and its cache, which it allocates at its start
_QUEUE = 12  # requests
_CRASH_CYCLE_NS = 40 * SECOND
_UP_NS = 25 * SECOND
_FLAKY_UNAVAILABLE = 0.15
_FLAKY_HANG = 0.04


class ServedRequests(Struct, frozen=True, kw_only=True):
    """The requests of a server at a moment.

    Attributes:
        running, waiting: now.
        tokens, preemptions: since the start.
        kv_ratio: share of the cache of keys and values in use.
    """

    running: int
    waiting: int
    tokens: int
    preemptions: int
    kv_ratio: float


class SimulatedJob(Struct, frozen=True, kw_only=True, dict=True):
    """A job on a TPU that follows a scenario.

    Devices are numbered from 0 on each worker. Times are nanoseconds since the job's start. All workers start a step
    at the same moment and wait for each other at its end, as in synchronous training.

    Attributes:
        topology: the TPU that it runs on.
        scenario: terms as `tpumon.simulator.scenario.faults` describes them; "steady": none.
        seed: the same seed makes the same job.
        faults: faults beside those of the scenario.

    Raises:
        UsageError: no such scenario, or faults that cannot be.
    """

    topology: Topology
    scenario: str = "steady"
    seed: int = 0
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        _ = self._clock  # raises

    @cached_property
    def _clock(self) -> Clock:
        faults = (*parse_faults(self.scenario), *self.faults)
        check_together(faults)
        return clock_of(tuple(fault.bound(self.topology, self.seed) for fault in faults), self.seed)

    @property
    def title(self) -> str:
        """The scenario and the further faults, in words that a user could have typed."""
        return "+".join([self.scenario, *map(str, self.faults)])

    def steps(self, start_ns: int, stop_ns: int) -> Iterator[Step]:
        return self._clock.steps(start_ns, stop_ns)

    def silences(self, start_ns: int, stop_ns: int) -> Iterator[Interval]:
        """Yields the times without steps that overlap [start_ns, stop_ns), and why there are none."""
        return self._clock.silences(start_ns, stop_ns)

    def work(self, time_ns: int) -> StepWork:
        return self._clock.work(time_ns)

    def parts(self, step: Step, worker: int, device: int) -> CoreStepParts:
        """Computes how one core spends one step."""
        work = step.work
        factor = 1.0
        if work.slow or work.noise:
            factor = work.factor(worker, device, chance(self.seed, 8, step.number, worker))
        return split(work, step.period_ns, factor, hashed(self.seed, step.number, worker, device))

    def slots(self, step: Step, worker: int, parts: CoreStepParts) -> tuple[Slot, ...]:
        """The ops that a core completes in a step; fewer than usual if a worker is missing."""
        if step.missing is None:
            return layout(parts)
        return () if step.missing == worker else before_collective(layout(parts))

    def last_busy_ns(self, worker: int, time_ns: int) -> int:
        """The last moment at which a worker's devices were busy, at most `time_ns`; else the start of its process.

        Pauses within and between steps do not count: a device in use is busy.
        """
        began_ns = self.up_since_ns(worker, time_ns) or 0
        step = self._clock.last_step(time_ns, other_than_missing=worker)
        if step is None:
            return began_ns
        end_ns = step.start_ns + step.period_ns
        if step.missing is not None:
            last = self.slots(step, worker, self.parts(step, worker, 0))[-1]
            end_ns = step.start_ns + last.offset_ns + last.duration_ns
        return max(began_ns, min(end_ns, time_ns))

    def queue_size(self, worker: int, time_ns: int) -> int:
        """Number of programs that wait or run on each device: the host runs ahead by one, if it can."""
        work = self.work(time_ns)
        if work.stop is not None:
            return int(work.missing not in {None, worker})
        waits_for_host = work.ms[StepPart.HOST_GAP] or (work.program.jax and work.waits_for_input)
        return 1 if waits_for_host else 2

    @property
    def goes_down(self) -> bool:
        """True if any process ever ends."""
        return any(fault.row.stop == "away" or fault.kind == "crash-and-return" for fault in self._clock.faults)

    def up_since_ns(self, worker: int, time_ns: int) -> int | None:
        """The last start of the job on this worker; None while it is down."""
        since_ns = 0
        for fault in self._clock.faults:
            began_ns: int | None = 0
            if fault.kind == "crash-and-return":
                began_ns = self._up_since_crash_ns(worker, time_ns)
            elif fault.row.stop == "away" and fault.worker in {None, worker}:
                active = fault.at(time_ns)
                began_ns = None if active and active.phase == "on" else fault.last_ended_ns(time_ns) or 0
            if began_ns is None:
                return None
            since_ns = max(since_ns, began_ns)
        return since_ns

    def _up_since_crash_ns(self, worker: int, time_ns: int) -> int | None:
        cycle, within_ns = divmod(max(time_ns, 0), _CRASH_CYCLE_NS)
        if within_ns < _UP_NS:
            return self._return_ns(worker, cycle - 1) if cycle else 0
        back_ns = self._return_ns(worker, cycle)
        return back_ns if time_ns >= back_ns else None

    def _return_ns(self, worker: int, cycle: int) -> int:
        """The return of a worker after the crash of a cycle: 6 to 10 s later, at a time of its own."""
        away_ns = 6 * SECOND + hashed(self.seed, 2, worker, cycle) % (4 * SECOND)
        return cycle * _CRASH_CYCLE_NS + _UP_NS + away_ns

    def call_fails(self, worker: int, call: int, time_ns: int = 0) -> str | None:
        """The failure of call number `call` of a flaky worker, "unavailable" or "hang"; None if it succeeds."""
        if not self._holds("flaky", time_ns):
            return None
        dice = chance(self.seed, 3, worker, call)
        if dice < _FLAKY_UNAVAILABLE:
            return "unavailable"
        return "hang" if dice < _FLAKY_UNAVAILABLE + _FLAKY_HANG else None

    def overflow(self, time_ns: int) -> str | None:
        """The profiler's answer to options for smaller traces, if whole ones overflow: accepted, refused, nothing.

        `nothing`: it accepts them and collects nothing. None: traces do not overflow.
        """
        kinds = {"overflow": "accepted", "overflow-refused": "refused", "overflow-nothing": "nothing"}
        return next((answer for kind, answer in kinds.items() if self._holds(kind, time_ns)), None)

    @property
    def serves(self) -> bool:
        return any(fault.kind == SERVING for fault in self._clock.faults)

    def requests(self, time_ns: int) -> ServedRequests:
        """The requests of a server, as each of its workers counts them."""
        step = self._clock.last_step(time_ns, other_than_missing=-1)
        since_ns = [since for fault in self._clock.faults
                    if fault.kind == POOL_PRESSURE and (since := fault.since_ns(time_ns)) is not None]  # fmt: skip
        stop = self.work(time_ns).stop
        return ServedRequests(
            running=0 if stop == "quiet" else BATCH,
            waiting=_QUEUE if since_ns or stop == "stuck" else 0,
            tokens=0 if step is None else BATCH * (step.number + 1),
            preemptions=max(0, time_ns - min(since_ns)) // SECOND if since_ns else 0,
            kv_ratio=0.0 if stop == "quiet" else 0.995 if since_ns else 0.5,
        )

    def _holds(self, kind: str, time_ns: int) -> bool:
        return any(fault.kind == kind and fault.at(time_ns) is not None for fault in self._clock.faults)

    def hbm_used_bytes(self, worker: int, device: int, time_ns: int) -> int:
        """HBM used on a device: about 60 % with a slow wave; almost nothing on an idle TPU."""
        total = self.topology.device_hbm_bytes
        if self.work(time_ns).stop == "idle":
            return total // 500
        if self.serves:
            return int(total * _POOL_HBM_RATIO)
        own = 0.02 * (chance(self.seed, 4, worker, device) - 0.5)
        wave = 0.01 * math.sin(2 * math.pi * time_ns / (90 * SECOND) + phase(self.seed))
        ratio = 0.6 + own + wave
        for fault in self._clock.faults:
            if fault.kind == "hbm-nearly-full" and fault.at(time_ns):
                ratio = max(ratio, _NEARLY_FULL_HBM_RATIO + 0.1 * own)
            elif fault.kind == "hbm-leak" and (since_ns := fault.since_ns(time_ns)) is not None:
                # A new process starts with an empty HBM.
                leaks_ns = time_ns - max(since_ns, self.up_since_ns(worker, time_ns) or 0)
                grown = min(1.0, max(0, leaks_ns) / (fault.value("over") * SECOND))
                ratio += grown * max(0.0, _FULL_HBM_RATIO - ratio)
        return int(total * ratio)

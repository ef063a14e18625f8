"""The figures that XProf would compute for a window of the simulated job.

`window_events` returns the events that a profiler records in the window: step markers and ops that lie entirely in it.
Both the trace and the Monitor RPC's figures are made from them, so the two agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from tpumon.model import Spread
from tpumon.simulator.scenario import OPS, CoreStepParts, SimulatedJob, Slot, Step, StepProgram, layout


class StepInWindow(NamedTuple):
    """One step of one core, cut to the window.

    Attributes:
        step: the step.
        parts: how the core spends it.
        partial: the ops that lie in the window; None if the whole step does, and is finished.
    """

    step: Step
    parts: CoreStepParts
    partial: tuple[Slot, ...] | None

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The ops that lie entirely in the window."""
        return layout(self.parts) if self.partial is None else self.partial


class ExpectedFigures(Struct, frozen=True, kw_only=True):
    """The figures of one worker in one window; None if the window lacks the events for them.

    Attributes:
        mxu_ratio: FLOPs / (time from first to last event x peak), which is what the hardware counter reports.
        idle_ratio: 1 - op time / time from first to last event, both summed over cores.
        flops_ratio: FLOPs / (op time x peak), idle time excluded, as in XProf's op profile.
        hbm_ratio: bytes moved / (time from first to last event x bandwidth).
        step_s: duration of the steps, each the maximum over cores.
        infeed_ratio: infeed share of the steps, each the maximum over cores.
        steps: number of whole steps in the window.
        busy: op time / time from first to last event, per device; 0 for a device without events.
    """

    mxu_ratio: float
    idle_ratio: float | None
    flops_ratio: float | None
    hbm_ratio: float | None
    step_s: Spread | None
    infeed_ratio: Spread | None
    steps: int
    busy: tuple[float, ...]


def window_events(job: SimulatedJob, worker: int, start_ns: int, stop_ns: int) -> list[list[StepInWindow]]:
    """Returns the events that a profiler records of a worker in a window: per device, per step."""
    steps = list(job.steps(start_ns, stop_ns))
    return [
        [
            recorded
            for step in steps
            if (recorded := _recorded(job, step, worker, device, start_ns, stop_ns)) is not None
        ]
        for device in range(job.topology.devices_per_host)
    ]


def _recorded(
    job: SimulatedJob, step: Step, worker: int, device: int, start_ns: int, stop_ns: int
) -> StepInWindow | None:
    parts = job.parts(step, worker, device)
    if step.start_ns >= start_ns and step.start_ns + parts.marker <= stop_ns and step.missing is None:
        return StepInWindow(step, parts, None)
    slots = tuple(
        slot
        for slot in job.slots(step, worker, parts)
        if step.start_ns + slot.offset_ns >= start_ns and step.start_ns + slot.offset_ns + slot.duration_ns <= stop_ns
    )
    return StepInWindow(step, parts, slots) if slots else None


def figures(job: SimulatedJob, worker: int, start_ns: int, stop_ns: int) -> ExpectedFigures:
    """Computes the figures of one worker over a window; times in nanoseconds since the job's start."""
    return measure(job, window_events(job, worker, start_ns, stop_ns))


def measure(job: SimulatedJob, events: Sequence[Sequence[StepInWindow]]) -> ExpectedFigures:
    spans_ns = [_span_ns(core) for core in events]
    busy_ns = flops = moved = 0
    busy_shares: list[float] = []
    peak = job.topology.device_peak_flops
    bandwidth = job.topology.device_hbm_bandwidth_bytes_per_s
    program: StepProgram | None = None
    for core, span_ns in zip(events, spans_ns, strict=True):
        core_busy_ns = 0
        for step, parts, partial in core:
            if step.work.program is not program:
                program = step.work.program
                amounts = _amounts(program, peak, bandwidth)
            core_busy_ns += parts.busy if partial is None else sum(slot.duration_ns for slot in partial)
            for op in (_ALL_OPS,) if partial is None else (slot.op for slot in partial):
                flops += amounts[op][0]
                moved += amounts[op][1]
        busy_ns += core_busy_ns
        busy_shares.append(core_busy_ns / span_ns if span_ns else 0.0)
    total_ns = sum(spans_ns)
    lengths, infeeds = _per_step(events)
    return ExpectedFigures(
        mxu_ratio=flops / (total_ns / 1e9 * peak) if total_ns else 0.0,
        idle_ratio=1 - busy_ns / total_ns if total_ns else None,
        flops_ratio=flops / (busy_ns / 1e9 * peak) if busy_ns else None,
        hbm_ratio=moved / (total_ns / 1e9 * bandwidth) if total_ns else None,
        step_s=_spread(lengths),
        infeed_ratio=_spread(infeeds),
        steps=len(lengths),
        busy=tuple(busy_shares),
    )


_ALL_OPS = len(OPS)


@lru_cache(maxsize=256)
def _amounts(program: StepProgram, peak_flops: float, bandwidth_bytes_per_s: float) -> tuple[tuple[int, int], ...]:
    """FLOPs and bytes of each op of a step; the last item is all of them."""
    each = [(program.flops(op, peak_flops), program.bytes(op, bandwidth_bytes_per_s)) for op in range(len(OPS))]
    return (*each, (sum(flops for flops, _ in each), sum(moved for _, moved in each)))


def _span_ns(core: Sequence[StepInWindow]) -> int:
    """Time from a core's first op to its last. Every step with a marker begins and ends with an op."""
    if not core:
        return 0
    first, last = core[0].slots[0], core[-1].slots[-1]
    return core[-1].step.start_ns + last.offset_ns + last.duration_ns - core[0].step.start_ns - first.offset_ns


def _per_step(events: Sequence[Sequence[StepInWindow]]) -> tuple[list[float], list[float]]:
    """Duration in seconds and infeed share of every step that is whole on all cores."""
    whole: dict[int, list[CoreStepParts]] = {}
    for core in events:
        for core_step in core:
            if core_step.partial is None and not core_step.step.work.program.jax:
                whole.setdefault(core_step.step.number, []).append(core_step.parts)
    lengths: list[float] = []
    infeeds: list[float] = []
    for cores in whole.values():
        if len(cores) == len(events):
            longest = max(parts.marker for parts in cores)
            lengths.append(longest / 1e9)
            infeeds.append(max(parts.infeed for parts in cores) / longest)
    return lengths, infeeds


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread(avg=sum(values) / len(values), min=min(values), max=max(values)) if values else None

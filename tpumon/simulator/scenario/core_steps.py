"""One step on one core, in nanoseconds.

All cores start a step together and end it together: a core that has done its own work waits for the slowest one of the
job, half of the time within the collective, half before it.
"""

from __future__ import annotations

from typing import NamedTuple

from tpumon.simulator.scenario.basics import MS
from tpumon.simulator.scenario.step_work import FUSIONS, OPS, StepPart, StepWork

STEP_GAP_NS = 20_000
"""Gap between steps: XProf assigns an op that begins exactly where a step ends to that step."""

OP_PARTS = StepPart.SPARSE_WAIT + 1
"""Number of parts that are ops."""

_STRETCH = 0.006 / 0x10000  # of an op's length, per unit of a 16-bit random number
_EARLY = 0.002 / 0x10000  # how much earlier than others a core may be done, per unit of a 16-bit random number
_IN_COLLECTIVE = 0.5  # of the time that a core waits for the slowest one
_LEAST_SLACK = 0.25  # of the nominal length of the elastic parts


class CoreStepParts(NamedTuple):
    """The parts of one step on one core, in nanoseconds.

    `barrier` and `debug_print` are times without an op; `gap` follows the step. `marker` is the step's length on this
    core, without the gap, idle time included. The first fields are in the order of `StepPart`.
    """

    infeed: int
    convolution: int
    loop: int
    all_reduce: int
    outfeed: int
    host_transfer: int
    formatting: int
    copy_done: int
    sparse_wait: int
    barrier: int
    debug_print: int
    gap: int
    marker: int

    @property
    def busy(self) -> int:
        """Time in which an op runs, in nanoseconds."""
        return sum(self[:OP_PARTS])

    @property
    def idle(self) -> int:
        """Time of the step in which no op runs, in nanoseconds."""
        return self.marker - self.busy


class Slot(NamedTuple):
    """One op of a core's step: its index in `OPS`, its offset from the step's start, and its duration."""

    op: int
    offset_ns: int
    duration_ns: int


def split(work: StepWork, period_ns: int, factor: float, bits: int) -> CoreStepParts:
    """Divides one step of one core into its parts.

    Args:
        work: of the job.
        period_ns: time until the next step.
        factor: compute time of this core as a multiple of the nominal one.
        bits: 64 random bits.
    """
    # An op varies by only 0.3 % in length. Whatever else makes a step longer is waiting, for input or otherwise.
    ms, elastic = work.ms, work.elastic
    compute = (
        int(ms[StepPart.CONVOLUTION] * (MS * factor) * (0.997 + (bits & 0xFFFF) * _STRETCH)),
        int(ms[StepPart.LOOP] * (MS * factor) * (0.997 + (bits >> 16 & 0xFFFF) * _STRETCH)),
    )
    all_reduce = outfeed = lag_ns = 0
    if StepPart.ALL_REDUCE not in elastic:
        all_reduce = int(ms[StepPart.ALL_REDUCE] * MS * (0.997 + (bits >> 32 & 0xFFFF) * _STRETCH))
    if StepPart.OUTFEED not in elastic:
        outfeed = int(ms[StepPart.OUTFEED] * MS)
    if work.slowest != factor:
        lag_ns = int((work.slowest - factor) * work.compute_ms * MS)
    available_ns = int(period_ns * (1 - (bits >> 48) * _EARLY)) - STEP_GAP_NS
    nominal = 0.0
    for part in elastic:
        nominal += ms[part]
    fixed: tuple[int, ...] = (*compute, all_reduce, outfeed, lag_ns)
    least_ns = int(_LEAST_SLACK * nominal * MS)
    if sum(fixed) > available_ns - least_ns:
        squeeze = max(0, available_ns - least_ns) / sum(fixed)
        fixed = tuple(int(part_ns * squeeze) for part_ns in fixed)
    slack_ns = available_ns - sum(fixed)
    took = [0, fixed[0], fixed[1], fixed[2], fixed[3], *_NO_FURTHER_PARTS]
    for part in elastic:
        took[part] = int(slack_ns * ms[part] / nominal)
    took[StepPart.ALL_REDUCE] += int(_IN_COLLECTIVE * fixed[4])
    gap_ns = took[StepPart.INPUT_GAP] + took[StepPart.HOST_GAP]
    return CoreStepParts._make([*took[: StepPart.IDLE], gap_ns, available_ns - gap_ns])


_NO_FURTHER_PARTS = (0,) * (len(StepPart) - StepPart.HOST_TRANSFER)


def layout(parts: CoreStepParts) -> tuple[Slot, ...]:
    """Places the ops of a step: infeed, fusions with idle time between them, other ops, all-reduce, outfeed."""
    slots = [Slot(op, 0, parts[OPS[op].part]) for op in (_INFEED, _HOST_TRANSFER) if parts[OPS[op].part]]
    if len(slots) == 2:
        slots[1] = slots[1]._replace(offset_ns=parts.infeed)
    at = parts.infeed + parts.host_transfer
    idle = parts.idle - parts.barrier - parts.debug_print
    for i in range(FUSIONS):
        at += idle // FUSIONS
        for op, total in ((1 + 2 * i, parts.convolution), (2 + 2 * i, parts.loop)):
            duration = total // FUSIONS if i else total - total // FUSIONS * (FUSIONS - 1)
            slots.append(Slot(op, at, duration))
            at += duration
    for op in _AFTER_FUSIONS:
        if duration := parts[OPS[op].part]:
            slots.append(Slot(op, at, duration))
            at += duration
    at = parts.marker - parts.outfeed
    slots.append(Slot(_ALL_REDUCE, at - parts.all_reduce, parts.all_reduce))
    if parts.outfeed:
        slots.append(Slot(_OUTFEED, at, parts.outfeed))
    return tuple(slots)


def before_collective(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """The ops that a core completes if the collective never ends."""
    end = next(i for i, slot in enumerate(slots) if slot.op == _ALL_REDUCE)
    return slots[:end]


_BY_PART = {op.part: i for i, op in enumerate(OPS)}
_INFEED, _HOST_TRANSFER = _BY_PART[StepPart.INFEED], _BY_PART[StepPart.HOST_TRANSFER]
_ALL_REDUCE, _OUTFEED = _BY_PART[StepPart.ALL_REDUCE], _BY_PART[StepPart.OUTFEED]
_AFTER_FUSIONS = tuple(_BY_PART[part] for part in (StepPart.FORMATTING, StepPart.COPY_DONE, StepPart.SPARSE_WAIT))

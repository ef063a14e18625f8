"""The steps of a capture one by one, per core and across cores, as plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tpumon.xspace.columns.columns import PS_PER_S, Ints
from tpumon.xspace.host_totals import HostTotals
from tpumon.xspace.ops.op_kinds import Category
from tpumon.xspace.steps.op_steps import OpSteps, add_up_steps
from tpumon.xspace.steps.tpu_steps import HostSteps, align_hosts, infeed_ratios, parts_of_steps_ps

MOST_STEPS = 2000

CORE_PARTS = (
    "high_flops_compute",
    "low_flops_compute",
    "async_wait",
    "infeed",
    "outfeed",
    "collective",
    "host_transfer",
    "other_wait",
    "idle",
)
"""Parts of one core's step; they add up to it. `other_wait`: for a SparseCore of the first kind."""

_PARTS_OF = {
    "high_flops_compute": (Category.HIGH_FLOPS,),
    "low_flops_compute": (Category.OTHER, Category.SPARSE_OUTFEED),
    "async_wait": (Category.ASYNC_WAIT,),
    "infeed": (Category.INFEED, Category.SPARSE_INFEED),
    "outfeed": (Category.OUTFEED,),
    "collective": (Category.COLLECTIVE,),
    "host_transfer": (Category.HOST_TRANSFER,),
    "other_wait": (Category.SPARSE_INFEED_WAIT,),
}


class CoreTimes(Struct, frozen=True, kw_only=True, eq=False):
    """The steps of one core; all tuples have one element per step.

    Attributes:
        host: position of its host in the capture.
        chip: number of its chip.
        core: number of the core on its chip.
        durations_s: of its own steps.
        parts_s: the keys are CORE_PARTS.
    """

    host: int
    chip: int
    core: int
    durations_s: tuple[float, ...]
    parts_s: Mapping[str, tuple[float, ...]]


class StepTable(Struct, frozen=True, kw_only=True, eq=False):
    """The steps of a capture; all tuples have one element per step.

    Attributes:
        source: what counts as a step; None if nothing does.
        matched: whether a step has the same position on all cores.
        durations_s: on the slowest core.
        periods_s: from the start of each step to that of the next, one less than there are steps, on the host that
            took longest; empty unless steps are matched.
        compute_s, infeed_s, outfeed_s, idle_s, host_transfer_s: across cores, as XProf's input pipeline analysis has
            them; empty unless steps are matched.
        all_reduce_s: in all-reduces, on the core that spent most; empty unless steps are matched.
        infeed_ratio: average, minimum and maximum over cores; empty unless steps are matched.
        cores: each core's; empty where only the host shows steps.
        left_out: steps beyond MOST_STEPS.
        ops: the time of each op in each step, all cores together; where steps are not matched, in the first, second
            and so on of each core. None where it was not read.
    """

    source: Literal["steps", "modules", "host"] | None
    matched: bool
    durations_s: tuple[float, ...] = ()
    periods_s: tuple[float, ...] = ()
    compute_s: tuple[float, ...] = ()
    infeed_s: tuple[float, ...] = ()
    outfeed_s: tuple[float, ...] = ()
    idle_s: tuple[float, ...] = ()
    host_transfer_s: tuple[float, ...] = ()
    all_reduce_s: tuple[float, ...] = ()
    infeed_ratio: tuple[tuple[float, float, float], ...] = ()
    cores: tuple[CoreTimes, ...] = ()
    left_out: int = 0
    ops: OpSteps | None = None

    @property
    def shared(self) -> int:
        """The number of steps that every core has."""
        return min((len(core.durations_s) for core in self.cores), default=0)

    def part_s(self, name: str) -> tuple[float, ...]:
        """The time of a part in each step that every core has, the mean over cores."""
        return tuple(np.mean([core.parts_s[name][: self.shared] for core in self.cores], axis=0).tolist())

    def ops_s(self, keys: Iterable[int]) -> tuple[float, ...]:
        """The time of some ops in each step that every core has, the mean over cores."""
        times_ps = np.zeros(self.shared)
        for op in [] if self.ops is None else map(self.ops.of, keys):
            within = op.step < self.shared
            times_ps[op.step[within]] += op.self_ps[within]
        return _seconds(times_ps / max(len(self.cores), 1))


def step_table(traces: Sequence[HostTotals], durations_s: Sequence[float]) -> StepTable:
    """The steps of hosts of one capture.

    Args:
        traces: of the hosts.
        durations_s: of all steps, as the figures have them.
    """
    if all(trace.steps.marked is not None for trace in traces):
        return _marked(traces, [trace.steps.marked for trace in traces if trace.steps.marked is not None])
    shown = tuple(durations_s[:MOST_STEPS])
    left_out = max(len(durations_s) - MOST_STEPS, 0)
    if all(trace.steps.module_steps for trace in traces):
        cores = tuple(
            _core_times(
                i, trace, position, steps.duration_ps[:MOST_STEPS], steps.by_category_ps[:MOST_STEPS], on_end=True
            )
            for i, trace in enumerate(traces)
            for position, steps in trace.steps.module_steps.items()
        )
        return StepTable(
            source="modules",
            matched=False,
            durations_s=shown,
            cores=cores,
            left_out=left_out,
            ops=_ops_of_all(steps.ops for trace in traces for steps in trace.steps.module_steps.values()),
        )
    source: Literal["host"] | None = "host" if shown else None
    return StepTable(source=source, matched=False, durations_s=shown, left_out=left_out)


def _marked(traces: Sequence[HostTotals], hosts: Sequence[HostSteps]) -> StepTable:
    shared = align_hosts(hosts) if len(hosts) > 1 else list(hosts)
    count = len(shared[0])
    if not count:
        return StepTable(source=None, matched=True)
    shared = [host.select(np.arange(min(count, MOST_STEPS))) for host in shared]
    parts = parts_of_steps_ps(shared)
    durations_s = _seconds(np.max([host.duration_ps for host in shared], axis=0))
    ratios = np.concatenate([infeed_ratios(host) for host in shared])
    spread = np.stack([ratios.mean(axis=0), ratios.min(axis=0), ratios.max(axis=0)], axis=1)
    cores = tuple(
        _core_times(i, trace, position, host.own_ps[row], host.by_category_ps[row])
        for i, (trace, host) in enumerate(zip(traces, shared, strict=True))
        for row, position in enumerate(host.cores)
    )
    return StepTable(
        source="steps",
        matched=True,
        durations_s=durations_s,
        periods_s=_seconds(max((_periods_ps(host.begin_ps) for host in shared), key=np.sum)),
        compute_s=_seconds(parts["compute"]),
        infeed_s=_seconds(parts["infeed"]),
        outfeed_s=_seconds(parts["outfeed"]),
        idle_s=_seconds(parts["idle"]),
        host_transfer_s=_seconds(parts["host_transfer"]),
        all_reduce_s=_seconds(np.max([host.all_reduce_ps for host in shared], axis=0)),
        infeed_ratio=tuple((avg, least, most) for avg, least, most in spread.tolist()),
        cores=cores,
        left_out=count - len(shared[0]),
        ops=_ops_of_all(host.ops for host in shared),
    )


def _periods_ps(begin_ps: Ints) -> Ints:
    """From each start to the next; steps whose numbers return are not in the order of their starts."""
    ordered_ps: Ints = np.unique(begin_ps)
    return ordered_ps[1:] - ordered_ps[:-1]


def _ops_of_all(parts: Iterable[OpSteps | None]) -> OpSteps | None:
    """The sum over hosts, or cores; None where it was not read."""
    known = [one for one in parts if one is not None]
    return add_up_steps(known) if known else None


def _core_times(
    host: int, trace: HostTotals, position: int, own_ps: Ints, table: NDArray[np.float64], *, on_end: bool = False
) -> CoreTimes:
    """The parts of a core's steps.

    Args:
        host: number of the trace.
        trace: the trace.
        position: of the core in it.
        own_ps: the core's time of each step.
        table: time of each step by category.
        on_end: whether steps follow one another and an op counts whole where it begins: what it takes of the next step
            is not idle there.
    """
    place = trace.cores[position].place
    parts = {name: table[:, list(categories)].sum(axis=1) for name, categories in _PARTS_OF.items()}
    without_ops = own_ps - table.sum(axis=1)
    if on_end:
        parts["idle"] = np.diff(np.maximum.accumulate(np.maximum(without_ops.cumsum(), 0)), prepend=0)
    else:
        parts["idle"] = np.maximum(without_ops, 0)
    return CoreTimes(
        host=host,
        chip=position if place.chip is None else place.chip,
        core=place.core,
        durations_s=_seconds(own_ps),
        parts_s={name: _seconds(parts[name]) for name in CORE_PARTS},
    )


def _seconds(times_ps: NDArray[np.float64] | Ints) -> tuple[float, ...]:
    return tuple((times_ps / PS_PER_S).tolist())

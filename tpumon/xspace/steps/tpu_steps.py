"""Steps of a TPU: their markers, their time by category of ops, and their figures across cores, as XProf has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tpumon.xspace.columns.columns import PS_PER_S, Events, Ints
from tpumon.xspace.columns.intervals import first_overlapping, is_ascending, self_times_ps
from tpumon.xspace.ops.op_kinds import NOT_OWN_WORK, Category
from tpumon.xspace.planes.core import CoreLines, CoreOps
from tpumon.xspace.planes.plane import STEP_STATS, TRACE_ME
from tpumon.xspace.steps.functions import Runs
from tpumon.xspace.steps.op_steps import OpSteps, add_up_steps

_CATEGORIES = len(Category)
_UNNUMBERED: Mapping[int, int] = MappingProxyType({})
_BARRIER, _DEBUG_PRINT = "barrier-cores", "debug_print"

STEP_PARTS = (
    "high_flops_compute",
    "low_flops_compute",
    "async_wait",
    "infeed",
    "outfeed",
    "collective",
    "host_transfer",
    "idle",
)


class CoreSteps(Struct, frozen=True, kw_only=True, eq=False):
    """Steps of one core that have both a marker and ops.

    Attributes:
        groups: number of each step, ascending; the same step has the same number on all cores of a host.
        begin_ps: start of its marker, shape as `groups`.
        duration_ps: length of its marker, shape as `groups`.
        by_category_ps: self time of its ops, shape (len(groups), number of categories).
        all_reduces: one row per occurrence: index into `groups`, id, duration.
        ops: the time of each op in each; None where nobody wants it.
    """

    groups: Ints
    begin_ps: Ints
    duration_ps: Ints
    by_category_ps: NDArray[np.float64]
    all_reduces: Ints
    ops: OpSteps | None


class HostSteps(Struct, frozen=True, kw_only=True, eq=False):
    """The steps that all cores of a host have; arrays have one element per step.

    Attributes:
        begin_ps: start of the longest marker.
        duration_ps: length of the longest marker; XProf: StepDetails::StepTime.
        own_ps: length of each core's own marker, shape (cores, steps).
        by_category_ps: shape (cores, steps, categories).
        all_reduce_ps: time in all-reduces, by their ids, of the core that spent most.
        cores: position in the host's list of cores of each row.
        numbers: the program's own number of each; None where the trace does not say.
        ops: the time of each op in each, all cores together; None where nobody wants it.
    """

    begin_ps: Ints
    duration_ps: Ints
    own_ps: Ints
    by_category_ps: NDArray[np.float64]
    all_reduce_ps: NDArray[np.float64]
    cores: tuple[int, ...]
    numbers: Ints | None = None
    ops: OpSteps | None = None

    def __len__(self) -> int:
        return len(self.duration_ps)

    def select(self, these: Ints) -> HostSteps:
        """Some of these steps."""
        place = np.full(len(self), -1)
        place[these] = np.arange(len(these))
        return HostSteps(
            begin_ps=self.begin_ps[these],
            duration_ps=self.duration_ps[these],
            own_ps=self.own_ps[:, these],
            by_category_ps=self.by_category_ps[:, these],
            all_reduce_ps=self.all_reduce_ps[these],
            cores=self.cores,
            numbers=None if self.numbers is None else self.numbers[these],
            ops=None if self.ops is None else self.ops.moved(place),
        )


def core_steps(ops: CoreOps, markers: Events, groups: Ints, *, by_op: bool = False, touching: bool = True) -> CoreSteps:
    """Assigns a core's ops to its steps; XProf: GroupLine, ConvertTpuDeviceTraceXLineToStepEvents.

    An op belongs to the first step that it overlaps or touches.

    Args:
        ops: the core's.
        markers: its step markers, disjoint, in timeline order.
        groups: the step's number of each marker.
        by_op: whether the time of each op in each step is wanted.
        touching: True for XProf's markers: touching a step is enough to belong to it, and a step without ops does not
            count. False for periods between runs: these touch each other, and count without ops.
    """
    ends_ps = markers.end_ps if touching else markers.end_ps - 1
    marker = first_overlapping(ops.events.begin_ps, ops.events.end_ps, markers.begin_ps, ends_ps)
    in_step = marker >= 0
    inside = np.flatnonzero(in_step)
    self_ps = ops.self_ps
    if not in_step.all():  # as if there were no others
        self_ps = self_times_ps(ops.device_begin_ps[in_step], ops.device_duration_ps[in_step])
    # A number may return after another one; its markers are then one step, as long as the longest.
    numbers, longest, step_of = np.unique(groups, return_index=True, return_inverse=True)
    step, counted = step_of[marker[inside]], ops.counted[inside]
    cell = (step * _CATEGORIES + ops.category[inside])[counted]
    times_ps = np.bincount(cell, weights=self_ps[counted], minlength=len(numbers) * _CATEGORIES)
    table = times_ps.astype(np.float64, copy=False).reshape(len(numbers), _CATEGORIES)
    kept = (np.bincount(step, minlength=len(numbers)) > 0) | (not touching)
    begin_ps, duration_of_markers_ps = markers.device_span_ps()
    if len(numbers) < len(groups):
        by_length = np.lexsort((duration_of_markers_ps, step_of))
        longest = by_length[np.searchsorted(step_of[by_length], np.arange(len(numbers)), side="right") - 1]
    longest, place = longest[kept], np.cumsum(kept) - 1
    return CoreSteps(
        groups=numbers[kept],
        begin_ps=begin_ps[longest],
        duration_ps=duration_of_markers_ps[longest],
        by_category_ps=_settle_sparse_infeed(table[kept]),
        all_reduces=_all_reduces(ops, inside, step, place),
        ops=_op_steps(ops, inside[counted], place[step[counted]], self_ps[counted]) if by_op else None,
    )


def _op_steps(ops: CoreOps, rows: Ints, step: Ints, self_ps: Ints) -> OpSteps:
    """The time of each op in each step.

    Args:
        ops: the core's.
        rows: those in steps.
        step: of each of these: its index.
        self_ps: of each of these.
    """
    return add_up_steps([OpSteps(key=ops.keys[ops.of_event[rows]], step=step, self_ps=self_ps.astype(np.float64))])


def _all_reduces(ops: CoreOps, inside: Ints, step: Ints, place: Ints) -> Ints:
    """One row per occurrence: index of the step, id, duration.

    Args:
        ops: the core's.
        inside: those in steps.
        step: of each of these.
        place: of each step: its index.
    """
    if ops.all_reduce_id is None:
        return np.zeros((0, 3), dtype=np.int64)
    ids = ops.all_reduce_id[inside]
    known = ids >= 0
    return np.stack([place[step[known]], ids[known], ops.device_duration_ps[inside][known]], axis=1)


def periods(runs: Runs) -> Events:
    """The periods between starts of a function; pauses are left out."""
    steps = runs.steps()
    length_ps = runs.period_ps[steps]
    return Events(metadata_id=length_ps, begin_ps=runs.begin_ps[:-1][steps], duration_ps=length_ps)


def whole_steps(core: CoreLines, ops: Events, markers: Events, groups: Ints) -> tuple[Events, Ints]:
    """Leaves out stubs: markers without length, and a first or last one that the window cut.

    XProf counts stubs.

    Args:
        core: whose markers.
        ops: the core's.
        markers: disjoint, in timeline order.
        groups: shape as `markers`.
    """
    keep = markers.device_span_ps()[1] > 0
    if not len(keep):
        return markers, groups
    in_order = ops if is_ascending(ops.begin_ps) else ops.select(np.argsort(ops.begin_ps, kind="stable"))
    for last in (True, False):
        rows = np.flatnonzero(keep)
        if len(rows) > 1 and _is_cut(in_order, markers.select(rows), last=last):
            keep[rows[-1 if last else 0]] = False
    rows = np.flatnonzero(keep)
    if len(rows) == 1 and _is_cut_alone(core, ops, markers.select(rows)):
        keep[rows] = False
    return (markers, groups) if keep.all() else (markers.select(keep), groups[keep])


def _is_cut(ops: Events, markers: Events, *, last: bool) -> bool:
    """True if the window cut the last, or the first, of two markers or more.

    A cut step has fewer ops than any whole one. It is also less than half as long, or lacks the op that all whole
    ones end or begin with. All ops up to the window's edge are counted as its own.

    Args:
        ops: in the order of their starts.
        markers: disjoint, in timeline order.
        last: whether the last one is asked for.
    """
    first = np.searchsorted(ops.begin_ps, markers.begin_ps, side="left")
    end = np.searchsorted(ops.begin_ps, markers.end_ps, side="left")
    if last:
        edge, end[-1] = len(markers) - 1, len(ops)
    else:
        edge, first[0] = 0, 0
    count = end - first
    others = np.arange(len(markers) - 1) if last else np.arange(1, len(markers))
    if len(others) > 1:
        others = others[1:] if last else others[:-1]  # the one at the other end may be cut as well
    others = others[count[others] > 0]
    if not len(others) or count[edge] >= count[others].min():
        return False
    if not count[edge] or 2 * markers.duration_ps[edge] < markers.duration_ps[others].min():
        return True
    own, *kinds = ops.metadata_id[end[[edge, *others]] - 1 if last else first[[edge, *others]]].tolist()
    return len(set(kinds)) == 1 and own != kinds[0]


def _is_cut_alone(core: CoreLines, ops: Events, marker: Events) -> bool:
    """True if the window cut a core's only marker.

    The end of the step before, which has no marker because it began before the window, shows how a step ends.
    """
    begin_ps, end_ps = int(marker.begin_ps[0]), int(marker.end_ps[0])
    runs = core.modules
    earlier, own = runs.begin_ps < begin_ps, runs.begin_ps >= begin_ps
    if not earlier.any() or not own.any() or runs.metadata_id[earlier][-1] != runs.metadata_id[own][0]:
        return False
    before, within = ops.begin_ps < begin_ps, (ops.begin_ps >= begin_ps) & (ops.begin_ps < end_ps)
    return bool(before.any() and within.any()) and ops.metadata_id[before][-1] != ops.metadata_id[within][-1]


def _settle_sparse_infeed(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Splits infeed from a SparseCore V0 into waiting time and the work that mirrors its outfeed.

    XProf: ProfileTimeBreakdown::BreakdownSparseCoreV0Infeed.
    """
    infeed = table[:, Category.SPARSE_INFEED]
    if not infeed.any():
        return table
    transform = np.minimum(infeed, table[:, Category.SPARSE_OUTFEED])
    table[:, Category.SPARSE_INFEED_WAIT] += infeed - transform
    table[:, Category.OTHER] += transform
    table[:, Category.SPARSE_INFEED] = 0
    return table


class StepWaits(Struct, frozen=True, kw_only=True, eq=False):
    """Time that a core, or several, spent in steps in what is no op.

    XProf: xspace_to_event_time_fraction_analyzer.cc. It has the mean over the steps that have such an event, without
    the first and the last; here all whole steps count.

    Attributes:
        steps_ps: length of its steps.
        barrier_ps: time in them that it waits at barriers.
        debug_print_ps: time in them that it prints.
    """

    steps_ps: int
    barrier_ps: int
    debug_print_ps: int


def step_waits(core: CoreLines, steps: Events) -> StepWaits:
    """Adds up what a core does in its steps that is no op: it waits at barriers, or prints.

    Args:
        core: whose.
        steps: its markers, or periods between runs; disjoint, in timeline order. An event belongs to the first that it
            overlaps or touches.

    Raises:
        SourceError: `malformed`.
    """
    plane, lines = core.plane, core.plane.lines(TRACE_ME)
    names = {number: plane.event_name(number) for number in plane.kinds_on(lines)}

    def time_ps(words: str) -> int:
        kinds = [number for number, name in names.items() if words in name]
        if not kinds:  # as of nearly all cores
            return 0
        waits = plane.read_kinds(lines, kinds, STEP_STATS).within(core.span_ps)
        inside = first_overlapping(waits.begin_ps, waits.end_ps, steps.begin_ps, steps.end_ps) >= 0
        return int(waits.device_span_ps()[1][inside].sum())

    return StepWaits(
        steps_ps=int(steps.device_span_ps()[1].sum()),
        barrier_ps=time_ps(_BARRIER),
        debug_print_ps=time_ps(_DEBUG_PRINT),
    )


def host_steps(cores: Sequence[CoreSteps], step_of: Mapping[int, int] = _UNNUMBERED) -> HostSteps | None:
    """Combines the steps that all cores have; XProf: IntersectCombineStepEvents, StepEventsToPerCoreStepInfo.

    Cores without any step are ignored. None if there is no common step.

    Args:
        cores: of one host.
        step_of: by the numbers of steps the program's own numbers; empty if it has none.
    """
    groups = np.zeros(0, dtype=np.int64)
    for core in cores:
        # Like XProf's, an intersection that came out empty starts again.
        if len(core.groups):
            groups = np.intersect1d(groups, core.groups, assume_unique=True) if len(groups) else core.groups
    if not len(groups):
        return None
    # It may have started again at a later core; cores without all of its steps are left out.
    taking = [i for i, core in enumerate(cores) if np.isin(groups, core.groups).all()]
    where = {i: np.searchsorted(cores[i].groups, groups) for i in taking}
    own_ps = np.stack([cores[i].duration_ps[where[i]] for i in taking])
    begins_ps = np.stack([cores[i].begin_ps[where[i]] for i in taking])
    longest, steps = own_ps.argmax(axis=0), np.arange(len(groups))
    return HostSteps(
        begin_ps=begins_ps[longest, steps],
        duration_ps=own_ps[longest, steps],
        own_ps=own_ps,
        by_category_ps=np.stack([cores[i].by_category_ps[where[i]] for i in taking]),
        all_reduce_ps=_all_reduce_ps([(cores[i], where[i]) for i in taking], len(groups)),
        cores=tuple(taking),
        numbers=np.array([step_of[group] for group in groups.tolist()]) if step_of else None,
        ops=_ops_of_all([(cores[i], where[i]) for i in taking]),
    )


def _ops_of_all(cores: Iterable[tuple[CoreSteps, Ints]]) -> OpSteps | None:
    """Time of each op in the steps of a host; None if not asked for."""
    parts: list[OpSteps] = []
    for core, where in cores:
        if core.ops is None:
            return None
        place = np.full(len(core.groups), -1, dtype=np.int64)
        place[where] = np.arange(len(where))
        parts.append(core.ops.moved(place))
    return add_up_steps(parts)


def _all_reduce_ps(cores: Iterable[tuple[CoreSteps, Ints]], steps: int) -> NDArray[np.float64]:
    """Per step, the largest sum over a core's all-reduces, computing and waiting for other cores alike.

    XProf: ComputePerStepAllReduceBreakdownAcrossCores, compute and sync together.
    """
    most = np.zeros(steps)
    for core, where in cores:
        totals = np.bincount(core.all_reduces[:, 0], weights=core.all_reduces[:, 2], minlength=len(core.groups))
        most = np.maximum(most, totals[where])
    return most


def infeed_ratios(steps: HostSteps) -> NDArray[np.float64]:
    """Share of each step that each core spent in infeed, shape (cores, steps).

    The denominator is the step's longest marker on the host, not the core's own.
    XProf: ComputeTpuPerStepDataAcrossCores.
    """
    infeed_ps = steps.by_category_ps[:, :, Category.INFEED]
    return np.divide(infeed_ps, steps.duration_ps, out=np.zeros_like(infeed_ps), where=steps.duration_ps > 0)


def step_parts_s(hosts: Sequence[HostSteps]) -> dict[str, float]:
    """Splits an average step's time into parts, in seconds; keys are STEP_PARTS.

    Args:
        hosts: the same steps of each host.
    """
    parts = parts_of_steps_ps(hosts)
    return {name: float(parts[name].mean()) / PS_PER_S for name in STEP_PARTS}


def parts_of_steps_ps(hosts: Sequence[HostSteps]) -> dict[str, NDArray[np.float64]]:
    """Splits the time of each step into parts; keys are STEP_PARTS, and "compute" as XProf has it.

    Infeed, outfeed, host transfer and idle as XProf's step breakdown has them (ComputeTpuPerStepDataAcrossCores), so
    they come from different cores and need not add up to the step; high and low FLOPs compute are means over cores.

    Args:
        hosts: the same steps of each host.
    """
    table = np.concatenate([host.by_category_ps for host in hosts])
    length_ps = np.concatenate([np.broadcast_to(host.duration_ps, host.own_ps.shape) for host in hosts])

    def of(category: Category) -> NDArray[np.float64]:
        return table[:, :, category]

    host_ps, infeed_ps, outfeed_ps = of(Category.HOST_TRANSFER), of(Category.INFEED), of(Category.OUTFEED)
    sparse_wait_ps, high_ps = of(Category.SPARSE_INFEED_WAIT), of(Category.HIGH_FLOPS)
    idle_ps = length_ps - table.sum(axis=2)
    compute_ps = (length_ps - infeed_ps - outfeed_ps - host_ps - idle_ps - sparse_wait_ps).min(axis=0)
    known_ps = compute_ps + sparse_wait_ps.max(axis=0) + infeed_ps.max(axis=0) + outfeed_ps.mean(axis=0)
    by_id_ps = np.max([host.all_reduce_ps for host in hosts], axis=0)
    low_ps = of(Category.OTHER) + of(Category.SPARSE_OUTFEED)
    return {
        "high_flops_compute": high_ps.mean(axis=0),
        "low_flops_compute": low_ps.mean(axis=0),
        "async_wait": of(Category.ASYNC_WAIT).mean(axis=0),
        "infeed": infeed_ps.max(axis=0),
        "outfeed": outfeed_ps.mean(axis=0),
        "collective": np.maximum(of(Category.COLLECTIVE).max(axis=0), by_id_ps),
        "host_transfer": host_ps.max(axis=0),
        "idle": np.maximum(length_ps.min(axis=0) - known_ps, 0),
        "compute": compute_ps,
    }


def own_work_s(hosts: Sequence[HostSteps]) -> float:
    """Time of an average step that the core with most work spends in ops without waiting, in seconds.

    Outfeed and transfers to and from the host count: while a worker waits for its own host, others wait for it. Infeed
    does not, although they wait then, too: that is no work, and has a figure of its own.

    Args:
        hosts: the same steps of each host.
    """
    table = np.concatenate([host.by_category_ps for host in hosts])
    work_ps = np.delete(table, NOT_OWN_WORK, axis=2).sum(axis=2)
    return float(work_ps.max(axis=0).mean()) / PS_PER_S


def mean_step(cores: Mapping[int, CoreSteps]) -> HostSteps:
    """One step with each core's average length and times; for cores whose steps are not matched one by one."""
    lengths_ps = np.array([[round(core.duration_ps.mean())] for core in cores.values()], dtype=np.int64)
    return HostSteps(
        begin_ps=np.zeros(1, dtype=np.int64),
        duration_ps=lengths_ps.max(axis=0),
        own_ps=lengths_ps,
        by_category_ps=np.stack([core.by_category_ps.mean(axis=0, keepdims=True) for core in cores.values()]),
        all_reduce_ps=np.zeros(1),
        cores=tuple(cores),
    )


def align_hosts(hosts: Sequence[HostSteps]) -> list[HostSteps]:
    """The steps that all hosts have: by the program's own numbers, which XProf does not look at.

    Where a host has none, each host's are moved to where they overlap the shortest trace most; XProf: StepIntersection.
    If a host has no steps, there are none in common.
    """
    numbers = [steps.numbers for steps in hosts if steps.numbers is not None]
    if len(numbers) == len(hosts):
        common = reduce(np.intersect1d, numbers)
        places = [np.argsort(own)[np.searchsorted(np.sort(own), common)] for own in numbers]
        return [steps.select(own) for steps, own in zip(hosts, places, strict=True)]
    spans = [
        (steps.begin_ps.min(), (steps.begin_ps + steps.duration_ps).max()) if len(steps) else (0, 0) for steps in hosts
    ]
    lengths = [int(end - begin) for begin, end in spans]
    chief = lengths.index(min(lengths))
    shifts = [0 if i == chief else _best_shift(hosts[i], hosts[chief]) for i in range(len(hosts))]
    # In steps of the chief: host i's step j is the chief's step j + shift.
    first = max(max(shift, 0) for shift in shifts)
    last = min(min(len(hosts[i]) + shifts[i], len(hosts[chief])) for i in range(len(hosts)))
    count = max(last - first, 0)
    return [steps.select(np.arange(count) + first - shift) for steps, shift in zip(hosts, shifts, strict=True)]


def _best_shift(other: HostSteps, chief: HostSteps) -> int:
    """By how many steps to move a host's so that they match the chief's; XProf: FindStepsAlignment."""
    overlaps: dict[int, int] = {}
    mine, theirs = 0, 0
    spans = [
        list(zip(host.begin_ps.tolist(), (host.begin_ps + host.duration_ps).tolist(), strict=True))
        for host in (other, chief)
    ]
    while mine < len(spans[0]) and theirs < len(spans[1]):
        (my_begin, my_end), (their_begin, their_end) = spans[0][mine], spans[1][theirs]
        shift = theirs - mine
        overlaps[shift] = overlaps.get(shift, 0) + max(min(my_end, their_end) - max(my_begin, their_begin), 0)
        if my_end <= their_end:
            mine += 1
        if their_end <= my_end:
            theirs += 1
    # The largest overlap; of equal ones the shift that XProf tries first: 0, 1, ..., -1, -2, ...
    candidates = [*range(len(chief)), *range(-1, -len(other), -1)]
    return max(candidates, key=lambda shift: overlaps.get(shift, 0), default=0)

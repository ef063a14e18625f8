"""The section steps (XProf: pod viewer): parts of each step on each core, and the core that was last."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from statistics import fmean

from msgspec import Struct

from tpumon.model import StepTimes
from tpumon.report.blocks import Block, Facts, HeatMap, Lines, ReportColumn, StackedGraph, StackedPart, Table
from tpumon.report.formats import count_text, counted, part_label, time_text
from tpumon.report.profiles import Capture, Choice
from tpumon.xspace.profile.step_times import CoreTimes

_MOST_CORES = 64  # with a row each on pages; where there are more, workers have one
_MOST_LISTED = 100  # steps
_SHOWN_OF_MANY = ("slowest", "median", "fastest")  # cores of a step
_STANDS_OUT = 0.01  # of the step: cores that differ by less are last together
_SOURCES = {
    "steps": "step markers of the devices",
    "modules": "runs of the program that takes most time",
    "host": "a function that the host runs again and again",
    "server": "the server",
}


class StepPercentiles(Struct, frozen=True, kw_only=True):
    """Of the step times, in seconds."""

    p50: float
    p90: float
    p95: float
    p99: float


class StepRow(Struct, frozen=True, kw_only=True):
    """One step.

    Attributes:
        step: its position in the capture, from 0.
        duration_s: on the slowest core.
        last: the core that the others waited for; None where no core stands out.
        skew_s: difference between the slowest and the fastest core in time outside of collectives.
        parts_s: the mean over cores.
    """

    step: int
    duration_s: float
    last: str | None
    skew_s: float
    parts_s: Mapping[str, float]


class CoreRow(Struct, frozen=True, kw_only=True):
    """One core; on pages one worker, too, as the mean over its cores.

    Attributes:
        name: of the worker and the core.
        worker: of the worker.
        step_time_s: mean.
        min_s, max_s: of its steps.
        times_last: number of steps in which the others waited for it.
        parts_s: the mean over steps.
        durations_s: of each step.
        step_parts_s: parts of each step.
    """

    name: str
    worker: str
    step_time_s: float
    min_s: float
    max_s: float
    times_last: int
    parts_s: Mapping[str, float]
    durations_s: tuple[float, ...]
    step_parts_s: Mapping[str, tuple[float, ...]]


class CoreStep(Struct, frozen=True, kw_only=True):
    """One step of one core; `place` is its place among the cores where not all are shown."""

    step: int
    place: str
    core: str
    duration_s: float
    parts_s: Mapping[str, float]


class Steps(Struct, frozen=True, kw_only=True):
    """All steps of a capture.

    Attributes:
        source: the events that count as steps; None if there are none.
        name: of the function or annotation that is the step.
        reason: why there are none.
        matched: whether a step has the same number on all cores. Otherwise nobody can be last in one.
        step_time_s: over all steps.
        percentiles: over all steps.
        durations_s: of each step, on the slowest core.
        steps: one by one; none unless they are matched.
        cores: each core's.
        left_out: steps that are not listed, because there are too many.
    """

    source: str | None
    name: str | None
    reason: str | None
    matched: bool
    step_time_s: StepTimes | None
    percentiles: StepPercentiles | None
    durations_s: tuple[float, ...]
    steps: tuple[StepRow, ...]
    cores: tuple[CoreRow, ...]
    left_out: int


def build(capture: Capture, _choice: Choice) -> Steps:
    figures, table = capture.figures.figures, capture.step_table()
    names = [_core_name(capture, core) for core in table.cores]
    steps = tuple(
        _step_row(i, duration_s, table.cores, names)
        for i, duration_s in enumerate(table.durations_s if table.matched else ())
    )
    lasts = Counter(step.last for step in steps)
    cores = tuple(
        _core_row(name, capture.hosts[core.host].name, core, lasts[name])
        for name, core in zip(names, table.cores, strict=True)
    )
    return Steps(
        source=table.source,
        name=figures.step_name,
        reason=figures.absent.get("step_time_s"),
        matched=table.matched,
        step_time_s=figures.step_time_s,
        percentiles=_percentiles(figures.step_durations_s),
        durations_s=table.durations_s,
        steps=steps,
        cores=cores,
        left_out=table.left_out,
    )


def _percentiles(durations_s: Sequence[float]) -> StepPercentiles | None:
    """Percentiles by the nearest rank; None of nothing."""
    ordered = sorted(durations_s)
    if not ordered:
        return None

    def rank(share: float) -> float:
        return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]

    return StepPercentiles(p50=rank(0.5), p90=rank(0.9), p95=rank(0.95), p99=rank(0.99))


def _core_name(capture: Capture, core: CoreTimes) -> str:
    own = f"chip {core.chip}" + (f" core {core.core}" if core.core else "")
    return own if len(capture.hosts) == 1 else f"{capture.hosts[core.host].name} {own}"


def _step_row(i: int, duration_s: float, cores: Sequence[CoreTimes], names: Sequence[str]) -> StepRow:
    """A step; cores wait for each other in collectives, so that the time outside of them tells who was last."""
    outside_s = [core.durations_s[i] - core.parts_s["collective"][i] for core in cores]
    most_s = max(outside_s)
    skew_s = most_s - min(outside_s)
    stands_out = skew_s > _STANDS_OUT * max(core.durations_s[i] for core in cores)
    return StepRow(
        step=i,
        duration_s=duration_s,
        last=names[outside_s.index(most_s)] if stands_out else None,
        skew_s=skew_s,
        parts_s=_mean_parts([{name: times[i] for name, times in core.parts_s.items()} for core in cores]),
    )


def _mean_parts(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(each[name] for each in parts) / len(parts) for name in (parts[0] if parts else ())}


def _mean_or_0(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def _core_row(name: str, worker: str, core: CoreTimes, times_last: int) -> CoreRow:
    return CoreRow(
        name=name,
        worker=worker,
        step_time_s=_mean_or_0(core.durations_s),
        min_s=min(core.durations_s, default=0.0),
        max_s=max(core.durations_s, default=0.0),
        times_last=times_last,
        parts_s={part: _mean_or_0(times_s) for part, times_s in core.parts_s.items()},
        durations_s=core.durations_s,
        step_parts_s=core.parts_s,
    )


def _worker_rows(cores: Sequence[CoreRow]) -> tuple[CoreRow, ...]:
    """The rows of the cores of each worker as one."""
    by_worker: dict[str, list[CoreRow]] = {}
    for row in cores:
        by_worker.setdefault(row.worker, []).append(row)
    return tuple(
        CoreRow(
            name=worker,
            worker=worker,
            step_time_s=fmean([row.step_time_s for row in own]),
            min_s=min(row.min_s for row in own),
            max_s=max(row.max_s for row in own),
            times_last=sum(row.times_last for row in own),
            parts_s=_mean_parts([row.parts_s for row in own]),
            durations_s=tuple(map(max, zip(*(row.durations_s for row in own), strict=False))),
            step_parts_s={
                name: tuple(map(fmean, zip(*(row.step_parts_s[name] for row in own), strict=False)))
                for name in own[0].step_parts_s
            },
        )
        for worker, own in by_worker.items()
    )


def blocks(steps: Steps) -> list[Block]:
    """The section as facts, a graph, a heat map and tables."""
    if steps.step_time_s is None:
        return [Lines(title="Steps", lines=(f"no step time: {steps.reason or 'no step in the trace'}",))]
    made: list[Block] = [Facts(title="Step time", rows=step_facts(steps))]
    if graph := step_graph(steps):
        made.append(graph)
    rows, place = (_worker_rows(steps.cores), "worker") if len(steps.cores) > _MOST_CORES else (steps.cores, "core")
    if len(rows) > 1 and max(len(core.durations_s) for core in rows) > 1:
        made.append(_heat_map(rows, place))
    if rows:
        made.append(_core_table(rows, place, matched=steps.matched))
    if steps.steps:
        made.append(_step_list(steps))
    if rows and (len(steps.cores) > 1 or not steps.matched):
        if len(rows) > 1 and steps.matched:
            made.append(_longest_step(steps, rows, place))
        made.append(_core_step_list(steps))
    return made


def step_facts(steps: Steps) -> list[tuple[str, str]]:
    """Step times in words; none without steps."""
    times, ranks = steps.step_time_s, steps.percentiles
    if times is None or ranks is None:
        return []
    source = _SOURCES.get(steps.source or "", "n/a") + (f" ({steps.name})" if steps.name else "")
    rows = [
        ("Average", f"{time_text(times.avg)} of {counted(times.count, 'step')}"),
        ("Minimum, maximum", f"{time_text(times.min)}, {time_text(times.max)}"),
        ("Standard deviation", time_text(times.stddev)),
        ("Percentiles 50, 90, 95, 99", ", ".join(map(time_text, (ranks.p50, ranks.p90, ranks.p95, ranks.p99)))),
        ("Steps are", source),
    ]
    if steps.steps:
        rows.append(("Skew between cores (mean)", time_text(fmean([step.skew_s for step in steps.steps]))))
        lasts = Counter(step.last for step in steps.steps if step.last is not None)
        for name, count in lasts.most_common(1):
            rows.append(("Most often last", f"{name}, in {count} of {counted(len(steps.steps), 'step')}"))
    return rows


def step_graph(steps: Steps) -> StackedGraph | None:
    """The parts of each step, or its time where there are no parts."""
    if len(steps.steps) > 1:
        names = list(steps.steps[0].parts_s)
        parts = [StackedPart(part_label(name), [step.parts_s[name] for step in steps.steps], name) for name in names]
        parts = [part for part in parts if any(part.values)]
    else:
        parts = [StackedPart("step time", steps.durations_s)] if len(steps.durations_s) > 1 else []
    if not parts:
        return None
    title = "Time of each step" + (", mean over cores" if len(parts) > 1 else "")
    return StackedGraph(title=title, number=time_text, places="step", parts=parts)


def _heat_map(rows: Sequence[CoreRow], place: str) -> HeatMap:
    low, high = min(row.min_s for row in rows), max(row.max_s for row in rows)
    return HeatMap(
        title=f"Step time by {place}, {time_text(low)} to {time_text(high)}",
        rows=[(row.name, row.durations_s) for row in rows],
        places="step",
    )


_PART_TITLES = {
    "high_flops_compute": ("high FLOPS", 0),
    "low_flops_compute": ("other ops", 0),
    "async_wait": ("copies", 2),
    "infeed": ("infeed", 1),
    "outfeed": ("outfeed", 5),
    "collective": ("collectives", 0),
    "host_transfer": ("host", 4),
    "other_wait": ("other waits", 3),
    "idle": ("idle", 0),
}
"""Title and rank of the column of each part of a core's step."""


def _part_columns(rows: Sequence[CoreRow | StepRow | CoreStep]) -> list[ReportColumn]:
    """A column for each part that takes any time."""

    def column(name: str) -> ReportColumn:
        title, rank = _PART_TITLES[name]
        return ReportColumn(title, lambda row: row.parts_s[name], time_text, rank=rank)

    return [column(name) for name in rows[0].parts_s if any(row.parts_s[name] > 0 for row in rows)]


def _core_table(rows: Sequence[CoreRow], place: str, *, matched: bool) -> Table:
    return Table(
        title=f"By {place}",
        columns=(
            ReportColumn(place, lambda core: core.name, wide=True),
            ReportColumn("step", lambda core: core.step_time_s, time_text),
            ReportColumn("min", lambda core: core.min_s, time_text, rank=3),
            ReportColumn("max", lambda core: core.max_s, time_text, rank=2),
            ReportColumn("last", lambda core: core.times_last if matched else None, count_text),
            *_part_columns(rows),
        ),
        items=rows,
        note="" if matched else "runs on one core are not matched with those on another: nobody can be last",
    )


def _step_list(steps: Steps) -> Table:
    shown = steps.steps[:_MOST_LISTED]
    more = len(steps.steps) - len(shown) + steps.left_out
    return Table(
        title="By step, mean over cores",
        columns=(
            ReportColumn("step", lambda step: step.step, count_text),
            ReportColumn("time", lambda step: step.duration_s, time_text),
            ReportColumn("skew", lambda step: step.skew_s, time_text),
            ReportColumn("last", lambda step: step.last or "-", wide=True),
            *_part_columns(steps.steps),
        ),
        items=shown,
        note=f"{more} more steps" if more else "",
    )


def _longest_step(steps: Steps, rows: Sequence[CoreRow], place: str) -> StackedGraph:
    """The parts of the longest step on each core, as the pod viewer draws them."""
    longest = max(steps.steps, key=lambda step: step.duration_s).step
    parts = [
        StackedPart(part_label(name), [row.step_parts_s[name][longest] for row in rows], name)
        for name in rows[0].step_parts_s
    ]
    title = f"Step {longest}, the longest, by {place}"
    return StackedGraph(title=title, number=time_text, places=place, parts=[part for part in parts if any(part.values)])


def _core_step_list(steps: Steps) -> Table:
    """Steps of cores with their parts: where there are too many, the slowest, the median and the fastest of each."""
    every = sum(len(core.durations_s) for core in steps.cores)
    is_short = steps.matched and every > _MOST_LISTED and len(steps.cores) > len(_SHOWN_OF_MANY)
    most_steps = _MOST_LISTED // len(_SHOWN_OF_MANY) if is_short else _MOST_LISTED
    rows = [
        CoreStep(
            step=i,
            place=place,
            core=core.name,
            duration_s=core.durations_s[i],
            parts_s={name: times_s[i] for name, times_s in core.step_parts_s.items()},
        )
        for i in range(min(max(len(core.durations_s) for core in steps.cores), most_steps))
        for place, core in (_few(steps.cores, i) if is_short else zip(repeat(""), steps.cores))
        if i < len(core.durations_s)
    ][:_MOST_LISTED]
    of = f"{', '.join(_SHOWN_OF_MANY)} of {len(steps.cores)} cores by time outside of collectives; " if is_short else ""
    return Table(
        title="By step and core",
        columns=(
            ReportColumn("step", lambda row: row.step, count_text),
            *([ReportColumn("of all", lambda row: row.place)] if is_short else []),
            ReportColumn("core", lambda row: row.core, wide=True),
            ReportColumn("time", lambda row: row.duration_s, time_text),
            *_part_columns(rows),
        ),
        items=rows,
        note=f"{of}{len(rows)} of {every} are shown; JSON has all" if every > len(rows) else "",
    )


def _few(cores: Sequence[CoreRow], step: int) -> Iterator[tuple[str, CoreRow]]:
    """The core that is slowest in a step, the median and the fastest: by its time outside of collectives, as `last`."""
    ordered = sorted(
        cores,
        key=lambda core: (core.durations_s[step] - core.step_parts_s["collective"][step], core.durations_s[step]),
    )
    return zip(_SHOWN_OF_MANY, (ordered[-1], ordered[len(ordered) // 2], ordered[0]), strict=True)

"""The section steps (XProf: pod viewer): what each step was made of on each core, and which core was last."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from tpumon.model import StepTimes
from tpumon.report.blocks import Block, Cell, Column, Facts, Graph, HeatMap, Lines, Series, Table
from tpumon.report.capture import Capture, Choice
from tpumon.report.words import count_cell, part_column, part_word, time_cell, time_word

if TYPE_CHECKING:
    from tpumon.xspace.profile.step_times import CoreTimes

_MOST_ROWS = 64  # cores, or workers where there are more cores
_WORTH_NAMING = 0.01  # collectives: of the step
_SOURCES = {
    "steps": "step markers of the devices",
    "modules": "runs of the program that takes most time",
    "host": "the host's threads",
    "server": "the server",
}


class Percentiles(Struct, frozen=True, kw_only=True):
    """Of the step times, in seconds."""

    p50: float
    p90: float
    p95: float
    p99: float


class Step(Struct, frozen=True, kw_only=True):
    """One step.

    Attributes:
        step: its position in the capture, from 0.
        duration_s: on the slowest core.
        last: the core that the others waited for; None where no core stands out.
        skew_s: how much more time the slowest core spent outside of collectives than the fastest.
        parts_s: the mean over cores.
    """

    step: int
    duration_s: float
    last: str | None
    skew_s: float
    parts_s: Mapping[str, float]


class Core(Struct, frozen=True, kw_only=True):
    """One core, or one worker as the mean over its cores.

    Attributes:
        name: of the worker and the core.
        step_time_s: mean.
        min_s, max_s: of its steps.
        times_last: in how many steps the others waited for it.
        parts_s: the mean over steps.
        durations_s: of each step.
    """

    name: str
    step_time_s: float
    min_s: float
    max_s: float
    times_last: int
    parts_s: Mapping[str, float]
    durations_s: tuple[float, ...]


class Steps(Struct, frozen=True, kw_only=True):
    """All steps of a capture.

    Attributes:
        source: what counts as a step; None if nothing does.
        name: of the function or annotation that is the step.
        reason: why there are none.
        matched: whether a step has the same number on all cores. Otherwise nobody can be last in one.
        step_time_s: over all steps.
        percentiles: over all steps.
        durations_s: of each step, on the slowest core.
        steps: one by one; none unless they are matched.
        cores: each core's, or each worker's where there are very many cores.
        per_worker: whether `cores` are workers.
        left_out: steps that are not listed, because there are too many.
    """

    source: str | None
    name: str | None
    reason: str | None
    matched: bool
    step_time_s: StepTimes | None
    percentiles: Percentiles | None
    durations_s: tuple[float, ...]
    steps: tuple[Step, ...]
    cores: tuple[Core, ...]
    per_worker: bool
    left_out: int


def build(capture: Capture, _choice: Choice) -> Steps:
    """The steps of a capture."""
    from tpumon.xspace.profile.step_times import step_table

    figures = capture.figures.figures
    table = step_table([host.profile.trace for host in capture.hosts], figures.step_durations_s)
    names = [_name(capture, core) for core in table.cores]
    last = _last(table.cores) if table.matched else []
    rows, per_worker = _cores(capture, table.cores, names, last)
    steps = tuple(
        Step(
            step=i,
            duration_s=duration_s,
            last=None if last[i] is None else names[last[i] or 0],
            skew_s=_skew_s(table.cores, i),
            parts_s=_mean_parts([{name: times[i] for name, times in core.parts_s.items()} for core in table.cores]),
        )
        for i, duration_s in enumerate(table.durations_s if table.matched else ())
    )
    return Steps(
        source=table.source,
        name=figures.step_name,
        reason=figures.absent.get("step_time_s"),
        matched=table.matched,
        step_time_s=figures.step_time_s,
        percentiles=percentiles(figures.step_durations_s),
        durations_s=table.durations_s,
        steps=steps,
        cores=rows,
        per_worker=per_worker,
        left_out=table.left_out,
    )


def percentiles(durations_s: Sequence[float]) -> Percentiles | None:
    """Of some durations, by the nearest rank; None of none."""
    ordered = sorted(durations_s)
    if not ordered:
        return None

    def rank(share: float) -> float:
        return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]

    return Percentiles(p50=rank(0.5), p90=rank(0.9), p95=rank(0.95), p99=rank(0.99))


def _name(capture: Capture, core: CoreTimes) -> str:
    own = f"chip {core.chip}" + (f" core {core.core}" if core.core else "")
    return own if len(capture.hosts) == 1 else f"{capture.hosts[core.host].name} {own}"


def _outside_s(core: CoreTimes, step: int) -> float:
    """Time of a step outside of collectives, where cores wait for each other."""
    return core.durations_s[step] - core.parts_s["collective"][step]


def _skew_s(cores: Sequence[CoreTimes], step: int) -> float:
    outside_s = [_outside_s(core, step) for core in cores]
    return max(outside_s) - min(outside_s) if outside_s else 0.0


def _last(cores: Sequence[CoreTimes]) -> list[int | None]:
    """For each step the core that spent most time outside of collectives; None where they differ by less than 1 %."""
    last: list[int | None] = []
    for step in range(len(cores[0].durations_s) if cores else 0):
        outside_s = [_outside_s(core, step) for core in cores]
        most_s = max(outside_s)
        stands_out = most_s - min(outside_s) > _WORTH_NAMING * max(core.durations_s[step] for core in cores)
        last.append(outside_s.index(most_s) if stands_out else None)
    return last


def _mean_parts(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(each[name] for each in parts) / len(parts) for name in (parts[0] if parts else ())}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _cores(
    capture: Capture, cores: Sequence[CoreTimes], names: Sequence[str], last: Sequence[int | None]
) -> tuple[tuple[Core, ...], bool]:
    times_last = Counter(last)
    rows = [
        Core(
            name=name,
            step_time_s=_mean(core.durations_s),
            min_s=min(core.durations_s, default=0.0),
            max_s=max(core.durations_s, default=0.0),
            times_last=times_last[i],
            parts_s={part: _mean(times_s) for part, times_s in core.parts_s.items()},
            durations_s=core.durations_s,
        )
        for i, (name, core) in enumerate(zip(names, cores, strict=True))
    ]
    if len(rows) <= _MOST_ROWS:
        return tuple(rows), False
    by_host: dict[int, list[Core]] = {}
    for core, row in zip(cores, rows, strict=True):
        by_host.setdefault(core.host, []).append(row)
    workers = [
        Core(
            name=capture.hosts[host].name,
            step_time_s=_mean([row.step_time_s for row in own]),
            min_s=min(row.min_s for row in own),
            max_s=max(row.max_s for row in own),
            times_last=sum(row.times_last for row in own),
            parts_s=_mean_parts([row.parts_s for row in own]),
            durations_s=tuple(map(max, zip(*(row.durations_s for row in own), strict=False))),
        )
        for host, own in by_host.items()
    ]
    return tuple(workers), True


def blocks(steps: Steps) -> tuple[Block, ...]:
    """The section as facts, a graph, a heat map and tables."""
    if steps.step_time_s is None:
        return (Lines(title="Steps", lines=(f"no step time: {steps.reason or 'no step in the trace'}",)),)
    made: list[Block] = [Facts(title="Step time", rows=tuple(step_facts(steps)))]
    if graph := step_graph(steps):
        made.append(graph)
    if len(steps.cores) > 1 and max(len(core.durations_s) for core in steps.cores) > 1:
        made.append(_heat_map(steps))
    if steps.cores:
        made.append(_core_table(steps))
    if steps.steps:
        made.append(_step_list(steps))
    return tuple(made)


def step_facts(steps: Steps) -> list[tuple[str, str]]:
    """What there is to say of all steps."""
    times, ranks = steps.step_time_s, steps.percentiles
    if times is None or ranks is None:
        return []
    source = _SOURCES.get(steps.source or "", "n/a") + (f" ({steps.name})" if steps.name else "")
    rows = [
        ("Average", f"{time_word(times.avg)} of {times.count} steps"),
        ("Minimum, maximum", f"{time_word(times.min)}, {time_word(times.max)}"),
        ("Standard deviation", time_word(times.stddev)),
        ("Percentiles 50, 90, 95, 99", ", ".join(time_word(s) for s in (ranks.p50, ranks.p90, ranks.p95, ranks.p99))),
        ("Steps are", source),
    ]
    if steps.steps:
        rows.append(("Skew between cores (mean)", time_word(_mean([step.skew_s for step in steps.steps]))))
        lasts = Counter(step.last for step in steps.steps if step.last is not None)
        for name, count in lasts.most_common(1):
            rows.append(("Most often last", f"{name}, in {count} of {len(steps.steps)} steps"))
    return rows


def step_graph(steps: Steps) -> Graph | None:
    """The parts of each step, or its time where there are no parts."""
    if len(steps.steps) > 1:
        names = list(steps.steps[0].parts_s)
        series = [Series(part_word(name), [step.parts_s[name] for step in steps.steps], name) for name in names]
        series = [each for each in series if any(each.values)]
    else:
        series = [Series("step time", steps.durations_s)] if len(steps.durations_s) > 1 else []
    if not series:
        return None
    title = "Time of each step" + (", mean over cores" if len(series) > 1 else "")
    return Graph(title=title, unit="seconds", places="step", series=tuple(series))


def _heat_map(steps: Steps) -> HeatMap:
    low = min(core.min_s for core in steps.cores)
    high = max(core.max_s for core in steps.cores)
    return HeatMap(
        title=f"Step time by {'worker' if steps.per_worker else 'core'}, {time_word(low)} to {time_word(high)}",
        rows=tuple((core.name, core.durations_s) for core in steps.cores),
        places="step",
    )


def _parts_shown(rows: Sequence[Mapping[str, float]]) -> list[str]:
    return [name for name in (rows[0] if rows else ()) if any(row[name] > 0 for row in rows)]


def _core_table(steps: Steps) -> Table:
    parts = _parts_shown([core.parts_s for core in steps.cores])
    return Table(
        title="By worker" if steps.per_worker else "By core",
        columns=(
            Column("worker" if steps.per_worker else "core", text=True, wide=True),
            Column("step"),
            Column("min", rank=3),
            Column("max", rank=2),
            Column("last"),
            *map(part_column, parts),
        ),
        rows=tuple(
            (
                Cell(core.name),
                *map(time_cell, (core.step_time_s, core.min_s, core.max_s)),
                count_cell(core.times_last if steps.matched else None),
                *(time_cell(core.parts_s[name]) for name in parts),
            )
            for core in steps.cores
        ),
        note="" if steps.matched else "runs on one core are not matched with those on another: nobody can be last",
    )


_MOST_LISTED = 100


def _step_list(steps: Steps) -> Table:
    parts = _parts_shown([step.parts_s for step in steps.steps])
    shown = steps.steps[:_MOST_LISTED]
    more = len(steps.steps) - len(shown) + steps.left_out
    return Table(
        title="By step, mean over cores",
        columns=(
            *map(Column, ("step", "time", "skew")),
            Column("last", text=True, wide=True),
            *map(part_column, parts),
        ),
        rows=tuple(
            (
                count_cell(step.step),
                time_cell(step.duration_s),
                time_cell(step.skew_s),
                Cell(step.last or "-"),
                *(time_cell(step.parts_s[name]) for name in parts),
            )
            for step in shown
        ),
        note=f"{more} more steps" if more else "",
    )

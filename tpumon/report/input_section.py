"""The section input (XProf: input pipeline analyzer): waits of the devices, and the host's work for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from tpumon.model import Spread
from tpumon.report.blocks import Block, Lines, ReportColumn, Table
from tpumon.report.formats import count_text, percent_text, time_text
from tpumon.report.profiles import Capture, Choice
from tpumon.xspace.profile.host_input import Stage
from tpumon.xspace.profile.step_times import StepTable

Verdict = Literal["highly", "moderately", "not"]

_HIGHLY, _MODERATELY = 0.20, 0.05  # of the step; XProf: InputAnalysis
_MOST_LISTED = 100

CATEGORIES: Mapping[str, str] = {
    "enqueue": "Sending data to the device",
    "demanded_file_read": "Reading files on demand",
    "advanced_file_read": "Reading files in advance",
    "preprocessing": "Preprocessing",
    "unclassified": "Not classified",
}
"""XProf's five categories of input work on the host."""

_ADVICE = {
    "enqueue": "send fewer, larger chunks",
    "demanded_file_read": "read ahead: prefetch, interleave",
    "advanced_file_read": "read more at once: prefetch, cycle_length, buffer_size",
    "preprocessing": "map with num_parallel_calls, or preprocess beforehand",
    "unclassified": "",
}


class InputStep(Struct, frozen=True, kw_only=True):
    """One step across cores, as XProf has it: infeed, outfeed, idle and compute are of different cores.

    Attributes:
        step: its position in the capture.
        duration_s: of the slowest core.
        compute_s, infeed_s, outfeed_s, idle_s, host_transfer_s: its parts.
        infeed_ratio: over cores.
    """

    step: int
    duration_s: float
    compute_s: float
    infeed_s: float
    outfeed_s: float
    idle_s: float
    host_transfer_s: float
    infeed_ratio: Spread


class StageRow(Stage, frozen=True, kw_only=True, eq=False):
    """One stage of the input pipeline, on all hosts together.

    Attributes:
        time_ratio, self_time_ratio: of the self time of all stages.
    """

    time_ratio: float
    self_time_ratio: float


class Input(Struct, frozen=True, kw_only=True):
    """The devices' waits for input, and the host's work for it.

    Attributes:
        infeed_ratio: share of a step spent in infeed; None where the program has no infeed op.
        reason: why it is None.
        sentence: the same in words.
        waiting_ratio: share that XProf's sentence names as waiting for input. It divides by compute, infeed, outfeed,
            idle and all-reduce, the last of which is in compute, too.
        verdict: XProf's: highly, moderately or not input-bound; None without steps.
        steps: one by one.
        categories_s: time of the host's input work by category, scaled as XProf scales it; none where the trace has
            none.
        stages: longest first.
    """

    infeed_ratio: Spread | None
    reason: str | None
    sentence: str
    waiting_ratio: float | None
    verdict: Verdict | None
    steps: tuple[InputStep, ...]
    categories_s: Mapping[str, float]
    stages: tuple[StageRow, ...]


def build(capture: Capture, choice: Choice) -> Input:
    """The device's side from its steps, the host's from its threads."""
    figures, table = capture.figures.figures, capture.step_table()
    waiting = _waiting_ratio(table)
    stages = _stages(capture)
    reason = figures.absent.get("infeed_ratio")
    idle_s = (figures.step_parts_s or {}).get("idle")
    step_s = figures.step_time_s.avg if figures.step_time_s else None
    return Input(
        infeed_ratio=figures.infeed_ratio,
        reason=reason,
        sentence=_sentence(figures.infeed_ratio, reason, idle_s / step_s if idle_s is not None and step_s else None),
        waiting_ratio=waiting,
        verdict=None if waiting is None else _verdict(waiting),
        steps=tuple(_step(table, i) for i in range(len(table.infeed_s))),
        categories_s=_categories(capture, stages),
        stages=stages[: choice.top],
    )


def _step(table: StepTable, i: int) -> InputStep:
    average, least, most = table.infeed_ratio[i]
    return InputStep(
        step=i,
        duration_s=table.durations_s[i],
        compute_s=table.compute_s[i],
        infeed_s=table.infeed_s[i],
        outfeed_s=table.outfeed_s[i],
        idle_s=table.idle_s[i],
        host_transfer_s=table.host_transfer_s[i],
        infeed_ratio=Spread(avg=average, min=least, max=most),
    )


def _waiting_ratio(table: StepTable) -> float | None:
    """XProf: ComputeTpuBottleneckAnalysis."""
    columns = (table.compute_s, table.infeed_s, table.all_reduce_s, table.outfeed_s, table.idle_s)
    total_s = sum(map(sum, columns))
    return sum(table.infeed_s) / total_s if total_s > 0 else None


def _verdict(waiting_ratio: float) -> Verdict:
    return "highly" if waiting_ratio >= _HIGHLY else "moderately" if waiting_ratio >= _MODERATELY else "not"


def _sentence(infeed: Spread | None, reason: str | None, idle_ratio: float | None) -> str:
    if infeed is not None:
        return (
            f"{percent_text(infeed.avg)} of a step is waiting for infeed on the core that waits longest "
            f"({percent_text(infeed.min)} to {percent_text(infeed.max)} by step)."
        )
    words = f"No share of the step is infeed: {reason or 'not in the trace'}."
    if idle_ratio is not None:
        words += f" A program without infeed waits between ops: it is idle {percent_text(idle_ratio)} of a step."
    return words


def _stages(capture: Capture) -> tuple[StageRow, ...]:
    """The stages of all hosts, those of one name as one; XProf: ConvertOpMetricsToInputOpDetails."""
    merged: dict[str, list[Stage]] = {}
    for host in capture.hosts:
        for stage in host.profile.host_input.stages:
            merged.setdefault(stage.name, []).append(stage)
    all_s = sum(stage.self_time_s for stages in merged.values() for stage in stages)
    rows = []
    for name, stages in merged.items():
        time_s, self_s = (sum(getattr(stage, each) for stage in stages) for each in ("time_s", "self_time_s"))
        rows.append(
            StageRow(
                name=name,
                category=stages[0].category,
                count=sum(stage.count for stage in stages),
                time_s=time_s,
                self_time_s=self_s,
                time_ratio=time_s / all_s if all_s else 0.0,
                self_time_ratio=self_s / all_s if all_s else 0.0,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.self_time_s, row.name)))


def _categories(capture: Capture, stages: Sequence[StageRow]) -> dict[str, float]:
    """Self time by category; where infeed is used, work behind it is scaled. XProf: GenerateHostResult."""
    if not stages:
        return {}
    sums = dict.fromkeys(CATEGORIES, 0.0)
    for stage in stages:
        sums[stage.category] += stage.self_time_s
    hosts = [host.profile.host_input for host in capture.hosts]
    between_s = sum(host.between_s for host in hosts)
    ratio = min(sum(host.enqueued_s for host in hosts) / between_s, 1.0) if between_s else 0.0
    work = [name for name in CATEGORIES if name not in {"enqueue", "unclassified"}]
    work_s = sum(sums[name] for name in work)
    hidden_s = sums["enqueue"] * (1 - ratio) / ratio if ratio else work_s
    for name in work:
        sums[name] *= hidden_s / work_s if work_s else 0.0
    sums["unclassified"] = max(hidden_s - sum(sums[name] for name in work), 0.0)
    return sums


def blocks(value: Input) -> list[Block]:
    """The section as sentences and tables."""
    lines = [value.sentence]
    if value.waiting_ratio is not None:
        lines.append(
            f"XProf's verdict: {value.verdict} input-bound, {percent_text(value.waiting_ratio)} of the step time "
            "waiting for input (it counts all-reduces twice)."
        )
    if not value.stages:
        lines.append("The host's side: the trace has no event of an input pipeline.")
    made: list[Block] = [Lines(title="Input", lines=lines)]
    if value.steps:
        shown = value.steps[:_MOST_LISTED]
        more = len(value.steps) - len(shown)
        note = f"{more} more steps" if more else ""
        made.append(Table(title="Devices, by step", columns=_STEP_COLUMNS, items=shown, note=note))
    if value.categories_s:
        made.append(_category_table(value.categories_s))
    if value.stages:
        made.append(Table(title="Host, by stage", columns=_STAGE_COLUMNS, items=value.stages))
    return made


def _category_table(categories_s: Mapping[str, float]) -> Table:
    whole_s = sum(categories_s.values())
    return Table(
        title="Host, by category",
        columns=(
            ReportColumn("work", lambda row: CATEGORIES[row[0]]),
            ReportColumn("time", lambda row: row[1], time_text),
            ReportColumn("share", lambda row: row[1] / whole_s if whole_s else None, percent_text),
            ReportColumn("what helps", lambda row: _ADVICE[row[0]] if row[1] else "", wide=True),
        ),
        items=list(categories_s.items()),
    )


_STEP_COLUMNS = (
    ReportColumn("step", lambda step: step.step, count_text),
    ReportColumn("time", lambda step: step.duration_s, time_text),
    ReportColumn("infeed", lambda step: step.infeed_s, time_text),
    ReportColumn("of the step", lambda step: step.infeed_ratio.avg, percent_text),
    ReportColumn("least", lambda step: step.infeed_ratio.min, percent_text, rank=2),
    ReportColumn("most", lambda step: step.infeed_ratio.max, percent_text, rank=1),
    ReportColumn("compute", lambda step: step.compute_s, time_text),
    ReportColumn("outfeed", lambda step: step.outfeed_s, time_text, rank=4),
    ReportColumn("host", lambda step: step.host_transfer_s, time_text, rank=3),
    ReportColumn("idle", lambda step: step.idle_s, time_text),
)
_STAGE_COLUMNS = (
    ReportColumn("stage", lambda stage: stage.name, wide=True, tail=True),
    ReportColumn("work", lambda stage: CATEGORIES[stage.category], wide=True),
    ReportColumn("times", lambda stage: stage.count, count_text, rank=1),
    ReportColumn("time", lambda stage: stage.time_s, time_text),
    ReportColumn("self time", lambda stage: stage.self_time_s, time_text),
    ReportColumn("share", lambda stage: stage.self_time_ratio, percent_text),
)

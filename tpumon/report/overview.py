"""The section overview: the figures, the steps, where the time goes, what is wrong, where it ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, defstruct
from msgspec.structs import asdict, replace

from tpumon.model import Figures, Finding
from tpumon.model.documents import fields_of
from tpumon.model.figure_table import FIGURES, PARTS, STEP, Figure
from tpumon.model.sample import NOT_IN_JSON
from tpumon.report import environment as environment_section
from tpumon.report import ops as ops_section
from tpumon.report import steps as steps_section
from tpumon.report.blocks import Block, Cell, Column, Facts, Lines, Table
from tpumon.report.capture import Capture, Choice
from tpumon.report.environment import Environment
from tpumon.report.ops import OpRow
from tpumon.report.steps import Percentiles, Steps
from tpumon.report.words import NOT_KNOWN, part_word, percent_cell, percent_word, time_cell, time_word

_TOP_OPS = 10


class Overview(Struct, frozen=True, kw_only=True):
    """All of a capture at a glance.

    Attributes:
        window_s: what the figures cover.
        figures: of all hosts together.
        step_durations_s: of each step, as far as the section steps lists them.
        percentiles: of the step times.
        top_ops: the ops that take most time.
        findings: what is wrong, and what to do.
        environment: where it ran.
        steps: for the graph.
    """

    window_s: float
    figures: Figures
    step_durations_s: tuple[float, ...]
    percentiles: Percentiles | None
    top_ops: tuple[OpRow, ...]
    findings: tuple[Finding, ...]
    environment: Environment
    steps: Steps

    def document(self) -> Struct:
        """Its JSON: the figures are beside its other fields, and the steps are left to their section."""
        own = {name: value for name, value in asdict(self).items() if name not in _NOT_IN_JSON}
        figures = {name: value for name, value in asdict(self.figures).items() if name not in NOT_IN_JSON}
        return OverviewDocument(**own, **figures)


_NOT_IN_JSON = {"figures", "steps"}
OverviewDocument = defstruct(
    "Overview",
    [*fields_of(Figures, NOT_IN_JSON), *fields_of(Overview, _NOT_IN_JSON)],
    module=__name__,
    frozen=True,
    kw_only=True,
)


def build(capture: Capture, choice: Choice) -> Overview:
    """The figures, and the top lines of the other sections."""
    steps = steps_section.build(capture, choice)
    ops = ops_section.build(capture, replace(choice, top=min(choice.top, _TOP_OPS)))
    figures = capture.figures.figures
    return Overview(
        window_s=capture.figures.window_s,
        figures=figures,
        step_durations_s=steps.durations_s,
        percentiles=steps.percentiles,
        top_ops=ops.ops,
        findings=capture.findings,
        environment=environment_section.build(capture, choice),
        steps=steps,
    )


def blocks(overview: Overview) -> tuple[Block, ...]:
    """The section as facts, a graph and tables."""
    made: list[Block] = []
    if overview.findings:
        made.append(Lines(title="Findings", lines=tuple(map(_finding_line, overview.findings))))
    made.append(Facts(title="Figures", rows=tuple(_figure_rows(overview.figures))))
    if rows := steps_section.step_facts(overview.steps):
        made.append(Facts(title="Step time", rows=tuple(rows)))
    if graph := steps_section.step_graph(overview.steps):
        made.append(graph)
    if overview.figures.step_parts_s and overview.figures.step_time_s:
        made.append(_breakdown(overview.figures.step_parts_s, overview.figures.step_time_s.avg))
    if overview.top_ops:
        made.append(ops_section.op_table(f"Top {len(overview.top_ops)} operations", overview.top_ops))
    made.append(Facts(title="Environment", rows=tuple(environment_section.facts(overview.environment))))
    if overview.environment.warnings:
        made.append(Lines(title="Warnings", lines=overview.environment.warnings))
    return tuple(made)


def _finding_line(finding: Finding) -> str:
    remedy = f" To do: {finding.remedy}" if finding.remedy else ""
    return f"{finding.severity} {finding.finding}: {finding.sentence}{remedy}"


_WRITTEN: Mapping[str, Callable[[float | None], str]] = {"ratio": percent_word, "seconds": time_word}
_OWN_TABLES = frozenset({STEP.key, PARTS.key})


def _figure_rows(figures: Figures) -> list[tuple[str, str]]:
    """All figures but those of steps; what only a running job reports (HBM used) is left out where it is absent."""
    shown = [figure for figure in FIGURES if figure.key not in _OWN_TABLES]
    return [
        (figure.label, _written(figure, figures))
        for figure in shown
        if figure.value(figures) is not None or figure.why_absent(figures)
    ]


def _written(figure: Figure, figures: Figures) -> str:
    value = figure.value(figures)
    if value is None:
        reason = figure.why_absent(figures)
        return NOT_KNOWN + (f" ({reason})" if reason else "")
    method = figure.method(figures)
    return _WRITTEN[figure.unit](value) + (f" ({method})" if method else "")


def _breakdown(parts_s: Mapping[str, float], step_s: float) -> Table:
    return Table(
        title="Step breakdown, as XProf has it: parts are of different cores and need not add up",
        columns=(Column("part", text=True), Column("time"), Column("of the step")),
        rows=tuple(
            (Cell(part_word(name)), time_cell(time_s), percent_cell(time_s / step_s if step_s > 0 else None))
            for name, time_s in parts_s.items()
        ),
    )

"""The section overview: figures, steps, the longest operations, environment."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, defstruct
from msgspec.structs import asdict, replace

from tpumon.model import Figures, Finding
from tpumon.model.documents import fields_of
from tpumon.model.figure_spec import FigureSpec, Unit
from tpumon.model.figure_table import FIGURES, PARTS, STEP
from tpumon.model.sample import NOT_IN_JSON
from tpumon.report import environment_section, ops_section, steps_section
from tpumon.report.blocks import Block, Facts, Lines, ReportColumn, Table
from tpumon.report.environment_section import Environment
from tpumon.report.formats import NOT_KNOWN, Format, count_text, part_label, percent_text, time_text
from tpumon.report.kernels import KernelRow, kernel_table
from tpumon.report.ops_section import OpRow
from tpumon.report.profiles import Capture, Choice
from tpumon.report.steps_section import StepPercentiles, Steps

_TOP_OPS = 10


class Overview(Struct, frozen=True, kw_only=True):
    """All of a capture at a glance.

    Attributes:
        window_s: length of the window of the figures.
        figures: of all hosts together.
        step_durations_s: of each step, as far as the section steps lists them.
        percentiles: of the step times.
        top_ops: the ops that take most time.
        top_kernels: of GPUs, the kernels that take most time.
        findings: the worst first, with remedies.
        environment: of the capture.
        steps: for the graph.
    """

    window_s: float
    figures: Figures
    step_durations_s: tuple[float, ...]
    percentiles: StepPercentiles | None
    top_ops: tuple[OpRow, ...]
    top_kernels: tuple[KernelRow, ...]
    findings: tuple[Finding, ...]
    environment: Environment
    steps: Steps

    def document(self) -> Struct:
        """The JSON: the figures are beside the other fields, and the steps are left to their section."""
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
    return Overview(
        window_s=capture.figures.window_s,
        figures=capture.figures.figures,
        step_durations_s=steps.durations_s,
        percentiles=steps.percentiles,
        top_ops=ops.ops,
        top_kernels=ops.kernels,
        findings=capture.findings,
        environment=environment_section.build(capture, choice),
        steps=steps,
    )


def blocks(overview: Overview) -> list[Block]:
    """The section as facts, a graph and tables."""
    made: list[Block] = [Facts(title="Figures", rows=_figure_rows(overview.figures))]
    if rows := steps_section.step_facts(overview.steps):
        made.append(Facts(title="Step time", rows=rows))
    if graph := steps_section.step_graph(overview.steps):
        made.append(graph)
    if overview.figures.step_parts_s and overview.figures.step_time_s:
        made.append(_breakdown(overview.figures.step_parts_s, overview.figures.step_time_s.avg))
    if overview.top_ops:
        made.append(ops_section.op_table(f"Top {len(overview.top_ops)} operations", overview.top_ops))
    if overview.top_kernels:
        made.append(kernel_table(overview.top_kernels))
    made.append(Facts(title="Environment", rows=environment_section.device_facts(overview.environment)))
    if overview.environment.warnings:
        made.append(Lines(title="Warnings", lines=overview.environment.warnings))
    return made


_FORMATS: Mapping[Unit, Format] = {
    "ratio": percent_text,
    "seconds": time_text,
    "count": count_text,
    "rate": count_text,
}


def _figure_rows(figures: Figures) -> list[tuple[str, str]]:
    """All figures but those of steps; those of a device that are absent for one reason, as without a TPU, share a row.

    Figures that only a running job reports (HBM used) are left out if absent.
    """
    shown = [figure for figure in FIGURES if figure.key not in {STEP.key, PARTS.key} and not figure.of_server]
    absent: dict[str, list[FigureSpec]] = {}
    for figure in shown:
        if figure.origin == "device" and figure.value(figures) is None and (why := figure.why_absent(figures)):
            absent.setdefault(why, []).append(figure)
    together = [(why, each) for why, each in absent.items() if len(each) > 1]
    gone = {figure.key for _, each in together for figure in each}
    rows = [
        (figure.label, _figure_text(figure, figures))
        for figure in shown
        if figure.key not in gone and (figure.value(figures) is not None or figure.why_absent(figures))
    ]
    return rows + [(NOT_KNOWN, f"{', '.join(figure.label for figure in each)}: {why}") for why, each in together]


def _figure_text(figure: FigureSpec, figures: Figures) -> str:
    value = figure.value(figures)
    note = figure.why_absent(figures) if value is None else figure.method(figures)
    return _FORMATS[figure.unit](value) + (f" ({note})" if note else "")


def _breakdown(parts_s: Mapping[str, float], step_s: float) -> Table:
    return Table(
        title="Step breakdown, as XProf has it: parts are of different cores and need not add up",
        columns=(
            ReportColumn("part", lambda part: part_label(part[0])),
            ReportColumn("time", lambda part: part[1], time_text),
            ReportColumn("of the step", lambda part: part[1] / step_s if step_s > 0 else None, percent_text),
        ),
        items=list(parts_s.items()),
    )

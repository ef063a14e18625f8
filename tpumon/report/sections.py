"""The table of sections. A new section is a module in this package and a row here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from tpumon.model import Finding
from tpumon.report import (
    environment_section,
    input_section,
    memory_section,
    ops_section,
    overview_section,
    steps_section,
)
from tpumon.report.blocks import Block, Facts, Lines, SectionPage
from tpumon.report.formats import utc_text
from tpumon.report.overview_section import OverviewDocument
from tpumon.report.profiles import Capture, Choice
from tpumon.xspace.profile.profile import Extra


class Section(Struct, frozen=True, kw_only=True):
    """One section of a report.

    Attributes:
        title: for people.
        needs: the parts of a trace to read beyond those that figures need.
        build: makes its value.
        blocks: writes the value for people.
        document: makes its JSON of the value.
    """

    title: str
    needs: tuple[Extra, ...]
    build: Callable[[Capture, Choice], Any]
    blocks: Callable[[Any], Sequence[Block]]
    document: Callable[[Any], Any] = lambda value: value


def _section(title: str, needs: tuple[Extra, ...], module: Any) -> Section:
    return Section(title=title, needs=needs, build=module.build, blocks=module.blocks)


SECTIONS: Mapping[str, Section] = {
    "overview": Section(
        title="Overview",
        needs=("ops", "environment"),
        build=overview_section.build,
        blocks=overview_section.blocks,
        document=overview_section.Overview.document,
    ),
    "ops": _section("Operations", ("ops", "contents", "host_threads"), ops_section),
    "steps": _section("Steps", (), steps_section),
    "input": _section("Input", ("input",), input_section),
    "memory": _section("Memory", ("memory", "buffers"), memory_section),
    "environment": _section("Environment", ("environment",), environment_section),
}
"""All sections, by the name that `--section` takes and that is the key in JSON, in the order of a report."""


class Sections(Struct, frozen=True, kw_only=True):
    """The sections that were asked for, as JSON has them."""

    overview: OverviewDocument | UnsetType = UNSET  # type: ignore[valid-type]
    ops: ops_section.Ops | UnsetType = UNSET
    steps: steps_section.Steps | UnsetType = UNSET
    input: input_section.Input | UnsetType = UNSET
    memory: memory_section.Memory | UnsetType = UNSET
    environment: environment_section.Environment | UnsetType = UNSET


class ReportDocument(Struct, frozen=True, kw_only=True):
    """The output of `tpumon report --output json`; fields as in docs/report.md."""

    schema: Literal[1] = 1
    truncated: str | None
    sections: Sections


class Report(Struct, frozen=True, kw_only=True):
    """Some sections of one capture.

    Attributes:
        values: of each section, by name.
        truncated: the losses of the traces and the span that the tables cover; None for whole traces.
        pages: the sections, ready to be written; before them the verdict where there is one.
    """

    values: Mapping[str, Any]
    truncated: str | None
    pages: tuple[SectionPage, ...]

    @property
    def document(self) -> ReportDocument:
        """The report as JSON has it."""
        sections = {name: SECTIONS[name].document(value) for name, value in self.values.items()}
        return ReportDocument(truncated=self.truncated, sections=Sections(**sections))


def needs(names: Iterable[str]) -> frozenset[Extra]:
    """The parts of a trace to read for these sections."""
    return frozenset(part for name in names for part in SECTIONS[name].needs)


def report(capture: Capture, names: Sequence[str], choice: Choice) -> Report:
    values = {name: SECTIONS[name].build(capture, choice) for name in names}
    truncated = capture.figures.truncated
    above = (Lines(title="Dropped events", lines=(f"the trace is truncated: {truncated}",)),) if truncated else ()
    pages = tuple(
        SectionPage(name=name, title=SECTIONS[name].title, blocks=(*above, *SECTIONS[name].blocks(value)))
        for name, value in values.items()
    )
    return Report(values=values, truncated=truncated, pages=(*_verdict(capture), *pages))


def _verdict(capture: Capture) -> Iterator[SectionPage]:
    """The date, the verdict and the findings; nothing where nobody asked for it."""
    if capture.verdict is None:
        return
    facts = [("Taken (UTC)", utc_text(capture.start_unix_s)), ("Verdict", capture.verdict)]
    blocks: list[Block] = [Facts(title="Profile", rows=facts)]
    if capture.findings:
        blocks.append(Lines(title="Findings", lines=list(map(_finding_line, capture.findings))))
    yield SectionPage(name="verdict", title="Verdict", blocks=blocks)


def _finding_line(finding: Finding) -> str:
    remedy = f" To do: {finding.remedy}" if finding.remedy else ""
    return f"{finding.severity} {finding.finding}: {finding.sentence}{remedy}"

"""The table of sections. A new section is a file in this room and a row here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, Struct, UnsetType

from tpumon.report import environment, memory, ops, overview, steps
from tpumon.report import input as input_section
from tpumon.report.blocks import Block, Lines, Page
from tpumon.report.capture import Capture, Choice
from tpumon.report.overview import OverviewDocument

if TYPE_CHECKING:
    from tpumon.xspace.profile.profile import Extra


class Section(Struct, frozen=True, kw_only=True):
    """One section of a report.

    Attributes:
        name: what `--section` takes, and its key in JSON.
        title: for people.
        about: one line for the help.
        needs: what must be read of a trace beyond what figures need.
        build: makes its value.
        blocks: writes the value for people.
        document: the value as JSON has it.
    """

    name: str
    title: str
    about: str
    needs: tuple[Extra, ...]
    build: Callable[[Capture, Choice], Any]
    blocks: Callable[[Any], Sequence[Block]]
    document: Callable[[Any], Any] = lambda value: value


SECTIONS: Mapping[str, Section] = {
    section.name: section
    for section in (
        Section(
            name="overview",
            title="Overview",
            about="figures, steps, top ten operations, findings",
            needs=("ops", "environment"),
            build=overview.build,
            blocks=overview.blocks,
            document=overview.Overview.document,
        ),
        Section(
            name="ops",
            title="Operations",
            about="time, FLOPs and bytes by program, category, path and operation",
            needs=("ops", "contents"),
            build=ops.build,
            blocks=ops.blocks,
        ),
        Section(
            name="steps",
            title="Steps",
            about="each step on each core, skew, who is last",
            needs=(),
            build=steps.build,
            blocks=steps.blocks,
        ),
        Section(
            name="input",
            title="Input",
            about="infeed by step, input work of the host by category and stage",
            needs=("input",),
            build=input_section.build,
            blocks=input_section.blocks,
        ),
        Section(
            name="memory",
            title="Memory",
            about="in use over time, what was live at the peak, buffers of programs",
            needs=("memory", "buffers"),
            build=memory.build,
            blocks=memory.blocks,
        ),
        Section(
            name="environment",
            title="Environment",
            about="hosts, devices, versions, options, dropped events",
            needs=("environment",),
            build=environment.build,
            blocks=environment.blocks,
        ),
    )
}
"""All sections, by name, in the order of a report."""


class Report(Struct, frozen=True, kw_only=True):
    """Some sections of one capture.

    Attributes:
        values: of each section, by name.
        truncated: what is missing from the traces and which span the tables cover; None for whole traces.
        pages: the sections, ready to be written.
    """

    values: Mapping[str, Any]
    truncated: str | None
    pages: tuple[Page, ...]

    @property
    def document(self) -> ReportDocument:
        """What `--output json` prints."""
        sections = {name: SECTIONS[name].document(value) for name, value in self.values.items()}
        return ReportDocument(truncated=self.truncated, sections=Sections(**sections))


class Sections(Struct, frozen=True, kw_only=True):
    """Those that were asked for."""

    overview: OverviewDocument | UnsetType = UNSET  # type: ignore[valid-type]
    ops: ops.Ops | UnsetType = UNSET
    steps: steps.Steps | UnsetType = UNSET
    input: input_section.Input | UnsetType = UNSET
    memory: memory.Memory | UnsetType = UNSET
    environment: environment.Environment | UnsetType = UNSET


class ReportDocument(Struct, frozen=True, kw_only=True):
    """What `tpumon report --output json` prints; fields as in docs/report.md."""

    schema: Literal[1] = 1
    truncated: str | None
    sections: Sections


def needs(names: Iterable[str]) -> frozenset[Extra]:
    """What must be read for these sections."""
    return frozenset(part for name in names for part in SECTIONS[name].needs)


def report(capture: Capture, names: Sequence[str], choice: Choice) -> Report:
    """Builds some sections."""
    values = {name: SECTIONS[name].build(capture, choice) for name in names}
    truncated = capture.figures.truncated
    above = (Lines(title="Dropped events", lines=(f"the trace is truncated: {truncated}",)),) if truncated else ()
    pages = tuple(
        Page(name=name, title=SECTIONS[name].title, blocks=(*above, *SECTIONS[name].blocks(value)))
        for name, value in values.items()
    )
    return Report(values=values, truncated=truncated, pages=pages)

"""Blocks that a section consists of when it is written for people: tables, facts, lines, graphs, heat maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from tpumon.report.formats import Format


class Cell(Struct, frozen=True):
    """A cell of a table.

    Attributes:
        text: one line.
        value: the number to sort the table by; None in a column of text, and where it is absent.
    """

    text: str
    value: float | None = None


class ReportColumn(Struct, frozen=True):
    """A column of a table.

    Attributes:
        title: with the unit, where the cells do not show it.
        value: takes the value for a cell from a row: a number, or text.
        number: formats the values, which are numbers and aligned to the right; None for text.
        wide: whether the text may be cut where there is little room.
        tail: whether the end of the text is kept then, as of paths.
        rank: where there is still too little room, columns of high rank are left out first; those of rank 0 never.
        above_peak: whether the value of a row is more than a chip can do, and only said to be so.
    """

    title: str
    value: Callable[[Any], Any]
    number: Format | None = None
    wide: bool = False
    tail: bool = False
    rank: int = 0
    above_peak: Callable[[Any], bool] | None = None

    def cell(self, row: Any) -> Cell:
        value = self.value(row)
        if self.number is None:
            return Cell(value)
        return Cell(">peak" if self.above_peak is not None and self.above_peak(row) else self.number(value), value)


class Table(Struct, frozen=True, kw_only=True):
    """Rows below titles.

    Attributes:
        title: above it.
        columns: at least one.
        items: one for each row; the columns take their values from them.
        note: below it, such as what is left out; "" for nothing.
    """

    title: str
    columns: tuple[ReportColumn, ...]
    items: Sequence[Any]
    note: str = ""

    @property
    def rows(self) -> list[list[Cell]]:
        return [[column.cell(item) for column in self.columns] for item in self.items]


class Facts(Struct, frozen=True, kw_only=True):
    """Labels and their texts."""

    title: str
    rows: Sequence[tuple[str, str]]


class Lines(Struct, frozen=True, kw_only=True):
    """Sentences."""

    title: str
    lines: Sequence[str]


class StackedPart(Struct, frozen=True):
    """One of the parts that a graph stacks.

    Attributes:
        name: for people.
        values: one for each of the graph's places.
        key: gives it the same colour in every graph; "" for any colour.
    """

    name: str
    values: Sequence[float]
    key: str = ""


class StackedGraph(Struct, frozen=True, kw_only=True):
    """Values over places, such as steps or moments, the parts stacked.

    Attributes:
        title: above it.
        number: formats the values.
        places: name of a place on the horizontal axis, such as "step".
        parts: from the bottom to the top.
    """

    title: str
    number: Format
    places: str
    parts: Sequence[StackedPart]


class HeatMap(Struct, frozen=True, kw_only=True):
    """One cell for each row and place, darker where the time is longer.

    Attributes:
        title: above it; names the least and the greatest time.
        rows: label and times of each, in seconds; nan where there is none.
        places: name of a place on the horizontal axis.
    """

    title: str
    rows: Sequence[tuple[str, Sequence[float]]]
    places: str


Block = Table | Facts | Lines | StackedGraph | HeatMap


class SectionPage(Struct, frozen=True, kw_only=True):
    """One section, ready to be written.

    Attributes:
        name: its key, such as "ops".
        title: for people.
        blocks: in the order of reading.
    """

    name: str
    title: str
    blocks: Sequence[Block]

"""What sections are made of when they are written for people: tables, facts, graphs, heat maps, lines."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Column(Struct, frozen=True):
    """A column of a table.

    Attributes:
        title: with the unit, where the cells do not show it.
        text: whether it holds words, which are aligned to the left, and not numbers.
        wide: whether its words may be cut where there is little room.
        tail: whether their end is kept then, as of paths.
        rank: where there is still too little room, columns of high rank are left out first; those of rank 0 never.
    """

    title: str
    text: bool = False
    wide: bool = False
    tail: bool = False
    rank: int = 0


class Cell(Struct, frozen=True):
    """A cell of a table.

    Attributes:
        text: what it shows; one line.
        value: what a table is sorted by; None for words, and for what is absent.
    """

    text: str
    value: float | None = None


class Table(Struct, frozen=True, kw_only=True):
    """Rows below titles.

    Attributes:
        title: above it.
        columns: at least one.
        rows: as long as `columns` each.
        note: below it, such as what is left out; "" for nothing.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


class Facts(Struct, frozen=True, kw_only=True):
    """Labels and what is said of them."""

    title: str
    rows: tuple[tuple[str, str], ...]


class Lines(Struct, frozen=True, kw_only=True):
    """Sentences."""

    title: str
    lines: tuple[str, ...]


class Series(Struct, frozen=True):
    """One part of a graph.

    Attributes:
        name: for people.
        values: one for each of the graph's places.
        key: by which it has the same colour everywhere; "" for any.
    """

    name: str
    values: Sequence[float]
    key: str = ""


class Graph(Struct, frozen=True, kw_only=True):
    """Values over places, such as steps or moments, the parts stacked.

    Attributes:
        title: above it.
        unit: of the values: seconds or bytes.
        places: what the horizontal axis counts, such as "step".
        series: from the bottom to the top.
    """

    title: str
    unit: str
    places: str
    series: tuple[Series, ...]


class HeatMap(Struct, frozen=True, kw_only=True):
    """One cell for each row and place, darker where the value is higher.

    Attributes:
        title: above it; says what is shown, and what its least and greatest value are.
        rows: label and values of each; nan where there is none.
        places: what the horizontal axis counts.
    """

    title: str
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    places: str


Block = Table | Facts | Lines | Graph | HeatMap


class Page(Struct, frozen=True, kw_only=True):
    """One section, ready to be written.

    Attributes:
        name: its key, such as "ops".
        title: for people.
        blocks: in the order of reading.
    """

    name: str
    title: str
    blocks: tuple[Block, ...]

"""An answer as columns: tens of thousands of series of the same labels are read without an object for each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from tpumon.model.frozen import frozen

MOST_LABELS = 40

_BEGIN = '{"metric":{'
_LABEL = re.compile(r'"([^"\\]*)":"[^"\\]*"')
_LABELS = re.compile(r'\[\{"metric":\{((?:"[^"\\]*":"[^"\\]*",?)+)\}')


@frozen(kw_only=False)
class Table:
    """The last value of each series of an answer.

    Attributes:
        columns: of each label its value in each series; empty where a series has none.
        values: the values.
        warnings: what the server says is missing; empty if the data is complete.
    """

    columns: Mapping[str, Sequence[str]]
    values: Sequence[float]
    warnings: Sequence[str] = ()

    def column(self, label: str) -> Sequence[str]:
        """The values of a label."""
        return self.columns.get(label) or [""] * len(self.values)


def rows_of(text: str, most: int, clean: Callable[[str], str]) -> tuple[Table, str] | None:
    """The series of an answer to an instant query, and the answer without them, which says how it went.

    Args:
        text: the answer.
        most: how many series to read.
        clean: makes a label's value safe.

    Returns:
        None if it has no series, or not each one has one finite value and the same labels, few of them.
    """
    first = _LABELS.search(text)
    if first is None:
        return None
    names = tuple(_LABEL.findall(first[1]))
    if len(names) > MOST_LABELS:
        return None
    pattern = _row(names)
    rows = pattern.findall(text, first.start())
    last = pattern.match(text, text.rindex(_BEGIN))
    # A quote in a text is escaped, so each of these begins a series: none is passed over.
    if last is None or len(rows) != text.count(_BEGIN) or text[last.end() : last.end() + 1] != "]":
        return None
    *labels, _, numbers = zip(*rows[:most], strict=True)
    try:
        values = list(map(float, numbers))
    except ValueError:
        return None
    if not math.isfinite(sum(values)):
        return None
    columns = {name: list(map(clean, column)) for name, column in zip(names, labels, strict=True)}
    return Table(columns, values), f"{text[: first.start() + 1]}{text[last.end() :]}"


@lru_cache(maxsize=64)
def _row(names: Sequence[str]) -> re.Pattern[str]:
    """What finds the series with these labels."""
    labels = ",".join(rf'"{re.escape(name)}":"([^"\\]*)"' for name in names)
    return re.compile(rf'{re.escape(_BEGIN)}{labels}\}},"value":\[([0-9.]+),"([^"\\]*)"\]\}}')

"""CSV: one line per query and worker, answered or not, with the figures of the whole worker.

Names and units are those of the Sample object, flattened; an absent figure is an empty cell. Figures per core or device
are only in JSON.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from math import isfinite
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpumon.model.figure_table import csv_columns
from tpumon.untrusted_text import one_line
from tpumon_exporters.appending import Appended, SampleLines, first_line

if TYPE_CHECKING:
    from tpumon.model import Failure, Figures, Sample
    from tpumon.outputs import Context

_FORMULA = ("=", "+", "-", "@")  # a spreadsheet would compute what follows; white space cannot stand before it

_Cell = Callable[["Sample"], Any]


def _figure(get: Callable[[Figures], Any]) -> _Cell:
    return lambda sample: get(sample.figures)


def _error(get: Callable[[Failure], Any]) -> _Cell:
    return lambda sample: get(sample.errors[-1]) if sample.errors else None


_OF_SAMPLE = (
    *("time_unix_s", "worker", "address", "job", "slice", "window_s", "took_s", "interval_s", "traced_s", "source"),
    *("simulated", "device_type", "cores"),
)
COLUMNS: Mapping[str, _Cell] = {
    **{name: attrgetter(name) for name in _OF_SAMPLE},
    "job_kind": attrgetter("kind"),
    **{name: _figure(get) for name, get in csv_columns().items()},
    "error_source": _error(lambda failure: failure.source),
    "error_reason": _error(lambda failure: failure.reason),
    "error_message": _error(lambda failure: failure.line),  # the address that failed need not be the worker's
}
"""Every column, and what its cells hold."""


def open_csv(where: str, _context: Context) -> SampleLines:
    """Opens the output; `where`: a file to append to, or `-` for stdout.

    A file that another version of tpumon began keeps its columns, so that every line of it fits its header.
    """
    columns = _columns_of(where) or list(COLUMNS)
    left_out = [name for name in COLUMNS if name not in columns]
    note = f"{where} was begun by another version: it gets no {', '.join(left_out)}; give a new file for all columns"
    cells = [COLUMNS.get(name, _unknown) for name in columns]
    return SampleLines(
        Appended(where, header=_row(columns)),
        lambda sample: _row(_cell_text(cell(sample)) for cell in cells),
        note if left_out else "",
    )


def _unknown(_sample: Sample) -> None:
    """The cell of a column that only another version knows."""


def _columns_of(where: str) -> list[str] | None:
    """The columns of a file that a tpumon began; None for any other."""
    try:
        header = None if where == "-" else first_line(Path(where))
    except OSError:
        return None
    columns = (header or "").split(",")
    return columns if columns[:2] == list(COLUMNS)[:2] and len(set(columns)) == len(columns) else None


def _row(cells: Any) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()


def _cell_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value) if isfinite(value) else ""
        case str():
            text = one_line(value)
            return f"'{text}" if text.startswith(_FORMULA) else text
    return str(value)

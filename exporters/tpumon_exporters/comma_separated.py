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
from typing import TYPE_CHECKING, Any

from tpumon.figures import csv_columns
from tpumon.text import one_line
from tpumon_exporters.appending import Appended, SampleLines

if TYPE_CHECKING:
    from tpumon.model import Figures, Sample
    from tpumon.outputs import OutputOptions

_Cell = Callable[["Sample"], Any]


def _figure(get: Callable[[Figures], Any]) -> _Cell:
    return lambda sample: get(sample.figures)


def _error(name: str) -> _Cell:
    return lambda sample: getattr(sample.errors[-1], name) if sample.errors else None


_OF_SAMPLE = (
    *("time_unix_s", "worker", "address", "slice", "window_s", "took_s", "interval_s", "traced_s", "source"),
    *("simulated", "device_type", "cores"),
)
COLUMNS: Mapping[str, _Cell] = {
    **{name: attrgetter(name) for name in _OF_SAMPLE},
    **{name: _figure(get) for name, get in csv_columns().items()},
    **{f"error_{name}": _error(name) for name in ("source", "reason", "message")},
}
"""Every column, and what its cells hold."""


def open_csv(where: str, _run: OutputOptions) -> SampleLines:
    """Opens the output.

    Args:
        where: a file to append to, or `-` for stdout.

    Raises:
        UsageError: the file cannot be written, or has other columns.
    """
    return SampleLines(Appended(where, header=_row(COLUMNS)), _line)


def _line(sample: Sample) -> str:
    return _row(_text(cell(sample)) for cell in COLUMNS.values())


def _row(cells: Any) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value) if isfinite(value) else ""
        case str():
            return one_line(value)
    return str(value)

"""JSON lines: one Sample object per line, answered or not, with its worker's findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpumon.model.documents import encoded
from tpumon_exporters.appending import Appended, SampleLines

if TYPE_CHECKING:
    from tpumon.model import Sample
    from tpumon.outputs import Context


def open_jsonl(where: str, _context: Context) -> SampleLines:
    """Opens the output; `where`: a file to append to, or `-` for stdout."""
    return SampleLines(Appended(where), _line)


def _line(sample: Sample) -> str:
    return encoded(sample.document())

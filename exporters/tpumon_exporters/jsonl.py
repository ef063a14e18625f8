"""JSON lines: one Sample object per line, answered or not, with its worker's findings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tpumon_exporters.appending import Appended, SampleLines

if TYPE_CHECKING:
    from tpumon.model import Sample
    from tpumon.outputs import Context

_ENCODER = json.JSONEncoder(allow_nan=False)  # NaN and infinity are not JSON; a source that lets one through has a bug


def open_jsonl(where: str, context: Context) -> SampleLines:
    """Opens the output; `where`: a file to append to, or `-` for stdout."""
    return SampleLines(Appended(where), _line, context.log)


def _line(sample: Sample) -> str:
    return _ENCODER.encode(sample.to_json())

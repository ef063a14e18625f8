"""JSON lines: one Sample object a line, answered or not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from tpumon.model import Sample

_ENCODER = json.JSONEncoder(allow_nan=False)


class JsonLines:
    """Writes each sample as it comes, flushed.

    Args:
        stream: where to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, sample: Sample) -> None:
        """One line. NaN and infinity are no JSON; a source that lets one through is a bug and raises ValueError."""
        self._stream.write(_ENCODER.encode(sample.to_json()) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Closes a file; leaves stdout alone."""
        if self._stream is not sys.stdout:
            self._stream.close()


def open_jsonl(where: str) -> JsonLines:
    """Args:
    where: a file to append to, or `-` for stdout.
    """
    return JsonLines(sys.stdout if where == "-" else Path(where).open("a", encoding="utf-8"))

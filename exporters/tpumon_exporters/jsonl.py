"""JSON lines: one Sample object a line, answered or not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tpumon_exporters.appending import Appended

if TYPE_CHECKING:
    from tpumon.model import Sample, Workers
    from tpumon.outputs import OutputOptions

_ENCODER = json.JSONEncoder(allow_nan=False)


class JsonLines:
    """Writes each sample as it comes.

    Args:
        lines: where to.
    """

    def __init__(self, lines: Appended) -> None:
        self._lines = lines

    def follow(self, _found: Workers) -> None:
        """Each line names its worker."""

    def write(self, sample: Sample) -> None:
        """One line. NaN and infinity are no JSON; a source that lets one through is a bug and raises ValueError."""
        self._lines.write(_ENCODER.encode(sample.to_json()))

    def close(self) -> None:
        """Closes a file; leaves stdout alone."""
        self._lines.close()


def open_jsonl(where: str, _options: OutputOptions) -> JsonLines:
    """Args:
        where: a file to append to, or `-` for stdout.

    Raises:
        UsageError: it cannot be written.
    """
    return JsonLines(Appended(where))

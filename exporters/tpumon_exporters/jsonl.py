"""JSON lines: one Sample object per line, answered or not, with what is wrong with its worker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tpumon.judging import Judging
from tpumon_exporters.appending import Appended, SampleLines

if TYPE_CHECKING:
    from tpumon.fleet import Thresholds
    from tpumon.model import Sample, Workers
    from tpumon.outputs import OutputOptions

_ENCODER = json.JSONEncoder(allow_nan=False)  # NaN and infinity are not JSON; a source that lets one through has a bug


class JudgedLines(SampleLines):
    """Judges each sample as it arrives, and writes it as one line.

    Args:
        lines: where the lines go.
        thresholds: limits beyond which a worker is marked.
    """

    def __init__(self, lines: Appended, thresholds: Thresholds) -> None:
        super().__init__(lines, self._line)
        self._judging = Judging(thresholds, lambda line: self.say(f"jsonl: {line}"))

    def follow(self, workers: Workers) -> None:
        """Takes the workers; those of a slice are compared."""
        super().follow(workers)
        self._judging.follow(workers)

    def _line(self, sample: Sample) -> str:
        return _ENCODER.encode(self._judging.judged(sample).to_json())


def open_jsonl(where: str, run: OutputOptions) -> JudgedLines:
    """Opens the output.

    Args:
        where: a file to append to, or `-` for stdout.
        run: the thresholds.

    Raises:
        UsageError: the file cannot be written.
    """
    return JudgedLines(Appended(where), run.thresholds)

"""JSON lines: one Sample object per line, answered or not, with what is wrong with its worker."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tpumon.judging import Judging
from tpumon_exporters.appending import Appended

if TYPE_CHECKING:
    from tpumon.fleet import Thresholds
    from tpumon.model import Sample, Workers
    from tpumon.outputs import OutputOptions

_ENCODER = json.JSONEncoder(allow_nan=False)  # NaN and infinity are not JSON; a source that lets one through has a bug
_TICK_S = 0.5


class JudgedLines:
    """Writes each sample as one line once it is judged: at once, of a large fleet within half a second.

    Args:
        lines: where the lines go.
        thresholds: limits beyond which a worker is marked.

    Attributes:
        tick_s: seconds between ticks.
    """

    def __init__(self, lines: Appended, thresholds: Thresholds) -> None:
        self.tick_s = _TICK_S
        self._lines = lines
        self._judging = Judging(thresholds)

    def follow(self, workers: Workers) -> None:
        """Takes the workers; those of a slice are compared.

        Raises:
            OSError: lines that waited cannot be written now.
        """
        self._write(self._judging.follow(workers))

    def write(self, sample: Sample) -> None:
        """Judges a sample, and writes the line of each that is judged now.

        Raises:
            OSError: one cannot be written now; the others were.
        """
        self._write(self._judging.add(sample))

    def tick(self, _now_unix_s: float) -> None:
        """Writes what waits.

        Raises:
            OSError: a line cannot be written now; the others were.
        """
        self._write(self._judging.rest())

    def close(self) -> None:
        """Writes what waits; closes a file, and leaves stdout open."""
        try:
            self._write(self._judging.rest())
        finally:
            self._lines.close()

    def _write(self, samples: Iterable[Sample]) -> None:
        trouble: OSError | None = None
        for sample in samples:
            try:
                self._lines.write(_ENCODER.encode(sample.to_json()))
            except OSError as error:
                trouble = error
        if trouble is not None:
            raise trouble


def open_jsonl(where: str, run: OutputOptions) -> JudgedLines:
    """Opens the output.

    Args:
        where: a file to append to, or `-` for stdout.
        run: the thresholds.

    Raises:
        UsageError: the file cannot be written.
    """
    return JudgedLines(Appended(where), run.thresholds)

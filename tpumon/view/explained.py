"""Blocks of text with what is wrong below them (`--explain`), and findings as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tpumon.judging import Judging
from tpumon.text import one_line

if TYPE_CHECKING:
    from tpumon.fleet import Thresholds
    from tpumon.model import Finding, Handover, NotJudged, Sample, Workers
    from tpumon.view.text import TextOutput

_TICK_S = 0.5
_LONGEST_REMEDY = 160


class ExplainedText:
    """Writes the blocks of a `TextOutput` with a line for each finding of the worker.

    What cannot be judged is written once: when the first worker has as many samples as must agree, or at the end.

    Args:
        text: writes the blocks.
        thresholds: limits beyond which a worker is marked.

    Attributes:
        tick_s: seconds between ticks.
    """

    def __init__(self, text: TextOutput, thresholds: Thresholds) -> None:
        self.tick_s = _TICK_S
        self._text = text
        self._needed = thresholds.sustained
        self._judging = Judging(thresholds)
        self._samples: Counter[str] = Counter()
        self._is_told = False

    def follow(self, workers: Workers) -> None:
        """Takes the workers; those of a slice are compared."""
        self._write(self._judging.follow(workers))
        self._text.follow(workers)

    def take_over(self, handover: Handover) -> None:
        """Takes what an exporter says of its findings."""
        self._judging.take_over(handover)

    def write(self, sample: Sample) -> None:
        """Judges a sample, and writes the block of each that is judged now."""
        self._write(self._judging.add(sample))

    def tick(self, _now_unix_s: float) -> None:
        """Writes what waits."""
        self._write(self._judging.rest())

    def close(self) -> None:
        """Writes what waits, and what could not be judged."""
        self._write(self._judging.rest())
        if self._samples and not self._is_told:
            self._tell()
        self._text.close()

    def _write(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            self._text.write(sample, tuple(map(finding_line, self._judging.findings(sample))))
            self._samples[sample.worker] += sample.responded
            if self._samples[sample.worker] == self._needed and not self._is_told:
                self._tell()

    def _tell(self) -> None:
        self._is_told = True
        lines = [f"Not judged: {names} ({reason})" for names, reason in by_reason(self._judging.not_judged())]
        if lines:
            self._text.say(lines)


def finding_line(finding: Finding) -> str:
    """A finding in one line: how bad, what is the matter, and what to do first."""
    remedy = one_line(finding.remedy.split(";")[0], limit=_LONGEST_REMEDY)
    remedy = f" To do: {remedy}" if remedy else ""
    return f"Finding ({finding.severity}): {finding.finding}. {finding.sentence}{remedy}"


def by_reason(not_judged: Sequence[NotJudged]) -> Iterator[tuple[str, str]]:
    """What cannot be judged: the names of findings, and the reason that they have in common."""
    reasons: dict[str, list[str]] = {}
    for one in not_judged:
        reasons.setdefault(one.reason, []).append(one.finding)
    yield from ((", ".join(names), reason) for reason, names in reasons.items())

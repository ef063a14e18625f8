"""Blocks of text with what is wrong below them (`--explain`), and findings as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tpumon.judging import Judging
from tpumon.text import one_line

if TYPE_CHECKING:
    from tpumon.fleet import Thresholds
    from tpumon.model import Finding, Handover, NotJudged, Sample, Workers
    from tpumon.view.text import TextOutput

_LONGEST_REMEDY = 160


class ExplainedText:
    """Writes the blocks of a `TextOutput` with a line for each finding of the worker.

    What cannot be judged is written once: when the first worker has as many samples as must agree, or at the end.

    Args:
        text: writes the blocks.
        thresholds: limits beyond which a worker is marked.

    Attributes:
        say: takes a line about a problem.
    """

    def __init__(self, text: TextOutput, thresholds: Thresholds) -> None:
        self.say: Callable[[str], None] = lambda _line: None
        self._text = text
        self._needed = thresholds.sustained
        self._judging = Judging(thresholds, lambda line: self.say(f"--explain: {line}"))
        self._samples: Counter[str] = Counter()
        self._is_told = False

    def follow(self, workers: Workers) -> None:
        """Takes the workers; those of a slice are compared."""
        self._judging.follow(workers)
        self._text.follow(workers)

    def take_over(self, handover: Handover) -> None:
        """Takes what an exporter says of its findings."""
        self._judging.take_over(handover)

    def write(self, sample: Sample) -> None:
        """Judges a sample, and writes its block."""
        judged = self._judging.judged(sample)
        self._text.write(judged, tuple(map(finding_line, self._judging.findings(judged))))
        self._samples[sample.worker] += sample.responded
        if self._samples[sample.worker] == self._needed and not self._is_told:
            self._tell()

    def close(self) -> None:
        """Writes what could not be judged, if that was not written yet."""
        if self._samples and not self._is_told:
            self._tell()
        self._text.close()

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

"""Blocks of text with what is wrong below them (`--explain`), and findings as lines."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tpumon.analysis.fleet_verdict import by_reason
from tpumon.outputs import Output
from tpumon.untrusted_text import one_line

if TYPE_CHECKING:
    from tpumon.analysis import Update
    from tpumon.model import Finding
    from tpumon.outputs import Context
    from tpumon.outputs.text_blocks import TextOutput

_LONGEST_REMEDY = 1000


class ExplainedText(Output):
    """Writes the blocks of a `TextOutput` with a line for each finding of the worker.

    What cannot be judged is written once: when the first worker has as many samples as must agree, or at the end.
    """

    def __init__(self, text: TextOutput, context: Context) -> None:
        self._text = text
        self._context = context
        self._samples: Counter[str] = Counter()
        self._has_said = False
        self._time_unix_s = 0.0

    def on_update(self, update: Update) -> None:
        self._text.on_update(update, tuple(map(finding_line, update.findings)))
        sample = update.sample
        if sample is None:
            return
        self._time_unix_s = update.time_unix_s
        self._samples[sample.worker] += sample.is_conclusive
        if self._samples[sample.worker] == self._context.settings.thresholds.sustained and not self._has_said:
            self._say()

    def close(self) -> None:
        """Writes what could not be judged, if that was not written yet."""
        if self._samples and not self._has_said:
            self._say()
        self._text.close()

    def _say(self) -> None:
        self._has_said = True
        not_judged = self._context.analysis.status(self._time_unix_s).not_judged()
        lines = [f"Not judged: {', '.join(each.findings)} ({each.reason})" for each in by_reason(not_judged)]
        if lines:
            self._text.say(lines)


def finding_line(finding: Finding) -> str:
    """A finding in one line: how bad, what is the matter, and what to do."""
    remedy = one_line(finding.remedy, limit=_LONGEST_REMEDY)
    remedy = f" To do: {remedy}" if remedy else ""
    return f"Finding ({finding.severity}): {finding.finding}. {finding.sentence}{remedy}"

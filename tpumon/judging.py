"""Judges samples as they come, for outputs that write each one with what is wrong then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tpumon.findings import Judge, Thresholds
from tpumon.fleet import last_query
from tpumon.history import Histories
from tpumon.model import Finding, Handover, NotJudged, Sample, Workers

_STALE_S = 1.0


class Judging:
    """Adds findings to samples. Those of a worker whose samples come with findings stay as they are.

    Args:
        thresholds: limits beyond which a worker is marked.
        say: takes a line about samples that cannot be judged because of a bug, once.
    """

    def __init__(self, thresholds: Thresholds, say: Callable[[str], None] = lambda _line: None) -> None:
        self._histories = Histories()
        self._judge = Judge(thresholds)
        self._say = say
        self._has_said = False
        self._told_workers: set[str] = set()
        self._told: Handover | None = None
        self._stale: frozenset[str] = frozenset()
        self._looked_unix_s = 0.0

    def follow(self, workers: Workers) -> None:
        """Replaces the workers; those that stay keep what is known of them."""
        self._histories.follow(workers)
        self._judge.follow(workers.targets)
        self._told_workers &= {target.worker for target in workers.targets}

    def take_over(self, handover: Handover) -> None:
        """Takes what an exporter says of its findings: the samples that follow come with those."""
        self._told = handover

    def judged(self, sample: Sample) -> Sample:
        """The sample of one query with what is wrong with its worker now; without findings if it cannot be judged."""
        history = self._histories.add(sample)
        if sample.findings is not None:
            self._told_workers.add(sample.worker)
        if history is None or sample.worker in self._told_workers:
            return sample
        try:
            self._judge.judge(
                [last_query(history, sample).seen(history.target)], self._stale_at(sample.time_unix_s + sample.took_s)
            )
        except Exception as error:  # noqa: BLE001 - a rule's bug must not cost the sample
            if not self._has_said:
                self._has_said = True
                self._say(f"samples cannot be judged, a bug in tpumon: {type(error).__name__}: {error}")
            return sample
        return replace(sample, findings=self._judge.causes(sample.worker), judged=self._judge.judged(sample.worker))

    def findings(self, sample: Sample) -> Sequence[Finding]:
        """What is wrong with the worker of a judged sample, the worst first, told at length."""
        known = {one.finding: one for one in self._judge.findings([sample.worker])}
        if self._told is not None and self._told.findings is not None:
            known = {
                one.finding: one for one in self._told.findings if (one.job, one.slice) == (sample.job, sample.slice)
            }
        return [
            replace(
                known.get(cause.finding)
                or Finding(finding=cause.finding, severity=cause.severity, sentence=cause.words),
                severity=cause.severity,
                since_unix_s=cause.since_unix_s,
            )
            for cause in sample.findings or ()
            if cause.finding is not None
        ]

    def not_judged(self) -> Sequence[NotJudged]:
        """What cannot be judged, and why."""
        if self._told is not None and self._told.findings is not None:
            return self._told.not_judged
        return self._judge.not_judged([history.target.worker for history in self._histories.all()])

    def _stale_at(self, now_unix_s: float) -> frozenset[str]:
        """The workers whose figures are stale, as of the last second: it takes a look at all of them."""
        if not 0 <= now_unix_s - self._looked_unix_s < _STALE_S:
            self._looked_unix_s = now_unix_s
            histories = self._histories.all()
            self._stale = frozenset(one.target.worker for one in histories if one.state(now_unix_s) == "stale")
        return self._stale

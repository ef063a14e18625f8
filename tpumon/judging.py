"""Judges samples as they come, for outputs that write each one with what is wrong then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tpumon.findings import Judge, Seen, Thresholds
from tpumon.fleet import seen_last
from tpumon.history import Histories
from tpumon.model import Finding, Handover, NotJudged, Sample, Workers

_SHARE = 32
"""Judging compares a worker with its whole slice: of a large fleet, this part of the workers is judged together."""


class Judging:
    """Adds findings to samples; those that come with findings keep them.

    Up to 63 workers are judged one by one. Of more, samples wait until 1/32 of the workers have one, or for `rest`.

    Args:
        thresholds: limits beyond which a worker is marked.
    """

    def __init__(self, thresholds: Thresholds) -> None:
        self._histories = Histories()
        self._judge = Judge(thresholds)
        self._new: dict[str, tuple[Sample, Seen | None]] = {}
        self._told: Handover | None = None

    def follow(self, workers: Workers) -> Sequence[Sample]:
        """Replaces the workers; returns the samples that still waited."""
        rest = self.rest()
        self._histories.follow(workers)
        self._judge.follow(workers.targets)
        return rest

    def take_over(self, handover: Handover) -> None:
        """Takes what an exporter says of its findings: the samples that follow come with those."""
        self._told = handover

    def add(self, sample: Sample) -> Sequence[Sample]:
        """Takes the sample of one query; returns those that are judged now, in the order in which they came."""
        before = self.rest() if sample.worker in self._new else ()
        history = self._histories.add(sample)
        is_told = history is None or sample.findings is not None
        self._new[sample.worker] = (sample, None if is_told or history is None else seen_last(history, sample))
        enough = len(self._new) >= max(len(self._histories.all()) // _SHARE, 1)
        return (*before, *self.rest()) if enough else before

    def rest(self) -> Sequence[Sample]:
        """Judges the samples that wait, and returns them."""
        new, self._new = list(self._new.values()), {}
        seen = [one for _, one in new if one is not None]
        if seen:
            now_unix_s = max(one.sample.time_unix_s + one.sample.took_s for one in seen)
            histories = self._histories.all()
            self._judge.judge(seen, {one.target.worker for one in histories if one.state(now_unix_s) == "stale"})
        return [sample if one is None else self._judged(sample) for sample, one in new]

    def findings(self, sample: Sample) -> Sequence[Finding]:
        """What is wrong with the worker of a judged sample, the worst first, told at length."""
        known = {one.finding: one for one in self._judge.findings([sample.worker])}
        if self._told is not None and self._told.findings is not None:
            known = {one.finding: one for one in self._told.findings if one.slice == sample.slice}
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

    def _judged(self, sample: Sample) -> Sample:
        worker = sample.worker
        return replace(sample, findings=self._judge.causes(worker), judged=self._judge.judged(worker))

"""What is remembered of each worker between samples: the one place that says what state it is in. Pure, no clock."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from tpumon.errors import MEANING, Reason
from tpumon.model import Sample, Target, Workers

State = Literal["waiting", "live", "stale", "busy", "paused", "down"]
"""waiting: not asked yet. live: answers, if with runtime metrics alone. stale: answered, but too long ago.
busy: someone else is profiling it. paused: `tpumon pause`. down: its last query failed for another reason."""


STEP_BUCKETS_S = (*(round(digit * 10.0**power, 6) for power in range(-3, 2) for digit in (1, 2, 5)), 100.0)
"""Upper bounds of the histogram of steps, 1 ms to 100 s; what is longer is counted above the last."""


@dataclass(slots=True)
class StepHistogram:
    """Every step that was seen in a trace.

    Attributes:
        counts: steps in each bucket of STEP_BUCKETS_S, not cumulated, and one more for longer ones.
        sum_s: their durations together.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(STEP_BUCKETS_S) + 1))
    sum_s: float = 0.0

    def add(self, durations_s: Iterable[float]) -> None:
        """Counts steps."""
        for duration_s in durations_s:
            self.counts[bisect_left(STEP_BUCKETS_S, duration_s)] += 1
            self.sum_s += duration_s


@dataclass(slots=True)
class WorkerHistory:
    """One worker's last samples, and counts over all of them.

    Attributes:
        target: the worker.
        last: its last query's sample, answered or not.
        answer: its last sample with figures of its profiler.
        changed_unix_s: start of the first of the samples in a row that led to the same state.
        samples: queries that its profiler answered.
        errors: queries that it did not, by reason.
        traced_s: how long its job was traced by all of them.
        tracing_since_unix_s: start of the first of them.
        steps: the steps seen in its traces; None before there was any.
    """

    target: Target
    last: Sample | None = None
    answer: Sample | None = None
    changed_unix_s: float | None = None
    samples: int = 0
    errors: Counter[Reason] = field(default_factory=Counter)
    traced_s: float = 0.0
    tracing_since_unix_s: float | None = None
    steps: StepHistogram | None = None

    def add(self, sample: Sample) -> None:
        """Notes one query's sample."""
        before = _state_of(self.last)
        self.last = sample
        if sample.failure is None:
            self.answer = sample
            self.samples += 1
        else:
            self.errors[sample.failure.reason] += 1
        if sample.figures.step_durations_s:
            self.steps = self.steps or StepHistogram()
            self.steps.add(sample.figures.step_durations_s)
        if _state_of(sample) != before:
            self.changed_unix_s = sample.time_unix_s
        self.traced_s += sample.traced_s
        if self.tracing_since_unix_s is None:
            self.tracing_since_unix_s = sample.time_unix_s

    def state(self, now_unix_s: float) -> State:
        """What to say of it now."""
        state = _state_of(self.last)
        return "stale" if state == "live" and self.last is not None and self.last.is_stale(now_unix_s) else state

    def current(self, now_unix_s: float) -> Sample | None:
        """The sample whose figures may be shown as the present ones; None where there is none."""
        return None if self.last is None or self.last.is_stale(now_unix_s) else self.last

    def is_up(self, now_unix_s: float) -> bool | None:
        """Whether it answers, with figures or with a reason why there are none; None where it is not asked."""
        if self.last is None or self.state(now_unix_s) == "paused":
            return None
        if self.last.answered:
            return not self.last.is_stale(now_unix_s)
        return self.last.failure is None or not MEANING[self.last.failure.reason].unreached

    def traced_ratio(self, now_unix_s: float) -> float | None:
        """The share of time for which its job was traced, since the first query; None before it."""
        if self.tracing_since_unix_s is None or now_unix_s <= self.tracing_since_unix_s:
            return None
        return self.traced_s / (now_unix_s - self.tracing_since_unix_s)


class Histories:
    """Every worker that is followed, in the order in which they were found."""

    def __init__(self) -> None:
        self._workers: dict[str, WorkerHistory] = {}
        self.waiting: str | None = None
        """Why there is no worker to follow; None where there is one, or nothing is known yet."""

    def follow(self, found: Workers) -> None:
        """From now on these are the workers; those that stay keep their history."""
        known = self._workers
        self._workers = {}
        for target in found.targets:
            history = known.get(target.worker) or WorkerHistory(target)
            history.target = target
            self._workers[target.worker] = history
        self.waiting = found.waiting

    def add(self, sample: Sample) -> WorkerHistory | None:
        """Notes a sample; one of a worker that is no longer followed comes too late and is dropped."""
        history = self._workers.get(sample.worker)
        if history is not None:
            history.add(sample)
        return history

    def get(self, worker: str) -> WorkerHistory | None:
        """The history of the worker of this name."""
        return self._workers.get(worker)

    def all(self) -> list[WorkerHistory]:
        """All of them."""
        return list(self._workers.values())


def _state_of(sample: Sample | None) -> State:
    if sample is None:
        return "waiting"
    if sample.failure is None:
        return "live"
    state = MEANING[sample.failure.reason].state
    return "live" if state == "down" and sample.answered else state

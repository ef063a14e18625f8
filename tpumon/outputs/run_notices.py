"""Notices: lines about how workers are sampled, and about those that do not answer.

A problem makes one line when it begins, one when its reason changes, and one when it ends. No server can
flood a log: each worker gets a few lines at once, then one a minute, and what is remembered of it has a limit. All
together get two hundred at once, then ten a minute: names may come and go without end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tpumon.analysis.history import state_of
from tpumon.errors import MEANING, Reason
from tpumon.model import Failure, Sample, Workers

_NUMBER = re.compile(r"\d+")
_MOST_NAMES = 5
_MOST_KINDS = 50  # of warnings that are remembered per worker
_MOST_WARNINGS = 20  # of one sample
_LINES_AT_ONCE, _LINES_PER_S = 10.0, 1 / 60  # about one worker
_ALL_AT_ONCE, _ALL_PER_S = 200.0, 1 / 6
_QUIET_LINES = 2.0  # that may be printed and are not: so nothing more comes to which what was left out could be added


@dataclass(slots=True)
class _Trouble:
    """Reason why a worker does not answer, and number of queries so far."""

    reason: Reason
    queries: int


class _Limit:
    """Limit of the lines that are passed on: some at once, then a few from time to time.

    Attributes:
        left_out: how many were not, since the last one that was.
    """

    __slots__ = ("_allowed", "_at_once", "_counted_s", "_per_s", "left_out")

    def __init__(self, at_once: float, per_s: float, now_s: float) -> None:
        self._at_once = self._allowed = at_once
        self._per_s = per_s
        self._counted_s = now_s
        self.left_out = 0

    def allowed(self, now_s: float) -> float:
        """Number of lines that may be passed on now."""
        self._allowed = min(self._allowed + (now_s - self._counted_s) * self._per_s, self._at_once)
        self._counted_s = now_s
        return self._allowed

    def pass_on(self, lines: list[str], now_s: float, about: str) -> list[str]:
        """Returns the lines that may pass; the first one after a gap says how many are missing."""
        shown = lines[: int(self.allowed(now_s))]
        if shown and self.left_out:
            shown[0] += f" (left out before: {self.left_out} lines{about})"
            self.left_out = 0
        self._allowed -= len(shown)
        self.left_out += len(lines) - len(shown)
        return shown


@dataclass(slots=True)
class _WorkerNotices:
    """Lines said about one worker.

    Attributes:
        limit: of lines about it.
        trouble: why it does not answer; None while it does.
        kinds: kinds of warnings that were reported, the latest last.
    """

    limit: _Limit
    trouble: _Trouble | None = None
    kinds: dict[str, None] = field(default_factory=dict)

    def is_new(self, kind: str) -> bool:
        """Tells that this kind of warning was not reported lately."""
        new = kind not in self.kinds
        self.kinds.pop(kind, None)
        self.kinds[kind] = None
        if len(self.kinds) > _MOST_KINDS:
            del self.kinds[next(iter(self.kinds))]
        return new


class Notices:
    """Turns the samples of a run into lines for stderr, few enough to be read.

    Args:
        clock_s: reads a monotonic clock.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._about: dict[str, _WorkerNotices] = {}
        self._limit = _Limit(_ALL_AT_ONCE, _ALL_PER_S, clock_s())
        self._exporter_of: dict[str, str] = {}
        self._exporter_trouble: dict[str | None, str] = {}  # by name; None: there is one only
        self._traced = False
        self._workers: Workers | None = None
        self.any_answered = False
        """Tells that any worker answered at least once, if only that nothing runs, or was not to be asked."""

    @property
    def none_answered(self) -> str:
        """The message for a run that ends without any answer."""
        targets = () if self._workers is None else self._workers.targets
        if len(targets) == 1:
            return f"{targets[0].address} never answered"
        return f"none of {len(targets)} workers ever answered"

    def update(self, event: Workers | Sample) -> list[str]:
        """Returns the lines to print about an event; usually none."""
        lines, now_s = self._lines(event), self._clock_s()
        if not lines and self._limit.left_out and self._limit.allowed(now_s) >= _QUIET_LINES:
            lines, self._limit.left_out = [f"left out before: {self._limit.left_out} lines"], 0
        return self._limit.pass_on(lines, now_s, "")

    def _lines(self, event: Workers | Sample) -> list[str]:
        if isinstance(event, Workers):
            return self._about_workers(event)
        self.any_answered = self.any_answered or state_of(event) not in {"down", "stale"}
        failure = event.failure
        if failure is not None and event.of_exporter:
            return self._about_exporter(self._exporter_of.get(event.worker), failure)
        exporter = self._exporter_of.get(event.worker)
        known = self._exporter_trouble.pop(exporter, None) is not None
        about_exporter = [f"{_exporter(exporter)} answers again"] if known else []
        about = self._about.get(event.worker)
        if about is None:
            about = self._about[event.worker] = _WorkerNotices(_Limit(_LINES_AT_ONCE, _LINES_PER_S, self._clock_s()))
        lines = _end(event, about) if failure is None else _trouble(event, failure, about)
        lines += _warnings(event, about)
        lines = about.limit.pass_on(lines, self._clock_s(), " about this worker") if lines else []
        return about_exporter + self._about_source(event) + lines

    def _about_workers(self, workers: Workers) -> list[str]:
        """Lines about why there are no workers, or which come and go."""
        before, self._workers = self._workers, workers
        followed = {target.worker for target in workers.targets}
        self._about = {worker: about for worker, about in self._about.items() if worker in followed}
        self._exporter_of = {
            target.worker: target.exporter for target in workers.targets if target.exporter is not None
        }
        there = {None, *self._exporter_of.values()}
        self._exporter_trouble = {name: why for name, why in self._exporter_trouble.items() if name in there}
        if not workers.targets:
            unchanged = before is not None and before.waiting == workers.waiting
            return [] if unchanged or workers.waiting is None else [f"WAITING: {workers.waiting}"]
        if before is None:
            return []
        gone = [target.worker for target in before.targets if target.worker not in followed]
        known = {target.worker for target in before.targets}
        new = [f"{target.worker} at {target.address}" for target in workers.targets if target.worker not in known]
        lines = [f"now following {_few(new)}"] if new else []
        return lines + ([f"no longer following {_few(gone)}"] if gone else [])

    def _about_source(self, sample: Sample) -> list[str]:
        """Tracing is the one thing that costs the job something; said once a run, whatever source does it."""
        if sample.failure is not None or not sample.traced_s or self._traced or sample.worker in self._exporter_of:
            return []
        self._traced = True
        interval = f", the next about {sample.interval_s:.0f} s later" if sample.interval_s else ""
        line = (
            f"{sample.address}: no Monitor RPC (UNIMPLEMENTED), as on every TPU VM; tracing the job "
            f"instead: {sample.traced_s:.1f} s this time{interval}"
        )
        return [line]

    def _about_exporter(self, exporter: str | None, failure: Failure) -> list[str]:
        """One line for all its workers: every sample has the same failure."""
        before, self._exporter_trouble[exporter] = self._exporter_trouble.get(exporter), failure.reason
        return [] if before == failure.reason else [f"{failure.message} [{failure.reason}]"]


def _exporter(name: str | None) -> str:
    return "the exporter" if name is None else f"exporter {name}"


def _warnings(sample: Sample, about: _WorkerNotices) -> list[str]:
    """The warnings of a trace, each kind once: the next sample usually repeats it."""
    warnings = sample.warnings[:_MOST_WARNINGS]
    return [f"{sample.worker}: {one.message}" for one in warnings if about.is_new(_NUMBER.sub("", one.message))]


def _end(sample: Sample, about: _WorkerNotices) -> list[str]:
    trouble, about.trouble = about.trouble, None
    if trouble is None:
        return []
    if MEANING[trouble.reason].state == "no-activity":
        return [f"{sample.worker}: runs again after {_queries(trouble.queries)} in which nothing ran"]
    return [f"{sample.worker}: answers again after {_queries(trouble.queries)} without an answer"]


def _trouble(sample: Sample, failure: Failure, about: _WorkerNotices) -> list[str]:
    before = about.trouble
    if before is not None and before.reason == failure.reason:
        before.queries += 1
        return []
    about.trouble = _Trouble(failure.reason, 1 if before is None else before.queries + 1)
    only = f"; showing {sample.source} metrics only" if sample.answered else ""
    return [f"{_place(sample.worker, failure)}{failure.message} [{failure.reason}]{only}"]


def _place(worker: str, failure: Failure) -> str:
    """The worker that failed, and its address, as the start of a line; one of them if it says both."""
    address = failure.address
    if address is None:
        return f"{worker}: "
    return f"{address}: " if worker in {address, address.rpartition(":")[0]} else f"{worker}: {address}: "


def _few(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (
        f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    )


def _queries(count: int) -> str:
    return "1 query" if count == 1 else f"{count} queries"

"""Notices: lines about how workers are sampled, and about workers that do not answer.

A problem makes one line when it begins, one when its reason changes, and one when it ends. No server can flood a log:
what is remembered of a worker has a limit, and the messages carry its name for `RepetitionFilter`.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field

from tpumon.analysis.history import state_of
from tpumon.errors import MEANING, Reason
from tpumon.model import Failure, Sample, Workers
from tpumon.untrusted_text import listed

_log = logging.getLogger(__name__)

_NUMBER = re.compile(r"\d+")
_MOST_NAMES = 5
_MOST_KINDS = 50  # of warnings that are remembered per worker
_MOST_WARNINGS = 20  # of one sample
_OF_SEVERAL = {"worker": ""}


@dataclass(slots=True)
class _Trouble:
    """Reason why a worker does not answer, and number of queries so far."""

    reason: Reason
    queries: int


@dataclass(slots=True)
class _WorkerNotices:
    """Lines said about one worker.

    Attributes:
        trouble: why it does not answer; None while it does.
        kinds: kinds of warnings that were reported, the latest last.
    """

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
    """Logs what the samples of a run show, in lines few enough to be read.

    Args:
        says_waiting: also why there is no worker.
    """

    def __init__(self, *, says_waiting: bool = True) -> None:
        self._says_waiting = says_waiting
        self._about: dict[str, _WorkerNotices] = {}
        self._exporter_of: dict[str, str] = {}
        self._silent_exporter_of: dict[str, str] = {}  # by worker, as its failure names it
        self._exporter_trouble: dict[str, Failure] = {}  # by that name
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

    def update(self, event: Workers | Sample) -> None:
        """Logs what there is to say about an event; usually nothing."""
        if isinstance(event, Workers):
            self._follow(event)
            return
        self.any_answered = self.any_answered or state_of(event) not in {"down", "stale"}
        if event.failure is not None and event.of_exporter:
            self._note_exporter(event.worker, event.failure)
            return
        exporter = self._silent_exporter_of.pop(event.worker, None)
        if exporter is not None and self._exporter_trouble.pop(exporter, None) is not None:
            _log.info("%s answers again", exporter, extra=_OF_SEVERAL)
        self._note_tracing(event)
        about = self._about.setdefault(event.worker, _WorkerNotices())
        if event.failure is None:
            _note_end(event, about)
        elif not (event.figures.server is not None and event.failure.reason == "empty-trace"):
            _note_trouble(event, event.failure, about)  # a server without requests is in none
        _note_warnings(event, about)

    def _follow(self, workers: Workers) -> None:
        """Notes why there are no workers, or which come and go."""
        before, self._workers = self._workers, workers
        followed = {target.worker for target in workers.targets}
        self._about = {worker: about for worker, about in self._about.items() if worker in followed}
        self._exporter_of = {
            target.worker: target.exporter for target in workers.targets if target.exporter is not None
        }
        silent = {worker: name for worker, name in self._silent_exporter_of.items() if worker in followed}
        self._silent_exporter_of, names = silent, set(silent.values())
        self._exporter_trouble = {name: why for name, why in self._exporter_trouble.items() if name in names}
        if not workers.targets:
            unchanged = before is not None and before.waiting == workers.waiting
            if self._says_waiting and not unchanged and workers.waiting is not None:
                _log.warning("WAITING: %s", workers.waiting, extra=_OF_SEVERAL)
            return
        if before is None:
            return
        known = {target.worker for target in before.targets}
        if new := [f"{target.worker} at {target.address}" for target in workers.targets if target.worker not in known]:
            _log.info("now following %s", listed(new, _MOST_NAMES), extra=_OF_SEVERAL)
        if gone := [target.worker for target in before.targets if target.worker not in followed]:
            _log.info("no longer following %s", listed(gone, _MOST_NAMES), extra=_OF_SEVERAL)

    def _note_tracing(self, sample: Sample) -> None:
        """Tracing is the one thing that costs the job something; said once a run, whatever source does it."""
        if sample.failure is not None or not sample.traced_s or self._traced or sample.worker in self._exporter_of:
            return
        self._traced = True
        _log.info(
            "%s: figures come from short traces of the job (its profiler has no Monitor RPC): %.1f s this time",
            sample.address,
            sample.traced_s,
            extra=_OF_SEVERAL,
        )

    def _note_exporter(self, worker: str, failure: Failure) -> None:
        """One line for all workers of an exporter, maybe one behind another: every sample has the same failure."""
        exporter = self._silent_exporter_of[worker] = failure.message.partition(": ")[0]
        before, self._exporter_trouble[exporter] = self._exporter_trouble.get(exporter), failure
        if before is None or before.reason != failure.reason:
            _log.warning("%s [%s]", failure.message, failure.reason, extra=_OF_SEVERAL)


def _note_warnings(sample: Sample, about: _WorkerNotices) -> None:
    """Notes the warnings of a trace, each kind once: the next sample usually repeats it."""
    for warning in sample.warnings[:_MOST_WARNINGS]:
        if about.is_new(_NUMBER.sub("", warning.message)):
            _log.warning("%s: %s", sample.worker, warning.message, extra={"worker": sample.worker})


def _note_end(sample: Sample, about: _WorkerNotices) -> None:
    trouble, about.trouble = about.trouble, None
    if trouble is None:
        return
    if trouble.reason == "paused":
        _log.info("%s: sampling goes on after the pause", sample.worker, extra={"worker": sample.worker})
        return
    if MEANING[trouble.reason].state == "no-activity":
        words = "%s: runs again after %s in which nothing ran"
    else:
        words = "%s: answers again after %s without an answer"
    _log.info(words, sample.worker, _queries(trouble.queries), extra={"worker": sample.worker})


def _note_trouble(sample: Sample, failure: Failure, about: _WorkerNotices) -> None:
    before = about.trouble
    if before is not None and before.reason == failure.reason:
        before.queries += 1
        return
    about.trouble = _Trouble(failure.reason, 1 if before is None or before.reason == "paused" else before.queries + 1)
    only = f"; showing {sample.source} metrics only" if sample.has_figures else ""
    place = _place(sample.worker, failure)
    _log.warning("%s%s [%s]%s", place, failure.message, failure.reason, only, extra={"worker": sample.worker})


def _place(worker: str, failure: Failure) -> str:
    """The worker that failed, and its address, as the start of a line; one of them if it says both."""
    address = failure.address
    if address is None:
        return f"{worker}: "
    return f"{address}: " if worker in {address, address.rpartition(":")[0]} else f"{worker}: {address}: "


def _queries(count: int) -> str:
    return "1 query" if count == 1 else f"{count} queries"

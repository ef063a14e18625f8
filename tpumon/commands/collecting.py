"""The samples that a judgement needs, for commands that end by themselves."""

from __future__ import annotations

import time

from tpumon.enough import needs_several, samples_of
from tpumon.errors import NoTargetError
from tpumon.feed import Feed, FeedSettings
from tpumon.fleet import Fleet
from tpumon.history import WorkerHistory, state_of
from tpumon.model import Workers
from tpumon.recording import Recording
from tpumon.system.console import say
from tpumon.view.notices import Notice

LOOK_S = 0.5

_RECENT_S = 3600.0  # of a recording
_LONG_S = 5.0
_PATIENCE_S = 5.0  # beyond the time that the samples of an exporter take


def collect(settings: FeedSettings, samples: int) -> Fleet:
    """Follows the workers until all have the samples that are needed, or no more are to come.

    Args:
        settings: where samples come from.
        samples: how many of each worker to wait for.

    Raises:
        NoTargetError: there is no worker.
    """
    fleet = Fleet(settings.output_options.thresholds, remember=not settings.takes_samples)
    waiting = Waiting(settings, fleet, samples)
    with Feed(settings, consumer="this machine") as feed:
        for event in feed.events(timeout_s=LOOK_S):
            if isinstance(event, Notice):
                say(event.text)
            elif event is not None:
                fleet.take(event)
                waiting.note(event)
            if waiting.is_over():
                break
    return fleet


class Waiting:
    """Decides when there are enough samples.

    Args:
        settings: where samples come from.
        fleet: what gets them.
        samples: how many of each worker to wait for.
    """

    def __init__(self, settings: FeedSettings, fleet: Fleet, samples: int) -> None:
        self._takes_samples = settings.takes_samples
        self._fleet = fleet
        self._samples = samples
        self._several: set[str] = set()  # workers of which several samples are needed
        self._waiting: str | None = None
        self._is_told = False
        self._deadline_s: float | None = None

    def note(self, event: object) -> None:
        """Takes note of why there is no worker, if the event says so."""
        if isinstance(event, Workers):
            self._waiting = event.waiting

    def is_over(self) -> bool:
        """Whether more samples would not change what is said, or do not come.

        Raises:
            NoTargetError: there is no worker.
        """
        histories = self._fleet.histories.all()
        if self._waiting is not None and not histories:
            raise NoTargetError(self._waiting)
        if not histories or any(history.last is None for history in histories):
            return False
        self._several.update(history.target.worker for history in histories if needs_several(history))
        missing = [history for history in histories if not self._is_settled(history)]
        if not missing and (short := [history for history in histories if self._may_tell_more(history)]):
            self._fleet.assess(time.time())
            missing = [history for history in short if self._fleet.needs_more(history.target.worker)]
        left_s = max((_left_s(history, self._samples) for history in missing), default=0.0)
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + left_s + _PATIENCE_S
        if not self._is_told and left_s > _LONG_S:
            self._is_told = True
            say(
                f"taking {self._samples} samples of each worker: about {left_s:.0f} s more; --num-queries 1 is "
                "faster and finds less"
            )
        return not missing or (not self._takes_samples and time.monotonic() > self._deadline_s)

    def _is_settled(self, history: WorkerHistory) -> bool:
        """Whether a worker has the samples that are needed, or has never answered."""
        never = state_of(history.last) not in {"live", "no-activity"} and not history.samples
        is_judged = history.last is not None and history.last.findings is not None
        return (
            never or is_judged or _queries(history) >= (self._samples if history.target.worker in self._several else 1)
        )

    def _may_tell_more(self, history: WorkerHistory) -> bool:
        """Whether samples of a worker may have been too short to count, so that a few more are worth their time."""
        if self._samples < self._fleet.thresholds.sustained or _queries(history) >= 2 * self._samples:
            return False
        return history.target.worker in self._several


def collect_recorded(settings: FeedSettings, where: str) -> tuple[Fleet, float]:
    """Reads the last hour of a recording; returns also the time at its end.

    Raises:
        UsageError: it holds no samples.
    """
    recording = Recording(where, say)
    _, end_unix_s = recording.span_unix_s()
    fleet = Fleet(settings.output_options.thresholds)
    judged_unix_s = 0.0
    for moment in recording.moments(end_unix_s - _RECENT_S):
        if fleet.is_due(moment.event, moment.time_unix_s - judged_unix_s):
            judged_unix_s = moment.time_unix_s
            fleet.assess(judged_unix_s)
        fleet.take(moment.event)
    return fleet, end_unix_s


def _left_s(history: WorkerHistory, samples: int) -> float:
    """About how long the samples take that are still to come."""
    interval_s = None if history.last is None else history.last.interval_s
    return max(samples - _queries(history), 0) * (interval_s or 0.0)


def _queries(history: WorkerHistory) -> int:
    return samples_of(history) + history.errors.total()

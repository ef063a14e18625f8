"""The samples that a judgement needs, for commands that end by themselves."""

from __future__ import annotations

import time

from tpumon.analysis import FleetStatus
from tpumon.analysis.sufficiency import needs_several, samples_of
from tpumon.errors import NoTargetError
from tpumon.feed import FeedSettings, open_feed
from tpumon.history import WorkerHistory, state_of
from tpumon.system.console import say

LOOK_S = 0.5

RECENT_S = 3600.0
"""How much of a recording is judged, from its end."""

_LONG_S = 5.0
_PATIENCE_S = 5.0  # beyond the time that the samples of an exporter take


def collect(settings: FeedSettings, samples: int) -> FleetStatus:
    """Follows the workers until all have the samples that are needed, or no more are to come.

    Args:
        settings: the source of samples.
        samples: number of samples of each worker to wait for.

    Returns:
        The status then; of a recording, at its end.

    Raises:
        NoTargetError: there is no worker.
        UsageError: there is no recording.
    """
    waiting = Waiting(settings, samples)
    with open_feed(settings, remembers=not settings.origin.takes_samples, last_s=RECENT_S) as feed:
        looked_s = 0.0
        for update in feed.updates(timeout_s=LOOK_S):
            now_s = time.monotonic()
            if settings.origin.is_over or (update is not None and now_s - looked_s < LOOK_S / 10):
                continue
            looked_s = now_s
            if waiting.is_over(feed.status()):
                break
        return feed.status()


class Waiting:
    """Decides when there are enough samples.

    Args:
        settings: the source of samples.
        samples: number of samples of each worker to wait for.
    """

    def __init__(self, settings: FeedSettings, samples: int) -> None:
        self._takes_samples = settings.origin.takes_samples
        self._sustained = settings.output_options.thresholds.sustained
        self._samples = samples
        self._several: set[str] = set()  # workers of which several samples are needed
        self._has_said = False
        self._deadline_s: float | None = None

    def is_over(self, status: FleetStatus) -> bool:
        """True if more samples would not change what is said, or do not come.

        Raises:
            NoTargetError: there is no worker.
        """
        workers = status.all()
        if status.waiting is not None and not workers:
            raise NoTargetError(status.waiting)
        if not workers or any(worker.history.last is None for worker in workers):
            return False
        self._several.update(worker.name for worker in workers if needs_several(worker.history))
        missing = [worker.history for worker in workers if not self._is_settled(worker.history)]
        if not missing:
            missing = [each.history for each in workers if each.needs_more and self._may_tell_more(each.history)]
        left_s = max((_left_s(history, self._samples) for history in missing), default=0.0)
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + left_s + _PATIENCE_S
        if not self._has_said and left_s > _LONG_S:
            self._has_said = True
            say(
                f"taking {self._samples} samples of each worker: about {left_s:.0f} s more; --num-queries 1 is "
                "faster and finds less"
            )
        return not missing or (not self._takes_samples and time.monotonic() > self._deadline_s)

    def _is_settled(self, history: WorkerHistory) -> bool:
        """True if a worker has the samples that are needed, or has never answered."""
        never = state_of(history.last) not in {"live", "no-activity"} and not history.samples
        is_judged = history.last is not None and history.last.findings is not None and not self._takes_samples
        return (
            never or is_judged or _queries(history) >= (self._samples if history.target.worker in self._several else 1)
        )

    def _may_tell_more(self, history: WorkerHistory) -> bool:
        """True if samples of a worker may have been too short to count, so that a few more are worth their time."""
        if self._samples < self._sustained or _queries(history) >= 2 * self._samples:
            return False
        return history.target.worker in self._several


def _left_s(history: WorkerHistory, samples: int) -> float:
    """About how long the samples take that are still to come."""
    interval_s = None if history.last is None else history.last.interval_s
    return max(samples - _queries(history), 0) * (interval_s or 0.0)


def _queries(history: WorkerHistory) -> int:
    return samples_of(history) + history.errors.total()

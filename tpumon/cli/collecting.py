"""The samples that a judgement needs, for commands that end by themselves."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator

from msgspec import Struct

from tpumon.analysis import FleetStatus, WorkerStatus
from tpumon.analysis.history import WorkerHistory, state_of
from tpumon.analysis.sufficiency import needs_several, samples_of
from tpumon.cli.one_sampler import with_one_sampler
from tpumon.errors import NoTargetError
from tpumon.outputs.live.progress import Bar
from tpumon.pipeline import Feed, FeedSettings, RecordedFeed, open_feed

_log = logging.getLogger(__name__)

LOOK_S = 0.5

RECENT_S = 3600.0
"""Seconds of a recording that are judged, from its end."""

_LONG_S = 5.0
_PATIENCE_S = 5.0  # beyond the time that the samples of an exporter take
_AGAIN_S = 0.05


class Needs(Struct, frozen=True, kw_only=True):
    """Samples that a judgement needs.

    Attributes:
        samples: of each worker.
        all_of_them: True to wait for all of them even where fewer suffice.
        timeout_s: how long to wait for them.
    """

    samples: int
    all_of_them: bool = False
    timeout_s: float = 120.0


def collect(settings: FeedSettings, needs: Needs) -> FleetStatus:
    """Follows the workers until all have the samples that are needed, no more are to come, or the time is over.

    Args:
        settings: the source of samples.
        needs: the samples to wait for.

    Returns:
        The status then; of a recording, at its end.

    Raises:
        NoTargetError: there is no worker.
        UsageError: there is no recording.
    """
    settings = with_one_sampler(settings)
    waiting = Waiting(settings, needs)
    with Bar(sys.stderr) as bar, open_feed(settings, remembers=True, last_s=RECENT_S) as feed:
        for _ in looks(feed):
            if settings.origin.is_over:
                continue
            if waiting.is_over(feed.status()):
                break
            waiting.show(bar)
        return feed.status()


def looks(feed: Feed | RecordedFeed) -> Iterator[None]:
    """Yields when the status may have changed: after an update, soon after another one, and twice a second at least."""
    looked_s = 0.0
    for update in feed.updates(timeout_s=LOOK_S):
        now_s = time.monotonic()
        if update is None or now_s - looked_s >= _AGAIN_S:
            looked_s = now_s
            yield


class Waiting:
    """Decides when there are enough samples.

    Args:
        settings: the source of samples.
        needs: the samples to wait for.
    """

    def __init__(self, settings: FeedSettings, needs: Needs) -> None:
        self._origin = settings.origin
        self._sustained = settings.output_options.thresholds.sustained
        self._needs = needs
        self._several: set[str] = set()  # workers of which several samples are needed
        self._began_s = time.monotonic()
        self._deadline_s: float | None = None
        self._left_s = 0.0
        self._shows = False

    def is_over(self, status: FleetStatus) -> bool:
        """True if more samples would not change what is said, or do not come.

        Raises:
            NoTargetError: there is no worker.
        """
        workers = status.all()
        if status.waiting is not None and not workers:
            raise NoTargetError(status.waiting)
        passed_s = time.monotonic() - self._began_s
        is_late = passed_s > self._needs.timeout_s
        if not workers or any(worker.history.last is None for worker in workers):
            if is_late:
                self._say_late(sum(worker.history.last is None for worker in workers))
            return is_late
        self._several.update(worker.name for worker in workers if needs_several(worker.history))
        missing = [worker.history for worker in workers if not self._is_settled(worker)]
        if not missing:
            missing = [each.history for each in workers if each.needs_more and self._may_tell_more(each.history)]
        self._left_s = max((_left_s(history, self._needs.samples) for history in missing), default=0.0)
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + self._left_s + _PATIENCE_S
        if missing and is_late:
            self._say_late(len(missing))
        return not missing or is_late or (not self._origin.takes_samples and time.monotonic() > self._deadline_s)

    def show(self, bar: Bar) -> None:
        """Says how long it takes: as a countdown on a terminal, otherwise in one line."""
        if not self._shows and self._left_s > _LONG_S:
            self._shows = True
            left_s = min(self._left_s, self._needs.timeout_s)
            if bar.refresh_s is None:
                _log.info("taking %s samples of each worker: %.0f s at most", self._needs.samples, left_s)
            bar.start(left_s, "sampling")
        bar.refresh()

    def _say_late(self, missing: int) -> None:
        _log.warning(
            "the time is over (%g s, --timeout): %s workers have too few samples; this is what is known",
            self._needs.timeout_s,
            missing,
        )

    def _is_settled(self, worker: WorkerStatus) -> bool:
        """True if a worker has the samples that are needed, or has never answered."""
        history = worker.history
        never = state_of(history.last) not in {"live", "no-activity"} and not history.samples
        is_judged = worker.judged_upstream and history.last is not None and history.last.findings is not None
        several = self._needs.all_of_them or worker.name in self._several
        return never or is_judged or _queries(history) >= (self._needs.samples if several else 1)

    def _may_tell_more(self, history: WorkerHistory) -> bool:
        """True if samples of a worker may have been too short to count, so that a few more are worth their time."""
        if self._needs.samples < self._sustained or _queries(history) >= 2 * self._needs.samples:
            return False
        return history.target.worker in self._several


def _left_s(history: WorkerHistory, samples: int) -> float:
    """Seconds that the samples take that are still to come, at most."""
    interval_s = None if history.last is None else history.last.interval_s
    return max(samples - _queries(history), 0) * (interval_s or 0.0)


def _queries(history: WorkerHistory) -> int:
    """Number of queries, answered or not; what is remembered counts both."""
    return max(samples_of(history), history.samples + history.errors.total())

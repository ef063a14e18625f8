"""`tpumon events`: what changed, and when: states, severities, restarts, captures."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from typing import TYPE_CHECKING, Literal

from msgspec.structs import asdict

from tpumon.analysis.history.slice_changes import QUICK_S, goes_away
from tpumon.cli.enough_samples import with_one_sampler
from tpumon.errors import NoTargetError, UsageError
from tpumon.model.documents import encoded
from tpumon.model.state import Event
from tpumon.moments import date_and_time
from tpumon.pipeline import AnyFeed, FeedSettings, RecordedFeed, open_feed
from tpumon.system.console import show
from tpumon.untrusted_text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpumon.analysis import FleetStatus, Update
    from tpumon.model import Change, Sample

_log = logging.getLogger(__name__)

_TICK_S = 1.0
_QUIET_S = 3.0
_PATIENCE_S = 3.0  # after the exporter's workers, the changes come at once


def run(*, feed: FeedSettings, output: Literal["text", "jsonl"] = "text", follow: bool = False) -> int:
    """Prints changes, oldest first: those an exporter remembers, and then new ones.

    Args:
        feed: where samples come from.
        output: the format.
        follow: go on with new changes; of an exporter only, as samples have no earlier ones.

    Returns:
        0.

    Raises:
        NoTargetError: the exporter does not answer; or, with `num_queries`, no worker ever answered.
        UsageError: the exporter is too old to remember changes.
        BrokenPipeError: the reader of stdout went away.
    """
    settings = with_one_sampler(feed)
    source, ends = settings.source, False
    began_s = time.monotonic()
    with (
        open_feed(settings, consumer="the reader of stdout") as changing,
        closing(_Printer(output, changing)) as printer,
    ):
        for update in changing.updates(timeout_s=_TICK_S):
            changes = () if update is None else update.changes
            ends = not (follow or source.takes_samples)
            if ends and not source.is_over:
                status = changing.status()
                if not _is_complete(update, status, time.monotonic() - began_s):
                    continue
                changes = status.changes
            printer.add(changes, None if update is None else update.sample)
            if not ends:
                printer.print_due()
            elif not source.is_over:
                break
        if ends and not printer.got:
            _log.info("%s", _no_change(changing))
    return 0


class _Printer:
    """Prints changes: as JSON a line each, in text one for what happened to a slice, which does not come all at once.

    Attributes:
        got: number of changes.
    """

    def __init__(self, output: str, feed: AnyFeed) -> None:
        self.got = 0
        self._output, self._feed = output, feed
        self._pending: list[Change] = []
        self._sampled: set[str] = set()
        self._awaited: set[str] | None = None  # None: not known of all that is pending
        self._first_s = self._last_s = 0.0

    def add(self, changes: Sequence[Change], sample: Sample | None = None) -> None:
        """Keeps changes until they are due; a sample tells whether its worker had them, too."""
        if not self._pending:
            self._sampled.clear()
        if sample is not None:
            self._sampled.add(sample.worker)
        if changes:
            self._last_s = time.monotonic()
            self._first_s = self._first_s if self._pending else self._last_s
            self.got += len(changes)
            self._pending += changes
            self._awaited = None

    def print_due(self) -> None:
        """Prints those to which no more belong, as far as can be told."""
        if not self._pending:
            return
        now_s = time.monotonic()
        is_due = self._output == "jsonl" or now_s - self._first_s > QUICK_S
        if is_due or (now_s - self._last_s > _QUIET_S and not self._misses_some() and not self._may_restart()):
            self.close()

    def _may_restart(self) -> bool:
        """True if a worker went away and no restart of it was seen yet: a quick one is all that is told."""
        restarted = {one.worker for one in self._pending if one.what == "restart"}
        return any(goes_away(one) and one.worker not in restarted for one in self._pending)

    def _misses_some(self) -> bool:
        """True if a worker that may have had what is pending, too, was not sampled since."""
        if self._awaited is None:
            targets = {name: worker.target for name, worker in self._feed.status().workers.items()}
            changed = [targets[one.worker] for one in self._pending if one.worker in targets]
            slices = {(one.job, one.slice) for one in changed if not one.independent}
            self._awaited = {
                name for name, one in targets.items() if (one.job, one.slice) in slices and not one.independent
            }
        return not self._awaited <= self._sampled

    def close(self) -> None:
        """Prints all that are pending, by time."""
        changes, self._pending = self._pending, []
        if self._output == "jsonl":
            for change in sorted(changes, key=lambda change: change.time_unix_s):
                show(encoded(Event(**asdict(change))))
        elif changes:
            for change in self._feed.status().by_slice(changes):
                show(f"{date_and_time(change.time_unix_s)}  {change.worker}  {change.sentence}")


def _is_complete(update: Update | None, status: FleetStatus, passed_s: float) -> bool:
    """True once all exporters have handed on what they remember, or have had the time.

    Raises:
        NoTargetError: none answers.
        UsageError: it remembers no changes.
    """
    if status.waiting is not None and passed_s > _PATIENCE_S:
        raise NoTargetError(status.waiting)
    missing = status.exporters_missing
    if not status.workers or (missing and passed_s < _PATIENCE_S):
        return False
    if len(missing) == len({worker.target.exporter for worker in status.all()}):
        if update is not None and update.sample is not None:
            raise UsageError("this exporter remembers no changes; update it, or add --follow to watch for new ones")
        return False
    if missing:
        names = listed(sorted(missing), 1)
        _log.warning("changes of exporter %s are missing: it has not handed them on in time", names)
    return True


def _no_change(feed: AnyFeed) -> str:
    if isinstance(feed, RecordedFeed):
        return f"no change from {date_and_time(feed.begin_unix_s)} to {date_and_time(feed.end_unix_s)}"
    return "no change since the exporter began to follow its workers"

"""`tpumon events`: what changed, and when: states, severities, restarts, captures."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Literal

from tpumon.errors import NoTargetError, UsageError
from tpumon.feed import AnyFeed, FeedSettings, RecordedFeed, open_feed
from tpumon.model import SCHEMA_VERSION
from tpumon.model.codec import to_plain
from tpumon.model.frozen import frozen
from tpumon.system.console import say, show

if TYPE_CHECKING:
    from tpumon.analysis import FleetStatus, Update
    from tpumon.model import Change

_TICK_S = 1.0
_PATIENCE_S = 3.0  # after the exporter's workers, the changes come at once


@frozen
class EventsSettings:
    """Settings of `tpumon events`.

    Attributes:
        feed: where samples come from.
        output: the format.
        follow: go on with new changes; of an exporter only, as samples have no earlier ones.
    """

    feed: FeedSettings
    output: Literal["text", "jsonl"] = "text"
    follow: bool = False


def run(settings: EventsSettings) -> int:
    """Prints changes, oldest first: those an exporter remembers, and then new ones.

    Returns:
        0.

    Raises:
        NoTargetError: the exporter does not answer; or, with `num_queries`, no worker ever answered.
        UsageError: the exporter is too old to remember changes.
        BrokenPipeError: the reader of stdout went away.
    """
    origin = settings.feed.origin
    ends = not (settings.follow or origin.takes_samples)
    printed, began_s = 0, time.monotonic()
    with open_feed(settings.feed, consumer="the reader of stdout") as feed:
        for update in feed.updates(timeout_s=_TICK_S):
            if update is not None:
                for change in update.changes:
                    show(_as_json(change) if settings.output == "jsonl" else _as_text(change))
                    printed += 1
            if ends and not origin.is_over and _is_complete(update, feed.status(), began_s):
                break
        if ends and not printed:
            say(_no_change(feed))
    return 0


def _is_complete(update: Update | None, status: FleetStatus, began_s: float) -> bool:
    """True once an exporter has handed on what it remembers.

    Raises:
        NoTargetError: it does not answer.
        UsageError: it remembers no changes.
    """
    if update is None:
        if status.waiting is not None and time.monotonic() - began_s > _PATIENCE_S:
            raise NoTargetError(status.waiting)
        return False
    if update.sample is not None:
        raise UsageError("this exporter remembers no changes; update it, or add --follow to watch for new ones")
    return update.past


def _no_change(feed: AnyFeed) -> str:
    if isinstance(feed, RecordedFeed):
        return f"no change from {_date(feed.begin_unix_s)} to {_date(feed.end_unix_s)}"
    return "no change since the exporter began to follow its workers"


def _as_text(change: Change) -> str:
    words = "" if change.what == "restart" or not change.words else f": {change.words}"
    return f"{_date(change.time_unix_s)}  {change.worker}  {change.title}{words}"


def _date(time_unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_unix_s))


def _as_json(change: Change) -> str:
    return json.dumps({"schema": SCHEMA_VERSION, **to_plain(change)}, allow_nan=False)

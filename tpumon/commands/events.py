"""`tpumon events`: what changed, and when: states, severities, restarts, captures."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Literal

from tpumon.errors import NoTargetError, UsageError
from tpumon.feed import Feed, FeedSettings, Recorded, Sampling
from tpumon.fleet import Fleet
from tpumon.model import SCHEMA_VERSION, Handover, Sample, Workers
from tpumon.model.codec import to_plain
from tpumon.model.frozen import frozen
from tpumon.recording import Recording
from tpumon.system.console import say, show
from tpumon.view.notices import Notice

if TYPE_CHECKING:
    from tpumon.model import Change

_TICK_S = 1.0
_PATIENCE_S = 3.0  # after the exporter's workers, the changes come at once


@frozen
class EventsSettings:
    """What to show.

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
    fleet = Fleet(settings.feed.output_options.thresholds)
    if isinstance(settings.feed.origin, Recorded):
        return _run_recorded(fleet, settings.feed.origin.where, settings.output)
    ends = not (settings.follow or isinstance(settings.feed.origin, Sampling))
    printed, waiting, began_s = 0, None, time.monotonic()
    with Feed(settings.feed, consumer="the reader of stdout") as feed:
        for event in feed.events(timeout_s=_TICK_S):
            if isinstance(event, Notice) and not ends:
                say(event.text)
            if isinstance(event, Sample) and ends:
                raise UsageError("this exporter remembers no changes; update it, or add --follow to watch for new ones")
            if isinstance(event, Workers):
                waiting = event.waiting
            if event is not None and not isinstance(event, Notice):
                fleet.take(event)
            if event is None or isinstance(event, Sample | Handover):
                fleet.assess(time.time())
            printed = _print_new(fleet, settings.output, printed)
            if isinstance(event, Handover) and ends:
                if not printed:
                    say("no change since the exporter began to follow its workers")
                break
            if event is None and ends and waiting is not None and time.monotonic() - began_s > _PATIENCE_S:
                raise NoTargetError(waiting)
    return 0


def _run_recorded(fleet: Fleet, where: str, output: str) -> int:
    """Prints the changes in a recording."""
    recording = Recording(where, say)
    begin_unix_s, end_unix_s = recording.span_unix_s()
    printed, judged_unix_s = 0, 0.0
    for moment in recording.moments():
        if fleet.is_due(moment.event, moment.time_unix_s - judged_unix_s):
            judged_unix_s = moment.time_unix_s
            fleet.assess(judged_unix_s)
            printed = _print_new(fleet, output, printed)
        fleet.take(moment.event)
    fleet.assess(end_unix_s)
    if not _print_new(fleet, output, printed):
        say(f"no change from {_date(begin_unix_s)} to {_date(end_unix_s)}")
    return 0


def _print_new(fleet: Fleet, output: str, printed: int) -> int:
    """Prints the changes after this number; returns the last one's."""
    for change in fleet.changes.all(after=printed):
        show(_as_json(change) if output == "jsonl" else _as_text(change))
        printed = change.number
    return printed


def _as_text(change: Change) -> str:
    words = "" if change.what == "restart" or not change.words else f": {change.words}"
    return f"{_date(change.time_unix_s)}  {change.worker}  {change.title}{words}"


def _date(time_unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_unix_s))


def _as_json(change: Change) -> str:
    return json.dumps({"schema": SCHEMA_VERSION, **to_plain(change)}, allow_nan=False)

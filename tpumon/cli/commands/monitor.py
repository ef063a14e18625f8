"""`tpumon`, levels 1 and 2: figures of every worker, query after query, on a terminal or in a pipe."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tpumon.cli.enough_samples import with_one_sampler
from tpumon.collection.event_sources import EventSource, RecordingSource
from tpumon.collection.recording import Recording
from tpumon.errors import NoTargetError, UsageError
from tpumon.outputs import Context, Export, GuardedOutput, Output, open_output
from tpumon.outputs.explained_text import ExplainedText
from tpumon.outputs.text_blocks import TextOutput
from tpumon.pipeline import Feed, FeedSettings, open_feed
from tpumon.system.console import pop_said, shown_by, terminal_is_utf_8

if TYPE_CHECKING:
    from tpumon.analysis import Update
    from tpumon.outputs.live.view_settings import DisplaySettings


_log = logging.getLogger(__name__)

_LIVE_OPS = 10  # costs 0.5 to 2 ms per trace, 1 to 3 % of reading it


class MonitorSettings(Struct, frozen=True, kw_only=True):
    """Settings of a view or a stream of samples.

    Attributes:
        feed: where samples come from, and the outputs beside stdout.
        display: how the live view looks.
        output: what to write to stdout: "auto", "live", "text" or an output.
        explain: write what is wrong below each block of text.
        color: of the live view: "auto", "always" or "never".
        number_samples: print capture_tpu_profile's header before each block of text.
    """

    feed: FeedSettings
    display: DisplaySettings
    output: str | Export = "auto"
    explain: bool = False
    color: str = "auto"
    number_samples: bool = False


def run(settings: MonitorSettings) -> int:
    """Shows samples until `num_queries` are done, the user quits, or a signal comes.

    Returns:
        0; 1 if the last sample could not be written to stdout.

    Raises:
        UsageError: an output cannot be opened.
        NoTargetError: with `num_queries`, no worker ever answered, or the filter fits none.
        BrokenPipeError: the reader of stdout went away.
    """
    if _is_live(settings):
        return _show_live(settings)
    if settings.feed.source.at is not None:
        raise UsageError("--at is for the live view, once and why; other outputs write all that was recorded")
    return _write(settings)


def _is_live(settings: MonitorSettings) -> bool:
    """Tells that the live view is drawn: asked for, or by default if the terminal allows it and the run has no end."""
    source = settings.feed.source
    ends = source.ends and not source.is_over
    if settings.output != "live" and (settings.output != "auto" or ends):
        return False
    from tpumon.outputs.live.loop.live import can_be_live

    obstacle = can_be_live()
    if settings.output == "live" and obstacle is not None:
        raise UsageError(f"--output live: {obstacle}; use --output text or jsonl")
    return obstacle is None


def _write(settings: MonitorSettings) -> int:
    most_ops, wanted = settings.feed.output_settings.ops, settings.display.filter
    others: set[str] = set()
    matched = has_said = False
    with ExitStack() as stack:
        feed = open_feed(settings.feed, consumer="the reader of stdout")
        writer = GuardedOutput(_stdout_output(settings, feed.context))
        stack.enter_context(closing(writer))
        stack.enter_context(feed)
        for update in feed.updates(timeout_s=writer.tick_s):
            sample = None if update is None else update.sample
            status = None if update is None else update.status
            is_shown = sample is None or not wanted or (status is not None and status.matches(wanted))
            matched = matched or (is_shown and sample is not None)
            if sample is not None and not is_shown:
                if sample.worker in others and not (matched or has_said):  # by now all were asked
                    has_said = True
                    _log.warning("%s; waiting for one", _no_fit(wanted, others))
                others.add(sample.worker)
            elif update is not None:
                writer.on_update(update.with_ops(most_ops))
            writer.tick_if_due()
        if others and not matched:
            raise NoTargetError(_no_fit(wanted, others))
        return 1 if writer.failing else 0


def _no_fit(wanted: str, others: set[str]) -> str:
    return f"--filter {wanted}: no worker has this name, state or finding: {', '.join(sorted(others)[:5])}"


def _stdout_output(settings: MonitorSettings, context: Context) -> Output:
    chosen = settings.output
    if isinstance(chosen, str):
        text = TextOutput(sys.stdout, level=context.settings.level, number_samples=settings.number_samples)
        return ExplainedText(text, context) if settings.explain else text
    return open_output(chosen.name, chosen.where, context, chosen.options, given="--output")


def _show_live(settings: MonitorSettings) -> int:
    from tpumon.collection.sources import titles
    from tpumon.outputs.live.display import Display
    from tpumon.outputs.live.loop import live
    from tpumon.outputs.live.player import KEYS, Player

    ascii_only = settings.display.ascii or not terminal_is_utf_8()
    feed_settings = with_one_sampler(settings.feed)
    said = pop_said()  # on stderr, which the view covers
    source = feed_settings.source.with_ops(_LIVE_OPS)
    display = replace(settings.display, ascii=ascii_only, sources=titles(), from_url=source.shown_name)

    def _nothing() -> tuple[Sequence[Update], bool]:
        return (), False

    def deliver(update: Update) -> None:
        if shown.from_url != source.shown_name:
            shown.begin_with(())  # what was said of the source of samples no longer holds
        shown.from_url, shown.progress = source.shown_name, source.progress
        shown.on_update(update)

    with ExitStack() as stack:
        read_end, write_end = os.pipe()
        for end in (read_end, write_end):
            os.set_blocking(end, False)
            stack.callback(os.close, end)
        shown: Display
        if source.is_over:
            shown = player = Player(replace(display, more_keys=(KEYS,)))
            stack.enter_context(shown_by(shown.notice, alone=os.isatty(2)))
            player.show(*_opened(source))
            fetch = _nothing  # it reads the recording itself
        else:
            feed = Feed(
                replace(feed_settings, source=source), wake=partial(_wake, write_end), remembers=True, shares=True
            )
            shown = Display(display, feed.context.analysis)
            shown.progress = source.progress
            stack.enter_context(shown_by(shown.notice, alone=os.isatty(2)))
            stack.enter_context(feed)
            fetch = feed.fetch
        shown.begin_with(said)
        live.run(shown, fetch, read_end, deliver=deliver, color=settings.color, ascii_only=ascii_only)
    return 0


def _opened(source: EventSource) -> tuple[Recording, float | None]:
    """A recording and the moment to show first: the requested moment, or the worst.

    Raises:
        UsageError: there is no recording, or nothing of that moment.
    """
    assert isinstance(source, RecordingSource)
    recording = Recording(source.where)
    if source.at is not None:
        return recording, recording.moment_of(source.at)
    if recording.is_long:
        _log.info("looking for the worst moment of %s; to see its end at once: --at -0s", recording.name)
    return recording, recording.worst_unix_s()


def _wake(write_end: int) -> None:
    with suppress(BlockingIOError, OSError):
        os.write(write_end, b"\0")

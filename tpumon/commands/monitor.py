"""`tpumon`, levels 1 and 2: figures of every worker, query after query, on a terminal or in a pipe."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tpumon.commands import replay
from tpumon.errors import UsageError
from tpumon.feed import Event, Feed, FeedSettings, Recorded, Remote, Sampling, for_outputs, hand_over
from tpumon.model.frozen import frozen
from tpumon.outputs import Export, Output, Speaking, TakingOver, Ticking, open_output, reason
from tpumon.system.console import say
from tpumon.view.explained import ExplainedText
from tpumon.view.notices import Notice
from tpumon.view.text import TextOutput

if TYPE_CHECKING:
    from tpumon.model import Handover, Sample, Workers
    from tpumon.view.settings import DisplaySettings


_LIVE_OPS = 10  # costs 0.5 to 2 ms per trace, 1 to 3 % of reading it


@frozen
class MonitorSettings:
    """What to show, and how.

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
        NoTargetError: with `num_queries`, no worker ever answered.
        BrokenPipeError: the reader of stdout went away.
    """
    return _show_live(settings) if _is_live(settings) else _write(settings)


def _is_live(settings: MonitorSettings) -> bool:
    """Whether to draw the live view: asked for, or by default if the terminal allows it and the run has no end."""
    origin = settings.feed.origin
    ends = isinstance(origin, Sampling) and origin.pace.num_queries > 0
    if settings.output != "live" and (settings.output != "auto" or ends):
        return False
    from tpumon.view.loop.live import can_be_live

    obstacle = can_be_live()
    if settings.output == "live" and obstacle is not None:
        raise UsageError(f"--output live: {obstacle}; use --output text or jsonl")
    return obstacle is None


def _write(settings: MonitorSettings) -> int:
    origin = settings.feed.origin
    with ExitStack() as stack:
        writer = stack.enter_context(closing(_Writer(_stdout_output(settings))))
        if isinstance(origin, Recorded):
            events: Iterator[Event | None] = replay.events_of(origin.where)
        else:
            feed = stack.enter_context(Feed(settings.feed, consumer="the reader of stdout"))
            events = feed.events(timeout_s=writer.tick_s)
        for event in events:
            if isinstance(event, Notice):
                say(event.text)
            elif event is not None:
                hand_over(for_outputs(event, settings.feed.output_options), writer)
            writer.tick()
        return 1 if writer.failing else 0


def _stdout_output(settings: MonitorSettings) -> Output:
    options = settings.feed.output_options
    chosen = settings.output
    if isinstance(chosen, str):
        text = TextOutput(sys.stdout, level=options.level, number_samples=settings.number_samples)
        if not settings.explain:
            return text
        explained = ExplainedText(text, options.thresholds)
        explained.say = say
        return explained
    output = open_output(chosen.name, chosen.where, options, chosen.options, given="--output")
    if isinstance(output, Speaking):
        output.say = say
    return output


class _Writer:
    """Writes to stdout in the main thread, and carries on if it cannot.

    Attributes:
        tick_s: seconds between ticks; None: the output needs none.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._failing: set[str] = set()  # what was tried: a tick that works says nothing about writing
        self.tick_s = output.tick_s if isinstance(output, Ticking) else None
        self._tick_due_s = 0.0 if self.tick_s is None else time.monotonic() + self.tick_s

    @property
    def failing(self) -> bool:
        """Whether the last sample, or what a tick had to write, could not be written."""
        return bool(self._failing)

    def follow(self, workers: Workers) -> None:
        self._output.follow(workers)

    def write(self, sample: Sample) -> None:
        self._attempt("write", partial(self._output.write, sample), "; trying again with each sample")

    def take_over(self, handover: Handover) -> None:
        if isinstance(self._output, TakingOver):
            self._output.take_over(handover)

    def tick(self) -> None:
        """Lets the output do its work of the meantime, if that is due."""
        if self.tick_s is not None and time.monotonic() >= self._tick_due_s and isinstance(self._output, Ticking):
            self._attempt("tick", partial(self._output.tick, time.time()), "; trying again")
            self._tick_due_s = time.monotonic() + self.tick_s

    def _attempt(self, what: str, call: Callable[[], None], again: str) -> None:
        try:
            call()
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - one output's failure must not stop sampling and the other outputs
            if what not in self._failing:
                say(f"cannot write samples: {reason(error)}{again}")
            self._failing.add(what)
        else:
            self._failing.discard(what)

    def close(self) -> None:
        self._output.close()


def _show_live(settings: MonitorSettings) -> int:
    from tpumon.sources import titles
    from tpumon.view.display import Display
    from tpumon.view.loop import live
    from tpumon.view.loop.encoding import terminal_is_utf_8
    from tpumon.view.replay import KEYS

    ascii_only = settings.display.ascii or not terminal_is_utf_8()
    if isinstance(settings.feed.origin, Recorded):
        recorded = replace(
            settings.display, ascii=ascii_only, sources=titles(), from_url=settings.feed.origin.where, more_keys=(KEYS,)
        )
        replay.show(settings.feed.origin.where, recorded, color=settings.color, ascii_only=ascii_only)
        return 0
    from_url = _shown_url(settings.feed)
    display = Display(replace(settings.display, ascii=ascii_only, from_url=from_url, sources=titles()))

    def deliver(event: Event) -> None:
        if isinstance(event, Notice):
            display.notice(event.text)
        else:
            hand_over(event, display)

    with ExitStack() as stack:
        read_end, write_end = os.pipe()
        for end in (read_end, write_end):
            os.set_blocking(end, False)
            stack.callback(os.close, end)
        # Messages of outputs and discoveries go to stderr, which the loop shows while it has the terminal.
        wake = partial(_wake, write_end)
        taken = _with_ops(settings.feed)
        feed = stack.enter_context(Feed(taken, consumer="this machine", wake=wake, looked_at=lambda: display.looked_at))
        live.run(display, feed.fetch, read_end, deliver=deliver, color=settings.color, ascii_only=ascii_only)
    return 0


def _with_ops(settings: FeedSettings) -> FeedSettings:
    """The settings of a feed whose samples have the operations that the live view shows."""
    origin = settings.origin
    if not isinstance(origin, Sampling):
        return settings
    query = replace(origin.query, ops=max(origin.query.ops, _LIVE_OPS))
    return replace(settings, origin=replace(origin, query=query))


def _shown_url(settings: FeedSettings) -> str | None:
    """The exporters that are shown, without passwords; None if tpumon samples itself."""
    if not isinstance(settings.origin, Remote):
        return None
    from tpumon.remote import shown

    return shown(settings.origin.url)


def _wake(write_end: int) -> None:
    with suppress(BlockingIOError, OSError):
        os.write(write_end, b"\0")

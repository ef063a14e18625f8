"""Recorded samples in place of a feed: all at once in a pipe, or in the live view with keys that move the time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from tpumon.recording import Recording
from tpumon.system.console import say

if TYPE_CHECKING:
    from tpumon.feed import Event
    from tpumon.view.display import Display
    from tpumon.view.settings import DisplaySettings


def events_of(where: str) -> Iterator[Event]:
    """Yields all that was recorded. There are no notices: they would be about what happens now.

    Raises:
        UsageError: there is no recording.
    """
    recording = Recording(where, say)
    recording.span_unix_s()
    return (moment.event for moment in recording.moments())


def show(where: str, display: DisplaySettings, *, color: str, ascii_only: bool) -> None:
    """Shows a recording in the live view until the user quits.

    Raises:
        UsageError: there is no recording.
    """
    from tpumon.view.display import Display
    from tpumon.view.loop import live
    from tpumon.view.replay import Player

    shown = Display(display)
    player = Player(shown, Recording(where, shown.notice))
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    try:
        live.run(
            cast("Display", player),
            lambda: ((), False),
            read_end,
            deliver=lambda _event: None,
            color=color,
            ascii_only=ascii_only,
        )
    finally:
        os.close(read_end)
        os.close(write_end)

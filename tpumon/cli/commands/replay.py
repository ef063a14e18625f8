"""Recorded samples in the live view, with keys that move the time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tpumon.collection.recording import Recording

if TYPE_CHECKING:
    from tpumon.outputs.live.view_settings import DisplaySettings
    from tpumon.pipeline import FeedSettings


def show(feed: FeedSettings, display: DisplaySettings, *, color: str, ascii_only: bool) -> None:
    """Shows a recording in the live view until the user quits.

    Raises:
        UsageError: there is no recording.
    """
    from tpumon.outputs.live.loop import live
    from tpumon.outputs.live.replay import Player

    player = Player(display)
    player.show(Recording(feed.origin.shown_name or "", player.notice))
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    try:
        live.run(
            player,
            lambda: ((), False),
            read_end,
            deliver=lambda _update: None,
            color=color,
            ascii_only=ascii_only,
        )
    finally:
        os.close(read_end)
        os.close(write_end)

"""Changes of workers, a line each."""

from __future__ import annotations

from collections.abc import Sequence

from tpumon.model import Change
from tpumon.model.state import SINCE_OR_EARLIER
from tpumon.outputs.drawing.cells import clock
from tpumon.outputs.drawing.line import Line, Lines, cut, tame
from tpumon.outputs.drawing.style import BADGES, DIM, NOT_SEEN_BADGE
from tpumon.outputs.live.parts.frame import Frame

_TIME = 11


def change_lines(frame: Frame, changes: Sequence[Change], name_width: int) -> Lines:
    """A line per change: time, mark since then, worker, and reason."""
    lines: Lines = []
    labels = frame.scene.labels.at(name_width) if name_width else {}
    for change in changes:
        badge = BADGES[change.status] if change.is_seen else NOT_SEEN_BADGE
        line = Line(frame.width).fill(1).add(clock(change.time_unix_s, frame.now_unix_s).rjust(_TIME), DIM).fill(2)
        line.add(badge.mark, badge.style).fill(1)
        if change.what == "exporter":
            name = tame(change.worker, ascii_only=frame.glyphs.ascii)
            line.add(cut(f"{name} {change.sentence}", line.room, frame.glyphs.ellipsis), badge.style)
            lines.append(line.segments())
            continue
        if name_width:
            name = labels.get(change.worker) or tame(change.worker, ascii_only=frame.glyphs.ascii)
            line.add(cut(name, name_width, frame.glyphs.ellipsis).ljust(name_width)).fill(2)
        line.add(_what(change, badge.word), badge.style)
        why = tame(change.words, ascii_only=frame.glyphs.ascii)
        if why and change.what != "restart" and line.room > 4:
            line.add(": ").add(cut(why, line.room, frame.glyphs.ellipsis))
        lines.append(line.segments())
    return lines


def _what(change: Change, words: str) -> str:
    """The change, and the mark before it: `critical, was ok`."""
    if change.what in {"restart", "capture-began"}:
        return change.title
    if change.what == "capture-ended":
        return f"{words}, capture ended"
    if change.since_or_earlier:
        return f"{words} {SINCE_OR_EARLIER}"
    was = None if change.before is None else BADGES[change.before].word
    return words if was is None or was == words else f"{words}, was {was}"

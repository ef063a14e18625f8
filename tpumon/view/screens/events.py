"""What changed: of all workers, or of the one whose page is open."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tpumon.model import Change
from tpumon.view.drawing.cells import clock
from tpumon.view.drawing.lines import Line, Lines, cut, plain, tame
from tpumon.view.drawing.style import BOLD, DIM, LOOKS
from tpumon.view.parts.frame import Frame
from tpumon.view.parts.scene import Row
from tpumon.view.screens.controls import Controls
from tpumon.view.screens.screen import Drawn, Hit, Screen, opening

_NAME_SHARE = 4  # of the width, a name takes one part at most
_WORDS = {"restart": "job restarted", "capture-began": "capture began", "capture-ended": "capture ended"}


class Events(Screen):
    """Every change that is remembered, the newest first."""

    name = "events"
    title = "the list of changes"
    opened_by = opening(
        "events", "e", hint="changes", words="list what changed and when; on a worker's page, its changes"
    )

    def about(self, frame: Frame) -> Row | None:
        """On top of a worker's page, that worker."""
        return frame.opened_row

    def draw(self, frame: Frame) -> Drawn:
        """A line per change; a click opens the worker."""
        row = frame.opened_row
        changes = frame.scene.changes_of(None if row is None else row.name)[::-1]
        if not changes:
            whom = "any worker" if row is None else frame.scene.labels.whole(row.name)
            return Drawn(lines=[plain(f" no change of {whom} since it is followed", frame.width)])
        names = [frame.scene.labels.whole(change.worker) for change in changes]
        width = min(max(map(len, names)), frame.width // _NAME_SHARE)
        title = plain(f" {len(changes)} change{'s' if len(changes) > 1 else ''}, newest first", frame.width, BOLD)
        hits = [Hit(place, 0, frame.width, partial(_open, change.worker)) for place, change in enumerate(changes, 1)]
        return Drawn(lines=[title, *change_lines(frame, changes, width)], hits=hits)


def _open(worker: str, controls: Controls) -> None:
    controls.open_page(worker)


def change_lines(frame: Frame, changes: Sequence[Change], name_width: int) -> Lines:
    """A line per change: when, what the worker counts as since then, who, and why."""
    lines: Lines = []
    labels = frame.scene.labels.at(name_width) if name_width else {}
    for change in changes:
        look = LOOKS[change.mark]
        line = Line(frame.width).fill(1).add(clock(change.time_unix_s, frame.now_unix_s).rjust(11), DIM).fill(2)
        line.add(look.mark, look.style).fill(1)
        if name_width:
            name = labels.get(change.worker) or tame(change.worker, ascii_only=frame.glyphs.ascii)
            line.add(cut(name, name_width, frame.glyphs.ellipsis).ljust(name_width)).fill(2)
        line.add(_what(change), look.style)
        why = tame(change.words, ascii_only=frame.glyphs.ascii)
        if why and change.what != "restart" and line.room > 4:
            line.add(": ").add(cut(why, line.room, frame.glyphs.ellipsis))
        lines.append(line.segments())
    return lines


def _what(change: Change) -> str:
    """What happened, and what the worker counted as before: `critical, was ok`."""
    words = LOOKS[change.mark].word
    if change.what in _WORDS:
        return _WORDS[change.what] if change.what != "capture-ended" else f"{words}, {_WORDS[change.what]}"
    was = None if change.before is None else LOOKS[change.before].word
    return words if was is None or was == words else f"{words}, was {was}"

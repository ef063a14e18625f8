"""Changes of all workers, or of the one whose page is open."""

from __future__ import annotations

from operator import methodcaller

from tpumon.analysis import WorkerStatus
from tpumon.outputs.drawing.line import plain
from tpumon.outputs.drawing.style import BOLD
from tpumon.outputs.live.parts.change_lines import change_lines
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.screens.screen import Hit, Picture, Screen, opening

_NAME_SHARE = 4  # of the width, a name takes one part at most


class EventsScreen(Screen):
    """Every change that is remembered, the newest first."""

    name = "events"
    title = "the list of changes"
    opened_by = opening(
        "events", "e", hint="changes", words="list what changed and when; on a worker's page, its changes"
    )

    def about(self, frame: Frame) -> WorkerStatus | None:
        return frame.opened_row

    def draw(self, frame: Frame) -> Picture:
        """A line per change, one for what happened to a slice; a click opens the worker, or the first of them."""
        row = frame.opened_row
        changes = frame.scene.changes_of(None if row is None else row.name)
        if not changes:
            whom = "any worker" if row is None else frame.scene.labels.whole(row.name)
            return Picture(lines=[plain(f" no change of {whom} since it is followed", frame.width)])
        shown = frame.scene.status.by_slice(changes)[::-1]
        names = [change.worker for change in shown if change.what != "exporter"]
        width = min(max(map(len, names), default=0), frame.width // _NAME_SHARE)
        title = plain(f" {len(shown)} change{'s' if len(shown) > 1 else ''}, newest first", frame.width, BOLD)
        first = {change.number: change.worker for change in changes}
        hits = [
            Hit(place, 0, frame.width, methodcaller("open_page", first[change.number]))
            for place, change in enumerate(shown, 1)
            if first[change.number] in frame.scene.status.workers
        ]
        return Picture(lines=[title, *change_lines(frame, shown, width)], hits=hits)

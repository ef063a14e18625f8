"""A worker's page: everything that is known about it."""

from __future__ import annotations

from tpumon.analysis import WorkerStatus
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.parts.notes import about
from tpumon.outputs.live.screens.screen import SPAN_KEYS, Key, Picture, Screen
from tpumon.outputs.live.worker.worker_page import WorkerPage

_LEAST_CHART_HEIGHT = 5


class WorkerScreen(Screen):
    """Figures, graphs, step parts, cores, devices, warnings, queries and messages of one worker."""

    name = "worker"
    title = "the worker's page"
    keys = (
        Key(
            names=("n", "N"),
            hint=lambda controls: "next" if len(controls.rows) > 1 else "",
            words="go to the next worker (n) or the previous one (N), in the list's order",
            press=lambda controls, key: controls.open_neighbour(1 if key == "n" else -1),
        ),
        *SPAN_KEYS,
    )

    def fits(self, frame: Frame) -> bool:
        return frame.opened_row is not None

    def about(self, frame: Frame) -> WorkerStatus | None:
        return frame.opened_row

    def draw(self, frame: Frame) -> Picture:
        """All of it; graphs grow into what would be empty."""
        row = frame.opened_row
        assert row is not None, "shown only where it fits"
        page = WorkerPage(frame, row, about(frame.messages, row.history.target))
        lines = page.all_lines(max(frame.height // 3, 2 * _LEAST_CHART_HEIGHT))
        place = next((place for place, other in enumerate(frame.rows, start=1) if other.name == row.name), None)
        return Picture(lines=lines, notes=[] if place is None else [f"worker {place}/{len(frame.rows)}"])

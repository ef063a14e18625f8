"""The only worker of a job: its figures and graphs, as many as fit."""

from __future__ import annotations

from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.parts.page import Page
from tpumon.outputs.live.screens.screen import Drawn, Screen
from tpumon.outputs.live.screens.spans import SPAN_KEYS
from tpumon.outputs.live.screens.workers import OPEN_WORKER, filter_notes


class Alone(Screen):
    """One worker in place of a list."""

    name = "alone"
    title = "the only worker's screen"
    keys = (OPEN_WORKER, *SPAN_KEYS)

    def fits(self, frame: Frame) -> bool:
        """If there is one worker and the filter does not hide it."""
        return len(frame.scene.rows) == 1 and len(frame.rows) == 1

    def draw(self, frame: Frame) -> Drawn:
        """Figures first; graphs fill the rest."""
        return Drawn(lines=Page(frame, frame.rows[0]).screen(frame.height), notes=filter_notes(frame))

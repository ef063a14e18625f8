"""What is shown while there is no job to watch."""

from __future__ import annotations

from tpumon.outputs.live.drawing.line import Line, tame, wrapped
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.screens.screen import Drawn, Screen


class Waiting(Screen):
    """Why there are no workers yet, and what to do."""

    name = "waiting"
    title = "the waiting screen"

    def fits(self, frame: Frame) -> bool:
        """While there are no workers."""
        return not frame.scene.rows

    def draw(self, frame: Frame) -> Drawn:
        """The reason that discovery gives."""
        text = tame(frame.scene.status.waiting or "looking for workers", ascii_only=frame.glyphs.ascii)
        parts = wrapped(text, frame.width - 2)
        return Drawn(lines=[[], *(Line(frame.width).fill(1).add(part).segments() for part in parts)])

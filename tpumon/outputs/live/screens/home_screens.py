"""Home screens of no worker and of one."""

from __future__ import annotations

from tpumon.outputs.drawing.line import Line, tame, wrapped
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.screens.screen import SPAN_KEYS, Picture, Screen
from tpumon.outputs.live.screens.workers_screen import OPEN_WORKER, filter_notes
from tpumon.outputs.live.worker.worker_page import WorkerPage


class WaitingScreen(Screen):
    """The reason why there are no workers yet, and what to do."""

    name = "waiting"
    title = "the waiting screen"

    def fits(self, frame: Frame) -> bool:
        return not frame.scene.rows

    def draw(self, frame: Frame) -> Picture:
        """The reason that discovery gives; what goes on meanwhile, and what to do."""
        text = tame(frame.scene.status.waiting or "looking for jobs", ascii_only=frame.glyphs.ascii)
        parts = ["", *wrapped(text, frame.width - 2)]
        if frame.from_url is None and frame.scene.status.waiting is not None:
            parts += ["", "It is looked for all the time."]
            for command, words in _WAYS_OUT:
                if command not in text:
                    parts += ["", *wrapped(f"{words}: {command}", frame.width - 2)]
        return Picture(lines=[Line(frame.width).fill(1).add(part).segments() if part else [] for part in parts])


_WAYS_OUT = (
    ("tpumon run -- python train.py", "To start a program so that it is found"),
    ("tpumon doctor", "To see what is here, what answers, and what is missing"),
)


class SingleWorkerScreen(Screen):
    """One worker in place of a list."""

    name = "alone"
    title = "the only worker's screen"
    keys = (OPEN_WORKER, *SPAN_KEYS)

    def fits(self, frame: Frame) -> bool:
        return len(frame.scene.rows) == 1 and len(frame.rows) == 1

    def draw(self, frame: Frame) -> Picture:
        """Figures first; graphs fill the rest."""
        return Picture(lines=WorkerPage(frame, frame.rows[0]).lines_that_fit(frame.height), notes=filter_notes(frame))

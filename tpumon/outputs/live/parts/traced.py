"""For how long jobs are traced: by all tpumons of this host where their files tell, else by whose samples are shown."""

from __future__ import annotations

from typing import NamedTuple

from tpumon.analysis import WorkerStatus
from tpumon.model.progress import TRACED_S
from tpumon.outputs.live.drawing.cells import short_time
from tpumon.outputs.live.parts.frame import Frame


class TracedShare(NamedTuple):
    """The share of the last minutes for which a job was traced; `words` say of which, and by whom."""

    ratio: float
    words: str


def traced_share(frame: Frame, row: WorkerStatus) -> TracedShare | None:
    """The share of a worker's job; None: it was not traced."""
    if frame.progress is not None and not frame.recorded and not frame.controls.frozen:
        now_unix_s, traced = frame.clock_unix_s, frame.progress.traced(row.history.target.address)
        ratio = None if traced is None else traced.ratio(now_unix_s)
        if traced is not None and ratio is not None:
            of_s = traced.of_s(now_unix_s)
            last = "10 min" if of_s == TRACED_S else short_time(of_s)
            return TracedShare(ratio, f"of the last {last} by all tpumons of this host")
    own = row.history.traced_ratio(frame.scene.time_unix_s)
    return None if own is None else TracedShare(own, "of the last 10 min")


def most_traced(frame: Frame) -> float | None:
    """The share of the job that is traced most; None: none is."""
    shares = [traced_share(frame, row) for row in frame.scene.rows]
    return max((share.ratio for share in shares if share is not None), default=None)

"""Words about the sampler: its current action and its next sample, for the header and before the first figure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tpumon.analysis import WorkerStatus
from tpumon.model.progress import Doing
from tpumon.outputs.live.parts.frame import Frame

_SOON_S = 2.0  # samples that come more often need no countdown
_SECOND = 1.0
_LATE = 1.5  # intervals
_CELLS = len("next 10s")


def doing_of(frame: Frame, row: WorkerStatus) -> Doing | None:
    """The current action on a worker; for a worker of an exporter, the likely time of its next sample."""
    if frame.recorded or frame.controls.frozen:
        return None
    if frame.progress is not None:
        return frame.progress.of(row.history.target.address)
    last = row.history.last
    if frame.from_url is None or last is None or not last.interval_s or last.of_exporter:
        return None
    begun, until = last.time_unix_s, last.time_unix_s + last.interval_s
    if not begun < until < math.inf:
        return None
    return Doing(
        words="the next sample comes",
        brief="due",
        begun_unix_s=begun,
        until_unix_s=until,
        waits=True,
    )


def countdown(frame: Frame, row: WorkerStatus | None) -> str:
    """`next 7s`, or what is done now; always as wide. Empty where samples come all the time.

    Args:
        frame: what is shown.
        row: the worker that the screen is about; None: all workers, and the next query of any counts.
    """
    doing = _next(frame, [row] if row is not None else frame.scene.rows)
    if doing is None:
        return ""
    left_s = doing.left_s(frame.clock_unix_s)
    text = doing.brief if not doing.waits else f"next {left_s:>2}s" if left_s else "next now"
    return text.ljust(_CELLS)


def changes_in_s(frame: Frame, row: WorkerStatus | None) -> float | None:
    """Seconds until what is said of waiting is another; None: not before something comes in."""
    rows = [row] if row is not None else frame.scene.rows
    doing = _next(frame, rows)
    if doing is None:
        waits = frame.progress is not None and any(each.verdict.state == "waiting" for each in rows)
        return _SECOND if waits else None
    if not doing.waits or doing.until_unix_s is None:
        return _SECOND
    return (doing.until_unix_s - frame.clock_unix_s) % _SECOND or _SECOND


def waiting_words(frame: Frame, row: WorkerStatus, *, late_only: bool = False) -> str:
    """The current action on a worker, in a few words; empty: it is not known.

    Args:
        frame: what is shown.
        row: the worker.
        late_only: only why its next sample is late.
    """
    doing, last = doing_of(frame, row), row.history.last
    if doing is None or (late_only and not (doing.why and last is not None)):
        return ""
    is_late = last is None or frame.clock_unix_s - last.time_unix_s > _LATE * (last.interval_s or 0.0)
    return doing.text(frame.clock_unix_s) if is_late or not late_only else ""


def _next(frame: Frame, rows: Sequence[WorkerStatus]) -> Doing | None:
    """The action that comes next among these workers; None: none, or samples come all the time."""
    intervals_s = [row.history.last.interval_s for row in rows if row.history.last is not None]
    if sum(1 / each for each in intervals_s if each) > 1 / _SOON_S:
        return None
    known = [doing for row in rows if (doing := doing_of(frame, row)) is not None]
    if len(known) == 1:
        return known[0]
    waiting = [doing for doing in known if doing.waits and doing.until_unix_s is not None]
    return min(waiting, key=lambda doing: doing.until_unix_s or 0.0, default=None)

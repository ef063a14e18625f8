"""How a worker spends its steps: waiting for others, or its own work."""

from __future__ import annotations

from tpumon.figures import STEP
from tpumon.findings.base import Seen


def waited_ratio(seen: Seen) -> float | None:
    """Share of the time that a worker waits for others or for its host: what is not its own work; None: not known.

    Of whole steps where there is a trace; otherwise idle time and time in collectives.
    """
    work_s, step_s = seen.figures.step_work_s, STEP.value(seen.figures)
    if work_s is not None and step_s:
        return max(1 - work_s / step_s, 0.0)
    idle, ops = seen.figures.idle_ratio, seen.figures.op_time_ratios
    return None if idle is None else min(idle + (ops or {}).get("collective", 0.0), 1.0)


def own_work_s(seen: Seen) -> float | None:
    """Time of a step in which a worker does not wait; None: not known."""
    waited, step_s = waited_ratio(seen), STEP.value(seen.figures)
    return None if waited is None or not step_s else (1 - waited) * step_s

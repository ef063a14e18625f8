"""How workers are, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from operator import itemgetter
from statistics import median

from tpumon.model import Cause, Mark, Severity, State
from tpumon.model.frozen import frozen


@frozen
class Verdict:
    """The assessment of one worker.

    Attributes:
        state: state of the worker.
        severity: that of its worst cause.
        causes: why it is marked, worst first.
        since_unix_s: while it is live and well, since when it is well; while it is in trouble, warning or critical,
            since when; otherwise since when it is in this state. Gaps that say nothing about a worker (another session,
            a pause, a late sample) do not count. None: it was never queried.
        critical_since_unix_s: since when it is critical; None: it is not.
        excess: how far its worst figure exceeds its warning limit, as a fraction of that limit; 0 if none does.
    """

    state: State
    severity: Severity
    causes: tuple[Cause, ...] = ()
    since_unix_s: float | None = None
    critical_since_unix_s: float | None = None
    excess: float = 0.0

    @property
    def mark(self) -> Mark:
        """What the worker counts as: its severity while it is live, otherwise its state."""
        return self.severity if self.state == "live" else self.state

    @property
    def rank(self) -> int:
        """Sort key that puts the worst first; 0 is the worst."""
        return _RANKS[self.mark]


_RANKS = {
    name: rank
    for rank, name in enumerate(
        ("down", "critical", "no-activity", "stale", "warn", "waiting", "busy", "continuous", "paused", "unknown", "ok")
    )
}


@frozen
class Across:
    """One figure over all workers that have it now; `count` is their number.

    Attributes:
        min_worker, max_worker: name of the first worker with the min, and of the first with the max.
    """

    count: int
    min: float
    avg: float
    max: float
    median: float
    min_worker: str
    max_worker: str


@frozen
class Assessment:
    """All workers at one moment.

    Attributes:
        verdicts: by worker, in the order of `Workers.targets`.
        figures: by key of `tpumon.figures`; only those that at least one worker has.
        counts: number of workers by severity; those that are not live, by state.
    """

    verdicts: Mapping[str, Verdict]
    figures: Mapping[str, Across]
    counts: Mapping[Mark, int]


def across_of(found: Sequence[tuple[float, str]]) -> Across | None:
    """One figure over the workers that have it; None if none has.

    Args:
        found: value and worker.
    """
    if not found:
        return None
    values = sorted(value for value, _ in found)
    count = len(values)
    return Across(
        count=count,
        min=values[0],
        avg=fsum([value / count for value in values]),  # of the sum, the largest floats would overflow
        max=values[-1],
        median=median(values),
        min_worker=min(found, key=itemgetter(0))[1],
        max_worker=max(found, key=itemgetter(0))[1],
    )

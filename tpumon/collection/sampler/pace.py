"""Pace of queries: intervals, share of a job's time, pauses after failures."""

from __future__ import annotations

import math
import random
from collections.abc import Collection
from statistics import median

from msgspec import Struct

from tpumon.system.ledger import USUAL_DUTY_RATIO

JITTER_RATIO = 0.1
LONGEST_PAUSE_S = 10.0
"""The longest pause after failures."""

_LEAST_WORKERS = 8
_LATE = 1.5
_FIRST_PAUSE_S = 0.5
_LONGEST_TICK_S = 0.1


class Pace(Struct, frozen=True, kw_only=True):
    """Intervals of queries, and their number.

    Attributes:
        interval_s: from one query's start to the next; 0: back to back; None: the source's usual interval.
        max_duty_ratio: the largest share of time for which a job may be traced, by all tpumons of this host.
        attempts: attempts at one query before it counts as failed.
        num_queries: queries per worker; 0: until cancelled.
        awaited: how many a command waits for, which then cancels them; 0: none does.
    """

    interval_s: float | None = None
    max_duty_ratio: float = USUAL_DUTY_RATIO
    attempts: int = 3
    num_queries: int = 0
    awaited: int = 0


def jittered(duration_s: float) -> float:
    """Changes `duration_s` by up to 10 %, so that sampling neither locks onto a job's steps nor comes in bursts."""
    return duration_s * random.uniform(1 - JITTER_RATIO, 1 + JITTER_RATIO)


def pause_after_failures(count: int) -> float:
    """Seconds to wait after `count` failures in a row: doubling from 0.5 s to 10 s, jittered."""
    return jittered(min(LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(count - 1, 10)))


class KeepingUp:
    """Notices when answered queries come later than planned, because there are too many for this machine.

    One slow worker says nothing; half of at least eight does. Before second queries, it tells how many of the queried
    workers have answered, because the others come first.
    """

    def __init__(self) -> None:
        self._passed_s: dict[str, float] = {}  # from each worker's last query but one to its last
        self._late: set[str] = set()
        self._late_twice: set[str] = set()  # in a row: the first time may be the start, or that tpumon was stopped
        self._said = False
        self._round_s = 0.0
        self._unanswered: dict[str, float] = {}  # workers asked for the first time, and when
        self._asked = 0  # workers that were asked since all had answered

    def first_asked(self, worker: str, now_s: float) -> None:
        """Notes that a worker is asked for the first time."""
        if not self._unanswered:
            self._asked = 0
        self._unanswered[worker] = now_s
        self._asked += 1

    def first_answered(self, worker: str, now_s: float) -> float | None:
        """Notes that this query has ended.

        Returns:
            How long it would take at this rate until all that were asked have answered; None: they are few.
        """
        asked_s = self._unanswered.pop(worker, None)
        if asked_s is None or self._asked < _LEAST_WORKERS:
            return None
        self._round_s = (now_s - asked_s) * self._asked / max(self._asked - len(self._unanswered), 1)
        return self._round_s

    def note(self, worker: str, planned_s: float, actual_s: float) -> None:
        """Notes how much time was to pass from one query of a worker to the next, and how much did."""
        self._passed_s[worker] = actual_s
        is_late = actual_s > _LATE * planned_s
        (self._late_twice.add if is_late and worker in self._late else self._late_twice.discard)(worker)
        (self._late.add if is_late else self._late.discard)(worker)

    def forget(self, workers: Collection[str]) -> None:
        """Keeps what is known of these workers only."""
        self._passed_s = {worker: passed_s for worker, passed_s in self._passed_s.items() if worker in workers}
        self._late.intersection_update(workers)
        self._late_twice.intersection_update(workers)
        self._unanswered = {worker: asked_s for worker, asked_s in self._unanswered.items() if worker in workers}

    @property
    def round_s(self) -> float | None:
        """The time that `first_answered` returned last; None: all that were asked have answered, or they are few."""
        return self._round_s if self._unanswered and self._asked >= _LEAST_WORKERS and self._round_s else None

    @property
    def interval_s(self) -> float | None:
        """The interval that results; None: as planned."""
        workers = len(self._passed_s)
        return median(self._passed_s.values()) if 2 * len(self._late) >= workers >= _LEAST_WORKERS else None

    def advice(self) -> str | None:
        """Advice for the user, once; None: nothing new, or the start is not over."""
        if self._said or 2 * len(self._late_twice) < len(self._passed_s) or (interval_s := self.interval_s) is None:
            return None
        self._said = True
        return (
            f"most workers are queried every {interval_s:.0f} s only: they answer too late for --interval, or this "
            f"machine is too slow for it (then raise it to {math.ceil(1.2 * interval_s)} s)"
        )


def on_tick(due_s: float, interval_s: float) -> float:
    """Due time moved to the nearest tick of the interval, so that workers due together wake this process once."""
    tick_s = min(interval_s / 10, _LONGEST_TICK_S)
    return round(due_s / tick_s) * tick_s

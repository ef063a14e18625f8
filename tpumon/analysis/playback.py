"""Recorded events, analysed by the clock of the recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from tpumon.analysis.analysis import Analysis
from tpumon.analysis.status import Update
from tpumon.model import Sample, Workers

_LOOK_S = 5.0
_LOOKS = 30  # after that all workers are stale that become so


class Recorded(Protocol):
    """One recorded event."""

    @property
    def time_unix_s(self) -> float:
        """The time at which it was known."""

    @property
    def event(self) -> Workers | Sample:
        """The workers from then on, or a sample."""


def played(analysis: Analysis, moments: Iterable[Recorded]) -> Iterator[Update]:
    """Updates of recorded events, with those of the time between them, in which workers may become stale."""
    before_unix_s: float | None = None
    for moment in moments:
        if before_unix_s is not None:
            yield from between(analysis, before_unix_s, moment.time_unix_s)
        before_unix_s = moment.time_unix_s
        yield analysis.take(moment.event)


def between(analysis: Analysis, begin_unix_s: float, end_unix_s: float) -> Iterator[Update]:
    """Updates of a time in which no event was recorded."""
    looks = min(int((end_unix_s - begin_unix_s) // _LOOK_S), _LOOKS)
    times = [begin_unix_s + number * _LOOK_S for number in range(1, looks + 1)]
    times += [end_unix_s] if int(begin_unix_s) < int(end_unix_s) else []  # each second, as a feed does
    for time_unix_s in times:
        update = analysis.tick(time_unix_s)
        if update is not None:
            yield update

"""The current action of a sampler on each worker, for outputs that show why they wait."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from msgspec import Struct

from tpumon.errors import Detail


class Doing(Struct, frozen=True, kw_only=True):
    """An action on a worker.

    Attributes:
        words: in a few words: `a trace of 500 ms is taken`; what comes next, if it waits: `asked again`.
        brief: in one word: `tracing`.
        why: why it waits; empty: as usual.
        detail: what it would be as a failure; None: no more is known of it.
        all_unix_s: when a command will have all of its samples, as is likely; None: not known, or it is no command.
        begun_unix_s: since when.
        until_unix_s: when it is likely to be over; None: not known.
        waits: True if nothing is done until then.
        is_held: True if the worker is not asked for as long as something holds it, such as a pause.
    """

    words: str
    brief: str
    begun_unix_s: float
    until_unix_s: float | None = None
    waits: bool = False
    is_held: bool = False
    why: str = ""
    all_unix_s: float | None = None
    detail: Detail | None = None

    def left_s(self, now_unix_s: float) -> int | None:
        """Whole seconds until the action ends, 0 if it is late; None: not known. At most the length of the action."""
        if self.until_unix_s is None:
            return None
        left_s = min(self.until_unix_s - now_unix_s, self.until_unix_s - self.begun_unix_s)
        return max(math.ceil(left_s), 0)

    def text(self, now_unix_s: float) -> str:
        """Words for the action, with the seconds left and the reason: `asked again in 7 s`."""
        left_s = self.left_s(now_unix_s)
        words = f"{self.words} in {left_s} s" if self.waits and left_s is not None else self.words
        if self.all_unix_s is not None:
            words += f", all samples in about {max(math.ceil(self.all_unix_s - now_unix_s), left_s or 0)} s"
        return f"{words}: {self.why}" if self.why else words


TRACED_S = 600.0
"""The time of which it is told for how long a job was traced; less if the job is younger."""


class Traced(Struct, frozen=True):
    """The time for which all tpumons of this host have traced a job lately, as far as this one knows.

    Attributes:
        begun_unix_s: when the job began; 0: not known.
        spans: begin and end, and for how many seconds it was traced in between.
        since_unix_s: when a trace began that has not ended; 0: there is none.
    """

    begun_unix_s: float
    spans: tuple[tuple[float, float, float], ...]
    since_unix_s: float = 0.0

    def of_s(self, now_unix_s: float) -> float:
        """The time of which `ratio` is a share."""
        return min(max(now_unix_s - self.begun_unix_s, 1.0), TRACED_S)

    def ratio(self, now_unix_s: float) -> float | None:
        """The share of that time for which it was traced; None: it was not."""
        from_unix_s = now_unix_s - self.of_s(now_unix_s)
        traced_s = max(now_unix_s - max(self.since_unix_s, from_unix_s), 0.0) if self.since_unix_s else 0.0
        for begin_s, end_s, seconds in self.spans:
            within_s = end_s - max(begin_s, from_unix_s)
            traced_s += seconds * (min(within_s / (end_s - begin_s), 1.0) if end_s > begin_s else 1.0) * (within_s >= 0)
        return min(max(traced_s, 0.0) / self.of_s(now_unix_s), 1.0) if self.spans or self.since_unix_s else None


class Progress:
    """The current action on each worker, by its address, and for how long its job was traced. One thread writes.

    Others may read.

    Args:
        clock: returns seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._doing: dict[str, Doing] = {}
        self._traced: dict[str, Traced] = {}

    def of(self, address: str) -> Doing | None:
        """The current action on a worker; None: nothing was said."""
        return self._doing.get(address)

    def traced(self, address: str) -> Traced | None:
        """For how long a worker's job was traced lately; None: nothing was said."""
        return self._traced.get(address)

    def note_traced(self, address: str, traced: Traced) -> None:
        """Notes for how long its job was traced."""
        self._traced[address] = traced

    def does(
        self, address: str, words: str, brief: str, *, takes_s: float | None = None, detail: Detail | None = None
    ) -> None:
        """Something is done now, which is likely to take so long."""
        now_unix_s = self._clock()
        until_unix_s = None if takes_s is None else now_unix_s + max(takes_s, 0.0)
        self._doing[address] = Doing(
            words=words, brief=brief, begun_unix_s=now_unix_s, until_unix_s=until_unix_s, detail=detail
        )

    def waits(
        self,
        address: str,
        words: str,
        left_s: float,
        why: str = "",
        all_s: float | None = None,
        *,
        is_held: bool = False,
    ) -> None:
        """Nothing is done until something comes, after so many seconds; all that a command waits for, after `all_s`."""
        now_unix_s = self._clock()
        self._doing[address] = Doing(
            words=words,
            brief="waiting",
            begun_unix_s=now_unix_s,
            until_unix_s=now_unix_s + max(left_s, 0.0),
            waits=True,
            is_held=is_held,
            why=why,
            all_unix_s=None if all_s is None else now_unix_s + all_s,
        )

    def forget(self, address: str) -> None:
        """The worker is not followed any more."""
        self._doing.pop(address, None)
        self._traced.pop(address, None)

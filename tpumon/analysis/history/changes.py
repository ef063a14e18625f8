"""The changes that are remembered: a bounded list, oldest first."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from heapq import merge

from msgspec.structs import replace

from tpumon.model import Change

MOST_CHANGES = 5000
"""Most changes of all workers that are remembered."""

MOST_OF_A_WORKER = 200
"""Most changes of one worker: one that changes all the time must not displace the others."""


class Changes:
    """The last changes of all workers."""

    def __init__(self) -> None:
        self._of: dict[str, deque[Change]] = {}
        self._count = 0
        self._all: tuple[Change, ...] | None = ()  # None: to be merged again
        self._new: list[Change] = []
        self.number = 0
        """Number given last, to a change or to what a worker counts as; 0: none was."""
        self.last = 0
        """Number of the last change; 0: there was none."""

    def next_number(self) -> int:
        """Counts: readers ask for what has a larger number than what they know."""
        self.number += 1
        return self.number

    def pop_new(self) -> tuple[Change, ...]:
        """The changes since the last call."""
        new, self._new = tuple(self._new), []
        return new

    def add(self, change: Change) -> None:
        """Remembers a change, with the next number. Beyond the limits the oldest are forgotten."""
        change = replace(change, number=self.next_number())
        self._new.append(change)
        of_worker = self._of.setdefault(change.worker, deque())
        of_worker.append(change)
        self._all = None
        self._count += 1
        self.last = change.number
        if len(of_worker) > MOST_OF_A_WORKER:
            of_worker.popleft()
            self._count -= 1
        elif self._count > MOST_CHANGES:
            longest = max(self._of, key=lambda worker: len(self._of[worker]))
            self._of[longest].popleft()
            self._count -= 1
            if not self._of[longest]:
                del self._of[longest]

    def all(self) -> tuple[Change, ...]:
        """The changes that are remembered, by number."""
        if self._all is None:
            self._all = tuple(merge(*self._of.values(), key=lambda change: change.number))
        return self._all

    def after(self, number: int) -> list[Change]:
        """Changes with a larger number."""
        if self.last <= number:
            return []
        changes = self.all()
        return list(changes[bisect_right(changes, number, key=lambda change: change.number) :])

"""The changes that are remembered: a bounded list, oldest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import merge

from tpumon.model import Change

MOST_CHANGES = 5000
"""How many changes of all workers are remembered."""

MOST_OF_A_WORKER = 200
"""How many of one worker are: one that changes all the time must not displace the others."""


class Changes:
    """The last changes of all workers."""

    def __init__(self) -> None:
        self._of: dict[str, deque[Change]] = {}
        self._count = 0
        self.last = 0
        """Number of the last change; 0: there was none."""

    def add(self, change: Change) -> None:
        """Remembers a change; numbers must grow. Beyond the limits the oldest are forgotten."""
        of_worker = self._of.setdefault(change.worker, deque())
        of_worker.append(change)
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

    def replace(self, changes: Iterable[Change]) -> None:
        """Forgets all, and remembers these."""
        self._of, self._count, self.last = {}, 0, 0
        for change in changes:
            self.add(change)

    def all(self, worker: str | None = None, *, after: int = 0) -> list[Change]:
        """The changes that are remembered, oldest first.

        Args:
            worker: only those of this worker; None: of all.
            after: only those with a larger number.
        """
        kept = self._of.values() if worker is None else [self._of.get(worker, deque())]
        newer = ([change for change in changes if change.number > after] for changes in kept)
        return list(merge(*newer, key=lambda change: change.number))

"""Items from one thread to another: many cost few wake-ups, and what is not fetched stays bounded."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_Item = TypeVar("_Item")

_WAITING_LIMIT = 10_000
_BATCH_S = 0.02  # many workers send many items; waking up for each would cost more than handling it
_SIGNALS_S = 1.0


class Mailbox(Generic[_Item]):
    """A bounded queue between two threads.

    Args:
        wake: called in the sender's thread when there is something to fetch, or nothing more will come; must not block.
        is_lasting: says of an item that it holds until the next one of its kind: it is never dropped, the next one
            replaces it, and it comes before the others.

    Attributes:
        dropped: number of items dropped, oldest first, because they were not fetched in time.
    """

    def __init__(
        self,
        *,
        wake: Callable[[], None] = lambda: None,
        is_lasting: Callable[[_Item], bool] = lambda _item: False,
    ) -> None:
        self._wake = wake
        self._is_lasting = is_lasting
        self._changed = threading.Condition()
        self._lasting: _Item | None = None
        self._items: deque[_Item] = deque(maxlen=_WAITING_LIMIT)
        self._closed = False
        self.dropped = 0

    def send(self, item: _Item) -> None:
        """Leaves an item; never blocks."""
        with self._changed:
            first = not self._has_any()
            if self._is_lasting(item):
                self._lasting = item
            else:
                self.dropped += len(self._items) == self._items.maxlen
                self._items.append(item)
            if first:
                self._changed.notify()
        if first:
            self._wake()

    def close(self) -> None:
        """Says that nothing more will come."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._wake()

    def fetch(self) -> tuple[Sequence[_Item], bool]:
        """Returns the items since the last call, without waiting, and whether there will be no more."""
        with self._changed:
            items = [] if self._lasting is None else [self._lasting]
            items += self._items
            self._lasting = None
            self._items.clear()
            return items, self._closed

    def batches(self, timeout_s: Callable[[], float | None] = lambda: None) -> Iterator[tuple[Sequence[_Item], bool]]:
        """Yields what `fetch` returns, until there will be no more.

        Args:
            timeout_s: returns for how long to wait for the next item before yielding none; None: until there is one.
        """
        ended = False
        while not ended:
            wait_s = timeout_s()
            with self._changed:
                # The main thread handles a signal that another thread got, but not while it waits.
                while not self._changed.wait_for(self._is_due, _SIGNALS_S if wait_s is None else wait_s):
                    if wait_s is not None:
                        break
            items, ended = self.fetch()
            yield items, ended
            if items and not ended:
                time.sleep(_BATCH_S)

    def _is_due(self) -> bool:
        return self._has_any() or self._closed

    def _has_any(self) -> bool:
        return bool(self._items) or self._lasting is not None

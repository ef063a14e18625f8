"""A coroutine in a thread of its own, and the events it sends to the main thread.

Sampling runs there and showing here, so that a terminal or pipe that stands still holds up neither.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from types import TracebackType

_Event = TypeVar("_Event")

_WAITING_LIMIT = 10_000
_STOP_S = 3.0
_BATCH_S = 0.02  # many workers make many events; waking up for each of them would cost more than the event


class Background(Generic[_Event]):
    """Runs `main(send)` in a thread; `events()` yields in the main thread what was sent.

    A context manager; leaving it cancels the coroutine and waits for it, for 3 s at most.

    Args:
        main: gets `send`, which never blocks. What is not fetched in time is dropped, oldest first.
        keep: which events are never dropped; those must be few.
        wake: called in that thread when something can be fetched, or the coroutine has ended; must not block.
    """

    def __init__(
        self,
        main: Callable[[Callable[[_Event], None]], Coroutine[None, None, None]],
        *,
        wake: Callable[[], None] = lambda: None,
        keep: Callable[[_Event], bool] = lambda _event: False,
    ) -> None:
        self._main = main
        self._keep = keep
        self._wake = wake
        self._waiting: deque[_Event] = deque()
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._done = False
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="tpumon-background", daemon=True)
        self.dropped = 0
        """Events that were dropped because nobody fetched them."""

    def events(self, *, timeout_s: float | None = None) -> Iterator[_Event | None]:
        """Yields events until the coroutine has ended, then raises what it raised.

        Args:
            timeout_s: yield None when nothing was sent for so long.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._done, timeout_s)
                ended = self._done
                fetched, self._waiting = self._waiting, deque()
            yield from fetched
            if ended:
                break
            if fetched:
                time.sleep(_BATCH_S)
            else:
                yield None
        if self._error is not None:
            raise self._error

    def fetch(self) -> tuple[Sequence[_Event], bool]:
        """What was sent since, without waiting; and whether nothing will follow. Then raises what the coroutine raised.

        For a main thread that waits for other things as well: `wake` tells it when to fetch.
        """
        with self._changed:
            ended = self._done
            fetched, self._waiting = self._waiting, deque()
        if ended and not fetched and self._error is not None:
            raise self._error
        return fetched, ended

    def __enter__(self) -> Background[_Event]:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            if not self._done:
                self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(_STOP_S)

    def _send(self, event: _Event) -> None:
        with self._changed:
            if len(self._waiting) >= _WAITING_LIMIT:
                self._drop_oldest()
            first = not self._waiting
            if first:
                self._changed.notify()
            self._waiting.append(event)
        if first:
            self._wake()

    def _drop_oldest(self) -> None:
        kept = []
        while self._waiting and self._keep(event := self._waiting.popleft()):
            kept.append(event)
        self._waiting.extendleft(reversed(kept))
        self.dropped += 1

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._task = self._loop.create_task(self._main(self._send))
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self._error = error
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            with self._changed:
                self._done = True
                self._changed.notify()
            self._wake()
            self._loop.close()

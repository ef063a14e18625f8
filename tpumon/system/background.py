"""A coroutine in its own thread, and the events it sends to the main thread.

Sampling runs there and showing here, so that a blocked terminal or pipe does not delay sampling.
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
_BATCH_S = 0.02  # many workers send many events; waking up for each would cost more than handling it


class Background(Generic[_Event]):
    """Runs `main(send)` in a thread; `events()` yields what it sends in the main thread.

    A context manager; leaving it cancels the coroutine and waits for it, for 3 s at most.

    Args:
        main: gets `send`, which never blocks. Events that are not fetched in time are dropped, oldest first.
        wake: called in that thread when there are events to fetch, or the coroutine has ended; must not block.
        keep: says which events are never dropped; those must be few.
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
        self._loop: asyncio.AbstractEventLoop  # made on entering, so that what is never entered needs no closing
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="tpumon-background", daemon=True)
        self.dropped = 0
        """The number of events dropped because they were not fetched in time."""

    def events(self, *, timeout_s: float | None = None) -> Iterator[_Event | None]:
        """Yields events until the coroutine has ended, then raises what it raised.

        Args:
            timeout_s: yield None if nothing was sent for this long; None: wait.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._done, timeout_s)
            fetched, ended = self.fetch()
            yield from fetched
            if ended and not fetched:
                return
            if not fetched:
                yield None
            elif not ended:
                time.sleep(_BATCH_S)

    def fetch(self) -> tuple[Sequence[_Event], bool]:
        """Returns the events since the last call, without waiting, and whether there will be no more.

        The call after the last events raises what the coroutine raised. For a main thread that also waits for other
        things: `wake` says when to fetch.
        """
        with self._changed:
            ended = self._done
            fetched, self._waiting = self._waiting, deque()
        if ended and not fetched and self._error is not None:
            raise self._error
        return fetched, ended

    def __enter__(self) -> Background[_Event]:
        self._loop = asyncio.new_event_loop()
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
            self._loop.run_until_complete(asyncio.sleep(0))  # connections that are being closed
            with self._changed:
                self._done = True
                self._changed.notify()
            self._wake()
            self._loop.close()

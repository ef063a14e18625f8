"""A coroutine in its own thread, and the events it sends to the main thread.

Sampling runs there and showing here, so that a blocked terminal or pipe does not delay sampling.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from tpumon.system.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

_Event = TypeVar("_Event")

_STOP_S = 3.0
_BEAT_S = 1.0


class Background(Generic[_Event]):
    """Runs `main(send)` in a thread; `events()` yields what it sends in the main thread.

    A context manager; leaving it cancels the coroutine and waits for it, for 3 s at most.

    Args:
        main: gets `send`, which never blocks. Events that are not fetched in time are dropped, oldest first.
        wake, is_lasting: as of `Mailbox`.
    """

    def __init__(
        self,
        main: Callable[[Callable[[_Event], None]], Coroutine[None, None, None]],
        *,
        wake: Callable[[], None] = lambda: None,
        is_lasting: Callable[[_Event], bool] = lambda _event: False,
    ) -> None:
        self._main = main
        self._mailbox = Mailbox[_Event](wake=wake, is_lasting=is_lasting)
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop  # made on entering, so that what is never entered needs no closing
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="tpumon-background", daemon=True)

    @property
    def dropped(self) -> int:
        """The number of events dropped because they were not fetched in time."""
        return self._mailbox.dropped

    def events(self, *, timeout_s: float | None = None) -> Iterator[_Event | None]:
        """Yields events until the coroutine has ended, then raises what it raised.

        Args:
            timeout_s: yield None if nothing was sent for this long; None: wait.
        """
        for events, ended in self._mailbox.batches(lambda: timeout_s):
            yield from events
            if not events and not ended:
                yield None
        if self._error is not None:
            raise self._error

    def fetch(self) -> tuple[Sequence[_Event], bool]:
        """Returns the events since the last call, without waiting, and whether there will be no more.

        The call after the last events raises what the coroutine raised. For a main thread that also waits for other
        things: `wake` says when to fetch.
        """
        events, ended = self._mailbox.fetch()
        if ended and not events and self._error is not None:
            raise self._error
        return events, ended

    def __enter__(self) -> Background[_Event]:
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(RuntimeError):  # it has ended, and closed its loop
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(_STOP_S)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._task = self._loop.create_task(self._main(self._mailbox.send))
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self._error = error
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(asyncio.sleep(0))  # connections that are being closed
            self._mailbox.close()
            self._loop.close()


class Heartbeat:
    """The time at which an event loop last ran."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()

    def start(self) -> None:
        """Beats every second for as long as the running event loop does."""
        self._last_s = time.monotonic()
        asyncio.get_running_loop().call_later(_BEAT_S, self.start)

    def age_s(self) -> float:
        """Returns the seconds since the last beat, or since this was made."""
        return time.monotonic() - self._last_s

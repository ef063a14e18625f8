"""All exporters that `--from` names, followed at once: one that is down, slow or hostile concerns its workers only."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from math import inf

from tpumon.collection.http_get import AddressCache
from tpumon.collection.remote.exporter import RemoteExporter, SamplesPage, Send, lost
from tpumon.collection.remote.exporter_client import Secret
from tpumon.collection.remote.exporter_list import NOT_GIVEN, ExporterList, Places, shown
from tpumon.collection.remote.merging import FollowedExporter, Merging
from tpumon.discovery.identity import JobNames

_log = logging.getLogger(__name__)

_EACH_S = 0.2  # few exporters are asked as often as this times their number, in seconds
_MOST_PAUSE_S = 10.0
_PER_S = 250  # exchanges with all exporters together, but for the first with each
_BURST_S = 0.2
_UNDER_WAY = 500  # more than exporters that do not answer are likely to be: each of them holds one for 10 s
_LARGE_AT_ONCE = 4
_WATCH_S = 1.0
_FIRST_S = 2.0  # the first workers wait no longer for an exporter that does not answer; in a crowd a little
_FIRST_EACH_S = 0.001
_MOST_GONE = 1000
_STAY_S = 600.0  # the workers of an exporter that left the list
_HISTORY_BYTES = 12_000_000  # of all exporters together
_JITTER = 0.02


class Pacer:
    """Bounds how many exchanges begin a second, and how many wait for an answer."""

    def __init__(self) -> None:
        self._under_way = asyncio.Semaphore(_UNDER_WAY)
        self._free_s = -inf

    @asynccontextmanager
    async def turn(self, *, first: bool = False) -> AsyncIterator[None]:
        """Waits until another exchange may begin; it ends with the block.

        Args:
            first: begin as soon as fewer than `_UNDER_WAY` wait for an answer: a view of all exporters waits for it.
        """
        async with self._under_way:
            if not first:
                now_s = asyncio.get_running_loop().time()
                self._free_s = max(self._free_s, now_s - _BURST_S) + 1 / _PER_S
                await asyncio.sleep(self._free_s - now_s)
            yield


class RemoteFleet:
    """Follows the workers and samples of exporters, through their restarts and outages, as one stream.

    Args:
        where: `SOURCE[,SOURCE...]`, as `--from` takes it.
        auth_file: a file with a bearer token or USER:PASSWORD for all; None: there is none.
        own_run: the run of this process, whose samples are refused; None: this process has no readers.
        exporters: finds them; None: by `where`.
        given: job and slice of workers that neither their exporter nor a list of exporters knows.
        keeps_apart: as of `Merging`.
        poll_s: interval between exchanges with an exporter; None: as its samples come, 1 to 10 s.
        stay_s: for how long the workers of an exporter stay that leaves the list.
        clock: returns the seconds since the epoch.

    Raises:
        UsageError: `where` is not of this form.
    """

    def __init__(
        self,
        where: str,
        *,
        auth_file: str | None = None,
        own_run: str | None = None,
        exporters: ExporterList | None = None,
        given: JobNames = NOT_GIVEN,
        keeps_apart: bool = False,
        poll_s: float | None = None,
        stay_s: float = _STAY_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = shown(where)
        self._secret = None if auth_file is None else Secret(auth_file)
        self._exporters = exporters or ExporterList(where, auth=self._secret, given=given)
        self._own_run = own_run
        self._keeps_apart = keeps_apart
        self._poll_s = poll_s
        self._stay_s = stay_s
        self._clock = clock
        self._names = AddressCache()
        self._followed: dict[str, FollowedExporter] = {}  # by URL
        self._asking: dict[str, tuple[RemoteExporter, asyncio.Task[None]]] = {}
        self._waiting: str | None = None
        self._in_trouble: dict[str, str | None] = {}
        self._has_begun = False  # whether the first workers are published
        self._is_late = False  # whether they should have been

    async def feed(self, send: Send) -> None:
        """Sends events until it is cancelled; `Workers` first.

        Workers that an exporter does not answer for get one failed sample each (source `exporter`). If there are no
        workers, `Workers.waiting` has the reason.

        Raises:
            UsageError: a file that lists exporters cannot be used at the start.
        """
        self._merging = Merging(send, keeps_apart=self._keeps_apart, clock=self._clock)
        self._pacer, self._large = Pacer(), asyncio.Semaphore(_LARGE_AT_ONCE)
        self._publishing: asyncio.TimerHandle | None = None
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._watch_sources(), name="watch exporters")
                async with aclosing(self._exporters.watch(self._answers)) as changes:
                    async for places in changes:
                        self._follow(places)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            if self._publishing is not None:
                self._publishing.cancel()

    def _answers(self, url: str) -> bool:
        return url in self._asking and self._asking[url][0].answers

    def _follow(self, places: Places) -> None:
        """Starts to ask new exporters, and stops asking exporters that left."""
        merging = self._merging
        wanted = {place.url: place for place in places.places}
        for url in [url for url in self._asking if url not in wanted]:
            self._leave(url)
        for url, place in wanted.items():
            followed = self._followed.get(url)
            if url not in self._asking:
                self._join(url, followed, len(wanted))
                followed = self._followed[url]
            assert followed is not None
            if followed.place != place:
                followed.place = place
                followed.follow(followed.said)
        gone = [followed for followed in self._followed.values() if followed.is_gone]
        merging.exporters = [self._followed[url] for url in wanted] + gone
        merging.finders, self._waiting = places.finders, places.waiting
        merging.is_due = True
        self._publish_soon()

    def _join(self, url: str, followed: FollowedExporter | None, exporters: int) -> None:
        page = SamplesPage(url, self._secret, names=self._names, large=self._large)
        exporter = RemoteExporter(
            page,
            own_run=self._own_run,
            history_bytes=None if exporters == 1 else _HISTORY_BYTES // exporters,
            clock=self._clock,
        )
        followed = followed or FollowedExporter(name=page.name)
        followed.ask_for_everything, followed.left_s, followed.heard = exporter.ask_for_everything, None, False
        self._followed[url] = followed
        self._asking[url] = exporter, self._tasks.create_task(self._ask(exporter, followed), name=f"ask {page.name}")

    def _leave(self, url: str) -> None:
        """The workers of an exporter stay, without figures, for a while, or until another one has them."""
        _, task = self._asking.pop(url)
        task.cancel()
        followed, now_unix_s = self._followed[url], self._clock()
        followed.left_s, followed.heard = time.monotonic(), True
        gone = [each for each, its in self._followed.items() if its.is_gone]
        for each in gone[:-_MOST_GONE] if followed.targets else [url]:
            del self._followed[each]
        message = f"exporter {followed.name}: it has left the list; its workers stay for {self._stay_s / 60:.0f} min"
        for target in followed.targets.values():
            self._merging.add(followed, lost(target, "unavailable", message, now_unix_s, now_unix_s))

    async def _ask(self, exporter: RemoteExporter, followed: FollowedExporter) -> None:
        add = partial(self._merging.add, followed)
        first = True
        while True:
            async with self._pacer.turn(first=first):
                await exporter.poll(add)
            followed.heard, first = True, False
            self._publish_soon()
            await asyncio.sleep(self._pause_s(exporter))

    def _pause_s(self, exporter: RemoteExporter) -> float:
        if self._poll_s is not None:
            return self._poll_s
        count = len(self._asking)
        return exporter.pause_s(min(count * _EACH_S, _MOST_PAUSE_S)) * random.uniform(1 - _JITTER, 1 + _JITTER)

    def _publish_soon(self) -> None:
        """Publishes the workers: the first once all exporters are heard, later those of many exporters together."""
        merging = self._merging
        is_complete = not self._has_begun and all(followed.heard for followed in merging.exporters)
        if not merging.is_due or (self._publishing is not None and not is_complete):
            return
        if is_complete or (self._has_begun and len(merging.exporters) == 1):
            self._publish()
        else:
            late_s = _FIRST_S + _FIRST_EACH_S * len(merging.exporters)
            delay_s = max(0.05, 0.0005 * merging.workers) if self._has_begun or self._is_late else late_s
            self._publishing = asyncio.get_running_loop().call_later(delay_s, self._publish)

    def _publish(self) -> None:
        if self._publishing is not None:
            self._publishing.cancel()
        self._publishing = None
        exporters = self._merging.exporters
        self._is_late = True
        silent = [followed.name for followed in exporters if not followed.heard]
        if not silent or any(followed.targets for followed in exporters):
            if silent and not self._has_begun:
                more = f", nor have {len(silent) - 1} more exporters" if len(silent) > 1 else ""
                _log.warning("exporter %s has not answered yet%s; their workers are missing", silent[0], more)
            self._has_begun = True
            self._merging.publish(self._waiting)
            self._tell_troubles()

    async def _watch_sources(self) -> None:
        """Sees each second which workers change hands or have been gone for long, and who does not answer."""
        while True:
            await asyncio.sleep(_WATCH_S)
            now_s, merging = time.monotonic(), self._merging
            for url, followed in list(self._followed.items()):
                if followed.left_s is not None and now_s - followed.left_s >= self._stay_s:
                    del self._followed[url]
                    merging.is_due = True
                    merging.exporters = [each for each in merging.exporters if each is not followed]
            merging.check_owners()
            self._tell_troubles()
            self._publish_soon()

    def _tell_troubles(self) -> None:
        """Says which exporters do not answer that have no workers to show it, each once, in one line."""
        troubled = {
            followed.name: followed.said.waiting
            for url, followed in self._followed.items()
            if not followed.targets and followed.heard and url in self._asking and not self._answers(url)
        }
        new = [name for name, why in troubled.items() if self._in_trouble.get(name, "") != why]
        if self._merging.workers and new:
            more = f" (and {len(new) - 1} more exporters do not answer)" if len(new) > 1 else ""
            _log.warning("%s%s", troubled[new[0]], more)
            self._in_trouble |= {name: troubled[name] for name in new}
        self._in_trouble = {name: why for name, why in self._in_trouble.items() if name in troubled}

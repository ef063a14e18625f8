"""When to sample: each worker on its own clock, with retries, back-off and recovery; owner of every channel."""

from __future__ import annotations

import asyncio
import math
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpumon.errors import SourceError
from tpumon.model import Failure, Query, Sample, Target
from tpumon.sources import FINAL_REASONS, SOURCES, Client, Source
from tpumon.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_JITTER_RATIO = 0.1
_TICK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long to go on.

    Attributes:
        attempts: tries of one query before it counts as failed.
        num_queries: per worker; 0: until cancelled.
    """

    attempts: int = 3
    num_queries: int = 0


def jittered(duration_s: float) -> float:
    """`duration_s` changed by up to 10 %, so that sampling neither locks onto a job's steps nor comes in bursts."""
    return duration_s * random.uniform(1 - _JITTER_RATIO, 1 + _JITTER_RATIO)


def _on_a_tick(due_s: float) -> float:
    """The next common tick: workers that are due together wake this process once."""
    return math.ceil(due_s / _TICK_S) * _TICK_S


def pause_after_failures(count: int) -> float:
    """Seconds to wait after `count` failures in a row: doubling from 0.5 s to 10 s, jittered."""
    return jittered(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(count - 1, 10)))


class Sampler:
    """Follows workers and hands every query's Sample, answered or not, to `on_sample`.

    Args:
        targets: the workers.
        query: what to ask each of them, and how often.
        pace: how long to go on.
        on_sample: called in the event loop with each Sample; must not block.
        open_client: makes a worker's channel from its address.
        sources: tried in this order on a worker until it offers one.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        query: Query,
        pace: Pace,
        *,
        on_sample: Callable[[Sample], None],
        open_client: Callable[[str], Client] = Client,
        sources: Sequence[Source] = SOURCES,
    ) -> None:
        self._targets = targets
        self._query = query
        self._pace = pace
        self._on_sample = on_sample
        self._open_client = open_client
        self._sources = sources

    async def run(self) -> None:
        """Returns when every worker's `num_queries` are done; with 0, only by cancellation."""
        async with asyncio.TaskGroup() as group:
            for target in self._targets:
                group.create_task(self._follow(target), name=f"follow {target.worker}")

    async def _follow(self, target: Target) -> None:
        interval_s, window_s = self._query.interval_s, self._query.window_s
        clock_s = asyncio.get_running_loop().time
        worker = _Worker(target, self._query, self._pace.attempts, self._sources)
        asked = 0
        async with self._open_client(target.address) as client:
            while True:
                start_s = clock_s()
                self._on_sample(await worker.ask(client))
                asked += 1
                if self._pace.num_queries and (asked >= self._pace.num_queries or worker.hopeless):
                    return
                due_s = start_s + window_s
                if interval_s > window_s:  # back to back is back to back; a pause is jittered
                    due_s = _on_a_tick(max(due_s, start_s + jittered(interval_s)))
                await asyncio.sleep(max(due_s - clock_s(), worker.pause_s(), 0.0))


class _Worker:
    """What is remembered of one worker between queries."""

    def __init__(self, target: Target, query: Query, attempts: int, sources: Sequence[Source]) -> None:
        self._target = target
        self._query = query
        self._attempts = attempts
        self._sources = sources
        self._failures_in_a_row = 0
        self._simulated = False
        self.hopeless = False
        """Whether the last answer was one that asking again does not change: no source here, not a profiler."""

    def pause_s(self) -> float:
        """How long to leave this worker alone now."""
        return pause_after_failures(self._failures_in_a_row) if self._failures_in_a_row else 0.0

    async def ask(self, client: Client) -> Sample:
        """One query, tried up to `attempts` times."""
        time_unix_s, start_s = time.time(), time.monotonic()
        for attempt in range(1, self._attempts + 1):
            try:
                sample = await self._fetch(client)
            except _QueryFailedError as error:
                self._failures_in_a_row += 1
                failure = error.failure
            else:
                self._failures_in_a_row, self.hopeless = 0, False
                self._simulated = sample.simulated
                return sample
            self.hopeless = failure.reason in FINAL_REASONS
            if self.hopeless or attempt == self._attempts:
                break
            await asyncio.sleep(self.pause_s())
        return Sample(
            worker=self._target.worker,
            address=self._target.address,
            time_unix_s=time_unix_s,
            window_s=self._query.window_s,
            took_s=time.monotonic() - start_s,
            interval_s=self._query.interval_s,
            simulated=self._simulated,
            errors=(failure,),
        )

    async def _fetch(self, client: Client) -> Sample:
        """The first source that this worker offers answers or fails for all."""
        failure: Failure | None = None
        for source in self._sources:
            try:
                return await source.fetch(client, self._target, self._query)
            except SourceError as error:
                failure = Failure(source=source.name, reason=error.reason, message=str(error))
                if error.reason != "unimplemented":
                    break
            except Exception as error:  # noqa: BLE001 - a bug in one source must not end the monitor
                words = f"{client.address}: a bug in tpumon: {type(error).__name__}: {one_line(str(error))}"
                failure = Failure(source=source.name, reason="internal", message=words)
                break
        assert failure is not None, "a sampler without sources"
        raise _QueryFailedError(failure)


class _QueryFailedError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure

"""When to sample: each worker on its own clock, with retries, back-off and recovery; owner of every channel."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tpumon.errors import SourceError
from tpumon.model import Failure, Query, Sample, Target
from tpumon.pausing import Pause, PauseWatch
from tpumon.sources import FINAL_REASONS, SOURCES, Client, Source, SourceFactory, SourceOptions
from tpumon.text import one_line

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_JITTER_RATIO = 0.1
_TICK_S = 0.05
_CREDIT_S = 2.0
_LOOK_AGAIN_S = 1.0  # whether a pause is over
_GONE = frozenset(
    {"unavailable", "deadline", "resolve", "unimplemented", "not-a-profiler"}
)  # what comes may be another

_DEFAULT_OPTIONS = SourceOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often to ask, and how long to go on.

    Attributes:
        interval_s: from one query's start to the next; 0: back to back; None: as is usual for the source.
        max_duty_ratio: the largest share of time for which a job may be traced.
        attempts: tries of one query before it counts as failed.
        num_queries: per worker; 0: until cancelled.
    """

    interval_s: float | None = None
    max_duty_ratio: float = 0.02
    attempts: int = 3
    num_queries: int = 0


def jittered(duration_s: float) -> float:
    """`duration_s` changed by up to 10 %, so that sampling neither locks onto a job's steps nor comes in bursts."""
    return duration_s * random.uniform(1 - _JITTER_RATIO, 1 + _JITTER_RATIO)


def pause_after_failures(count: int) -> float:
    """Seconds to wait after `count` failures in a row: doubling from 0.5 s to 10 s, jittered."""
    return jittered(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(count - 1, 10)))


class Budget:
    """How long a job may still be traced: a share of the time, and 2 s in advance.

    The advance is for the first figures to come at once.

    Args:
        ratio: the share.
        now_s: the clock's reading.
    """

    def __init__(self, ratio: float, now_s: float) -> None:
        self._ratio = ratio
        self._credit_s = _CREDIT_S
        self._counted_s = now_s

    def spend(self, traced_s: float, now_s: float) -> None:
        """Notes that the job was traced for so long."""
        # What is left over does not pile up; what is needed for a long trace may.
        self._credit_s = min(_CREDIT_S, self._credit_s + self._ratio * (now_s - self._counted_s) - traced_s)
        self._counted_s = now_s

    def ready_s(self, traced_s: float) -> float:
        """The clock's reading from which on `traced_s` more may be spent."""
        return self._counted_s + max(0.0, traced_s - self._credit_s) / self._ratio


class Sampler:
    """Follows workers and hands every query's Sample, answered or not, to `on_sample`.

    Args:
        targets: the workers.
        query: what to ask each of them.
        pace: how often, and how long to go on.
        on_sample: called in the event loop with each Sample; must not block.
        options: what sources need to know.
        open_client: makes a worker's channel from its address.
        sources: tried in this order on a worker until it offers one.
        pause: the pause that is on, if any.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        query: Query,
        pace: Pace,
        *,
        on_sample: Callable[[Sample], None],
        options: SourceOptions = _DEFAULT_OPTIONS,
        open_client: Callable[[str], Client] = Client,
        sources: Sequence[SourceFactory] = SOURCES,
        pause: Callable[[], Pause | None] | None = None,
    ) -> None:
        self._targets = targets
        self._query = query
        self._pace = pace
        self._on_sample = on_sample
        self._options = options
        self._open_client = open_client
        self._sources = sources
        self._pause = pause if pause is not None else PauseWatch()

    async def run(self) -> None:
        """Returns when every worker's `num_queries` are done; with 0, only by cancellation."""
        async with asyncio.TaskGroup() as group:
            for target in self._targets:
                group.create_task(self._follow(target), name=f"follow {target.worker}")

    async def _follow(self, target: Target) -> None:
        clock_s = asyncio.get_running_loop().time
        asked = 0
        async with self._open_client(target.address) as client:
            sources = [make(client, target, self._options) for make in self._sources]
            worker = _Worker(target, sources, self._query, self._pace, self._pause)
            while True:
                start_s = clock_s()
                self._on_sample(await worker.ask())
                asked += 1
                if self._pace.num_queries and (asked >= self._pace.num_queries or worker.hopeless):
                    return
                await asyncio.sleep(max(worker.due_s(start_s) - clock_s(), 0.0))


class _Worker:
    """What is remembered of one worker between queries."""

    def __init__(
        self,
        target: Target,
        sources: Sequence[Source],
        query: Query,
        pace: Pace,
        pause: Callable[[], Pause | None],
    ) -> None:
        self._target = target
        self._sources = sources
        self._source = sources[0]  # the one that answered last
        self._query = query
        self._pace = pace
        self._pause = pause
        self._clock_s = asyncio.get_running_loop().time
        self._budget = Budget(pace.max_duty_ratio, self._clock_s())
        self._traced_s = 0.0  # by the last query
        self._window_s = query.window_s  # of the last answer
        self._failures_in_a_row = 0
        self._not_before_s = 0.0
        self._answered = False
        self._simulated = False
        self.hopeless = False
        """Whether this worker never answered, and last said what asking again does not change."""

    @property
    def _wanted_interval_s(self) -> float:
        """What the user or the source wants; a server that answers before its window is over is not asked sooner."""
        wanted_s = self._pace.interval_s if self._pace.interval_s is not None else self._source.usual_interval_s
        return max(wanted_s, self._window_s or 0.0)

    @property
    def _interval_s(self) -> float | None:
        """What comes of it in the long run, the job being traced for no more than its share; None: not known yet."""
        if not self._answered and self._pace.interval_s is None:
            return None
        return max(self._wanted_interval_s, self._traced_s / self._pace.max_duty_ratio)

    def due_s(self, start_s: float) -> float:
        """When to ask next, by the loop's clock, having asked at `start_s`."""
        window_s, interval_s = self._window_s or 0.0, self._wanted_interval_s
        due_s = start_s + interval_s
        if interval_s > window_s:  # back to back is back to back; a gap is jittered
            due_s = _on_a_tick(start_s + max(window_s, jittered(interval_s)))
        if self._traced_s:
            gap_s = self._budget.ready_s(self._traced_s) - start_s
            due_s = max(due_s, start_s + gap_s * random.uniform(1, 1 + _JITTER_RATIO))  # never sooner than it may
        return max(due_s, self._not_before_s)

    async def ask(self) -> Sample:
        """One query, tried up to `attempts` times."""
        time_unix_s, start_s = time.time(), time.monotonic()
        self._traced_s = 0.0
        for attempt in range(1, self._pace.attempts + 1):
            try:
                sample = await self._fetch()
            except _QueryFailedError as error:
                failure = error.failure
                self._note_failure(failure, error.traced_s)
            else:
                return self._note_answer(sample)
            if attempt == self._pace.attempts or not self._may_try_again(failure):
                break
            await asyncio.sleep(self._not_before_s - self._clock_s())
        return Sample(
            worker=self._target.worker,
            address=self._target.address,
            time_unix_s=time_unix_s,
            window_s=self._window_s,
            took_s=time.monotonic() - start_s,
            interval_s=self._interval_s,
            traced_s=self._traced_s,
            simulated=self._simulated,
            errors=(failure,),
        )

    def _note_answer(self, sample: Sample) -> Sample:
        self._answered, self.hopeless, self._simulated = True, False, sample.simulated
        self._failures_in_a_row, self._not_before_s = 0, 0.0
        self._window_s = sample.window_s
        self._count_traced(sample.traced_s)
        return sample if sample.interval_s == self._interval_s else replace(sample, interval_s=self._interval_s)

    def _note_failure(self, failure: Failure, traced_s: float) -> None:
        self._count_traced(traced_s)
        self.hopeless = failure.reason in FINAL_REASONS and not self._answered
        if failure.reason == "paused":
            self._not_before_s = self._clock_s() + _LOOK_AGAIN_S
            return
        self._failures_in_a_row += 1
        self._not_before_s = self._clock_s() + pause_after_failures(self._failures_in_a_row)

    def _may_try_again(self, failure: Failure) -> bool:
        """Whoever is profiling is not to be pressed, and a job is not traced more because it failed."""
        affordable = self._budget.ready_s(self._traced_s) <= self._clock_s()
        return affordable and failure.reason not in {"busy", "paused", *FINAL_REASONS}

    def _count_traced(self, traced_s: float) -> None:
        if traced_s:
            self._traced_s += traced_s
            self._budget.spend(traced_s, self._clock_s())

    async def _fetch(self) -> Sample:
        """The source that this worker offers; found anew when it went away, since it may come back as another."""
        pause = self._pause()
        if pause is not None:
            words = f"{self._target.address}: {pause}"
            raise _QueryFailedError(Failure(source="pause", reason="paused", message=words), 0.0)
        query = replace(self._query, interval_s=self._interval_s)
        traced_s = 0.0
        for source in self._sources[self._sources.index(self._source) :]:
            try:
                sample = await source.fetch(query)
            except SourceError as error:
                failure = Failure(source=source.name, reason=error.reason, message=str(error))
                traced_s = error.traced_s
                if error.reason != "unimplemented":
                    break
            except Exception as error:  # noqa: BLE001 - a bug in one source must not end the monitor
                words = f"{self._target.address}: a bug in tpumon: {type(error).__name__}: {one_line(str(error))}"
                failure = Failure(source=source.name, reason="internal", message=words)
                break
            else:
                self._source = source
                return sample
        if failure.reason in _GONE:
            self._source = self._sources[0]
        raise _QueryFailedError(failure, traced_s)


class _QueryFailedError(Exception):
    def __init__(self, failure: Failure, traced_s: float) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.traced_s = traced_s


def _on_a_tick(due_s: float) -> float:
    """The next common tick: workers that are due together wake this process once."""
    return math.ceil(due_s / _TICK_S) * _TICK_S

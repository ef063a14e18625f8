"""When to sample: each worker on its own clock, with retries, back-off and recovery; owner of every channel."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace

from tpumon.errors import UNREACHED, NoTargetError, SourceError, TpumonError
from tpumon.model import Failure, Query, Sample, Target, Workers
from tpumon.sources import FINAL_REASONS, SOURCES, Client, Source, SourceFactory, SourceOptions
from tpumon.sources.runtime import NAME as RUNTIME
from tpumon.sources.runtime import RuntimeMetrics, RuntimeReading
from tpumon.system.pausing import Pause, PauseWatch
from tpumon.targets.base import Discovery
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

_AT_ONCE = 16  # workers that are asked first without a gap
_RUNTIME_GAP_S = 5.0  # libtpu averages over seconds itself, and each look is several calls
_RUNTIME_GAP_PER_WORKER_S = 0.02
_NO_RUNTIME_GAP_S = 20.0
_FIND_AGAIN_S = 10.0
_FIRST_GAP_S = 0.01  # between the first queries of the others


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
        self.usual_s = 0.0
        """What a query cost last."""

    def spend(self, traced_s: float, now_s: float) -> None:
        """Notes that the job was traced for so long."""
        # What is left over does not pile up; what is needed for a long trace may.
        self._credit_s = min(_CREDIT_S, self._credit_s + self._ratio * (now_s - self._counted_s) - traced_s)
        self._counted_s = now_s

    def is_full(self, now_s: float) -> bool:
        """Whether nothing of the past counts any more."""
        return self._credit_s + self._ratio * (now_s - self._counted_s) >= _CREDIT_S

    def ready_s(self, traced_s: float) -> float:
        """The clock's reading from which on `traced_s` more may be spent."""
        return self._counted_s + max(0.0, traced_s - self._credit_s) / self._ratio


_Key = tuple[str, str]


class Sampler:
    """Follows workers and hands every query's Sample, answered or not, to `on_sample`.

    Args:
        finder: says whom to follow.
        query: what to ask each of them.
        pace: how often, and how long to go on.
        on_sample: called in the event loop with each Sample; must not block.
        on_found: called so with what the finder says, before the first sample of a worker.
        options: what sources need to know.
        open_client: makes a worker's channel from its address.
        sources: tried in this order on a worker until it offers one.
        runtime: makes the reader of a worker's runtime metric service.
        pause: the pause that is on, if any.
        say: takes a line about trouble with the finder.
    """

    def __init__(
        self,
        finder: Discovery,
        query: Query,
        pace: Pace,
        *,
        on_sample: Callable[[Sample], None],
        on_found: Callable[[Workers], None] = lambda _found: None,
        options: SourceOptions | None = None,
        open_client: Callable[[str], Client] = Client,
        sources: Sequence[SourceFactory] = SOURCES,
        runtime: Callable[[Target, Callable[[str], Client]], RuntimeMetrics] = RuntimeMetrics,
        pause: Callable[[], Pause | None] | None = None,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._finder = finder
        self._query = query
        self._pace = pace
        self._on_sample = on_sample
        self._on_found = on_found
        self._options = options if options is not None else SourceOptions()
        self._open_client = open_client
        self._sources = sources
        self._runtime = runtime
        self._pause = pause if pause is not None else PauseWatch()
        self._say = say
        self._targets: dict[_Key, Target] = {}
        self._tasks: dict[_Key, asyncio.Task[None]] = {}
        self._workers: dict[_Key, _Worker] = {}
        self._budgets: dict[str, Budget] = {}

    async def run(self) -> None:
        """Returns when every worker's `num_queries` are done; with 0, only by cancellation.

        Raises:
            NoTargetError: there is nobody to follow, and `num_queries` says not to wait.
            TpumonError: the finder gives up.
        """
        try:
            async with asyncio.TaskGroup() as group:
                await self._follow_whom(group)
        except ExceptionGroup as several:
            raise several.exceptions[0] from None  # the finder's: a worker's own task raises nothing

    async def _follow_whom(self, group: asyncio.TaskGroup) -> None:
        """Follows whoever is found, until that cannot change any more. A finder that fails is asked anew."""
        while True:
            try:
                async with aclosing(self._finder.watch(self._all_gone)) as changes:
                    async for found in changes:
                        self._take_over(found, group)
                        if self._pace.num_queries:
                            return  # so many queries of those who are there now
            except Exception as error:
                if not self._targets:
                    raise
                words = str(error) if isinstance(error, TpumonError) else f"{type(error).__name__}: {error}"
                self._say(f"looking for workers failed, those found stay: {one_line(words)}")
                await asyncio.sleep(_FIND_AGAIN_S)
            else:
                return

    def _take_over(self, found: Workers, group: asyncio.TaskGroup) -> None:
        if self._pace.num_queries and not found.targets:
            raise NoTargetError(found.waiting or "there is no worker to follow")
        self._on_found(found)
        self._follow_only(found.targets, group)

    def _follow_only(self, targets: Sequence[Target], group: asyncio.TaskGroup) -> None:
        before, self._targets = self._targets, {_key(target): target for target in targets}
        for key in before.keys() - self._targets.keys():
            self._tasks.pop(key).cancel()
            self._workers.pop(key, None)
        new = [key for key in self._targets if key not in before]
        for place, key in enumerate(new):
            delay_s = max(0, place - _AT_ONCE) * _FIRST_GAP_S
            follow = self._follow(key, delay_s, scattered=len(new) > _AT_ONCE)
            self._tasks[key] = group.create_task(follow, name=f"follow {key}")

    def _budget(self, address: str) -> Budget:
        """Of whatever job is there, for as long as it matters: names, slices and finders may change around it."""
        now_s = asyncio.get_running_loop().time()
        followed = {target.address for target in self._targets.values()}
        self._budgets = {
            at: budget for at, budget in self._budgets.items() if at in followed or not budget.is_full(now_s)
        }
        return self._budgets.setdefault(address, Budget(self._pace.max_duty_ratio, now_s))

    async def _follow(self, key: _Key, delay_s: float, *, scattered: bool) -> None:
        clock_s = asyncio.get_running_loop().time
        asked = 0
        await asyncio.sleep(delay_s)
        async with AsyncExitStack() as stack:
            target = self._targets[key]
            client = await stack.enter_async_context(self._open_client(target.address))
            sources = [make(client, target, self._options) for make in self._sources]
            budget = self._budget(target.address)
            await asyncio.sleep(budget.ready_s(budget.usual_s) - clock_s())  # its job may have been traced before
            worker = self._workers[key] = _Worker(target, sources, self._query, self._pace, self._pause, budget)
            runtime = await stack.enter_async_context(
                aclosing(_Runtime(lambda target: self._runtime(target, self._open_client)))
            )
            while True:
                start_s = clock_s()
                self._on_sample(await self._ask(worker, runtime, self._targets[key]))
                asked += 1
                if self._pace.num_queries and (asked >= self._pace.num_queries or worker.hopeless):
                    return
                due_s = worker.due_s(start_s)
                if scattered and asked == 1:  # what began together would stay together
                    due_s = start_s + (due_s - start_s) * random.uniform(1, 2)
                await asyncio.sleep(max(due_s - clock_s(), 0.0))

    async def _ask(self, worker: _Worker, runtime: _Runtime, target: Target) -> Sample:
        """One query, of the profiler and of the runtime at the same time; either may be missing."""
        if self._options.runtime_metrics:
            gap_s = max(_RUNTIME_GAP_S, _RUNTIME_GAP_PER_WORKER_S * len(self._targets))
            sample, reading = await asyncio.gather(worker.ask(), runtime.read(target, gap_s))
            if worker.gone:  # the job may have ended since
                reading = await runtime.read(target, gap_s, again=True)
            paused = sample.failure is not None and sample.failure.reason == "paused"
            sample = sample if paused else _with_runtime(sample, reading)
            worker.gone = worker.gone and not sample.answered
        else:
            sample = await worker.ask()
        return sample if target.slice is None else replace(sample, slice=target.slice)

    def _all_gone(self) -> bool:
        """Whether no worker can be reached, each having been tried."""
        return bool(self._targets) and all(
            (worker := self._workers.get(key)) is not None and worker.gone for key in self._targets
        )


class _Worker:
    """What is remembered of one worker between queries."""

    def __init__(
        self,
        target: Target,
        sources: Sequence[Source],
        query: Query,
        pace: Pace,
        pause: Callable[[], Pause | None],
        budget: Budget,
    ) -> None:
        self.target = target
        self._sources = sources
        self._source = sources[0]  # the one that answered last
        self._query = query
        self._pace = pace
        self._pause = pause
        self._clock_s = asyncio.get_running_loop().time
        self._budget = budget
        self._traced_s = 0.0  # by the last query
        self._window_s = query.window_s  # of the last answer
        self._failures_in_a_row = 0
        self._not_before_s = 0.0
        self._answered = False
        self._simulated = False
        self.hopeless = False
        """Whether this worker never answered, and last said what asking again does not change."""
        self.gone = False
        """Whether its last query did not reach it."""

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
        try:
            return await self._ask()
        except asyncio.CancelledError:
            self._count_traced(self._window_s or _CREDIT_S)  # it may have been tracing
            raise

    async def _ask(self) -> Sample:
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
            worker=self.target.worker,
            address=self.target.address,
            time_unix_s=time_unix_s,
            window_s=self._window_s,
            took_s=time.monotonic() - start_s,
            interval_s=self._interval_s,
            traced_s=self._traced_s,
            simulated=self._simulated,
            errors=(failure,),
        )

    def _note_answer(self, sample: Sample) -> Sample:
        self._answered, self.hopeless, self.gone, self._simulated = True, False, False, sample.simulated
        self._failures_in_a_row, self._not_before_s = 0, 0.0
        self._window_s = sample.window_s
        self._count_traced(sample.traced_s)
        return sample if sample.interval_s == self._interval_s else replace(sample, interval_s=self._interval_s)

    def _note_failure(self, failure: Failure, traced_s: float) -> None:
        self._count_traced(traced_s)
        self.hopeless = failure.reason in FINAL_REASONS and not self._answered
        self.gone = failure.reason in UNREACHED
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
            self._budget.usual_s = self._traced_s
            self._budget.spend(traced_s, self._clock_s())

    async def _fetch(self) -> Sample:
        """The source that this worker offers; found anew when it went away, since it may come back as another."""
        pause = self._pause()
        if pause is not None:
            words = f"{self.target.address}: {pause}"
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
                words = f"{self.target.address}: a bug in tpumon: {type(error).__name__}: {one_line(str(error))}"
                failure = Failure(source=source.name, reason="internal", message=words)
                break
            else:
                self._source = source
                return sample
        if failure.reason in _GONE:
            self._source = self._sources[0]
        raise _QueryFailedError(failure, traced_s)


class _Runtime:
    """A worker's runtime metric service, looked at no more often than is worth it.

    Args:
        make: makes the reader of a target's.
    """

    def __init__(self, make: Callable[[Target], RuntimeMetrics]) -> None:
        self._make = make
        self._addresses: tuple[str, ...] = ()
        self._service: RuntimeMetrics | None = None
        self._last: RuntimeReading | Failure | None = None
        self._next_s = 0.0
        self._was_there = False

    async def read(self, target: Target, gap_s: float, *, again: bool = False) -> RuntimeReading | Failure | None:
        """What it says; why there is nothing to be had; None where there is no runtime.

        Args:
            target: the worker, whose runtime may have moved.
            gap_s: what it said so long ago will do.
            again: what it says now, where it said something before.
        """
        if target.runtime_addresses != self._addresses:
            await self.aclose()
            self._addresses, self._last, self._next_s, self._was_there = target.runtime_addresses, None, 0.0, False
            self._service = self._make(target) if target.runtime_addresses else None
        now_s = asyncio.get_running_loop().time()
        soon = self._next_s > now_s and not (again and self._last is not None)
        if self._service is None or soon:
            return self._last
        self._last = await self._look(self._service, target.worker)
        if isinstance(self._last, Failure) and self._last.reason in UNREACHED and not self._was_there:
            self._last = None  # where it was only looked for, there need not be one
        self._was_there = self._was_there or self._last is not None
        self._next_s = now_s + (gap_s if self._was_there else _NO_RUNTIME_GAP_S)
        return self._last

    @staticmethod
    async def _look(service: RuntimeMetrics, worker: str) -> RuntimeReading | Failure | None:
        try:
            return await service.read()
        except SourceError as error:
            return Failure(source=RUNTIME, reason=error.reason, message=str(error))
        except Exception as error:  # noqa: BLE001 - a bug there must not cost the profiler's figures
            words = f"{worker}: a bug in tpumon: {type(error).__name__}: {one_line(str(error))}"
            return Failure(source=RUNTIME, reason="internal", message=words)

    async def aclose(self) -> None:
        """Closes its channel."""
        if self._service is not None:
            await self._service.close()


def _with_runtime(sample: Sample, reading: RuntimeReading | Failure | None) -> Sample:
    """The profiler's sample and what the runtime says of the same worker."""
    if reading is None:
        return sample
    if isinstance(reading, Failure):
        return replace(sample, errors=(reading, *sample.errors))
    return replace(
        sample,
        source=sample.source or "runtime",
        # A profiler that never answered has no interval yet; it is tried, and the runtime looked at, this often.
        interval_s=sample.interval_s if sample.interval_s is not None else _LONGEST_PAUSE_S,
        simulated=sample.simulated or reading.simulated,
        figures=replace(
            sample.figures,
            hbm_used_bytes=reading.hbm_used_bytes,
            hbm_total_bytes=reading.hbm_total_bytes,
            devices=reading.devices,
            runtime=reading.runtime,
        ),
        warnings=(*sample.warnings, *reading.warnings),
        errors=(*reading.failures, *sample.errors),
    )


class _QueryFailedError(Exception):
    def __init__(self, failure: Failure, traced_s: float) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.traced_s = traced_s


def _key(target: Target) -> _Key:
    """What makes a worker another one; its slice and its runtime may change under way."""
    return target.worker, target.address


def _on_a_tick(due_s: float) -> float:
    """The next common tick: workers that are due together wake this process once."""
    return math.ceil(due_s / _TICK_S) * _TICK_S

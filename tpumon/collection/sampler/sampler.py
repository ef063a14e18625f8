"""Samples each worker on its own clock; owns every channel."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial

from msgspec.structs import replace

from tpumon.collection import sources
from tpumon.collection.sampler.duty import DutyControl
from tpumon.collection.sampler.extra_sources import WorkerExtraSources, merged
from tpumon.collection.sampler.held import Held
from tpumon.collection.sampler.pace import KeepingUp, Pace
from tpumon.collection.sampler.server_span import ServerSpan, workers_of_servers
from tpumon.collection.sampler.warnings import WarningLimit
from tpumon.collection.sampler.worker import SampledWorker
from tpumon.collection.sources import Client, ExtraSource, ProfilerFactory, SourceOptions
from tpumon.discovery.finder import Discovery
from tpumon.discovery.host.port_survey import Elsewhere
from tpumon.errors import NoTargetError, TpumonError
from tpumon.model import Query, Sample, Target, Workers, bounded
from tpumon.system.ledger import DutyLedger
from tpumon.system.pausing import Pause, PauseWatch
from tpumon.untrusted_text import one_line, unexpected

_log = logging.getLogger(__name__)

_AT_ONCE = 16  # workers that are asked first without a gap
_FIRST_GAP_S = 0.01  # between the first queries of the others
_FIND_AGAIN_S = 10.0
_WATCH_S = 1.0
_OLD_S = 2.0  # of a reading beside a sample that shows silence

_Key = tuple[str, str]


class Sampler:
    """Follows workers and hands every query's Sample, answered or not, to `on_sample`.

    Args:
        discovery: says which workers to follow.
        query: what to ask each of them.
        pace: how often, and how long to go on.
        on_sample: called in the event loop with each Sample; must not block.
        on_workers: called in the same way with each change of workers, before their first samples.
        options: what sources need to know.
        open_client: makes a channel to an address.
        profilers: tried in this order on a worker until it offers one; None: `tpumon.collection.sources.PROFILERS`.
        extra_sources: whose figures are merged in; None: `tpumon.collection.sources.EXTRA_SOURCES`.
        pause: the pause in effect, if any.
        elsewhere: finds servers at other ports of this host; None: they are looked for anyway.
        ledger: where all tpumons of this host write what they trace; None: nobody else counts.
    """

    def __init__(
        self,
        discovery: Discovery,
        query: Query,
        pace: Pace,
        *,
        on_sample: Callable[[Sample], None],
        on_workers: Callable[[Workers], None] = lambda _workers: None,
        options: SourceOptions | None = None,
        open_client: Callable[[str], Client] = Client,
        profilers: Sequence[ProfilerFactory] | None = None,
        extra_sources: Sequence[type[ExtraSource]] | None = None,
        pause: Callable[[], Awaitable[Pause | None]] | None = None,
        elsewhere: Elsewhere | None = None,
        ledger: DutyLedger | None = None,
    ) -> None:
        self._discovery = discovery
        self._query = query
        self._pace = pace
        self._on_sample = on_sample
        self._on_workers = on_workers
        self._options = options if options is not None else SourceOptions()
        self._open_client = open_client
        self._profilers = sources.PROFILERS if profilers is None else profilers
        self._extra_sources = sources.EXTRA_SOURCES if extra_sources is None else extra_sources
        self._pause = pause if pause is not None else PauseWatch()
        self._elsewhere = elsewhere
        self._targets: dict[_Key, Target] = {}
        self._tasks: dict[_Key, asyncio.Task[None]] = {}
        self._workers: dict[_Key, SampledWorker] = {}
        self._server_workers: Mapping[str, int] = {}
        self._duty = DutyControl(pace.max_duty_ratio, ledger, self._options.progress)
        self._keeping_up = KeepingUp()

    async def run(self) -> None:
        """Returns when every worker's `num_queries` are done; with 0, only by cancellation.

        Raises:
            NoTargetError: there is no worker to follow, and `num_queries` says not to wait.
            TpumonError: discovery gives up.
        """
        watching = asyncio.create_task(self._watch(), name="watch what needs no query")
        try:
            async with asyncio.TaskGroup() as group:
                await self._discover(group)
        except ExceptionGroup as several:
            raise several.exceptions[0] from None  # of discovery: a worker's own task raises nothing
        finally:
            watching.cancel()
            await self._duty.close()

    async def _watch(self) -> None:
        """Looks each second for what no query is needed to see; whatever goes wrong, it goes on."""
        has_said = False
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                await self._see_jobs()
            except Exception as error:  # noqa: BLE001 - a bug there must not leave a job that runs as stopped
                if not has_said:
                    _log.warning("a pause, and jobs that stop or end, may be seen late: %s", unexpected(error))
                has_said = True

    async def _see_jobs(self) -> None:
        """Sees a pause, and jobs that were stopped or have ended."""
        pause = await self._pause()
        for key, worker in self._workers.items():
            process = self._targets[key].process
            state = "runs" if process is None else self._options.state_of(process.pid)
            if state == "ended":  # discovery will see it later, or does not look so often
                self._targets[key] = replace(self._targets[key], process=None)
                self._note_process(key, worker)
            if pause is not None:
                is_new = worker.held.see_pause(pause)
            elif process is None or state != "stopped":
                is_new = worker.held.see("")
            else:
                is_new = worker.held.see("stopped", self._options.context_switches_of(process.pid))
            if is_new:
                worker.wake_held()

    def _note_process(self, key: _Key, worker: SampledWorker) -> None:
        """Notes that a worker's process has ended, or is another one."""
        worker.target = self._targets[key]
        process = worker.target.process
        self._duty.note_process(key[1], None if process is None else process.pid)
        worker.wake(ended=process is None)

    async def _discover(self, group: asyncio.TaskGroup) -> None:
        """Follows the workers that discovery yields until it ends. If it fails it is started again."""
        while True:
            try:
                async with aclosing(self._discovery.watch(self._all_gone)) as changes:
                    async for workers in changes:
                        self._take_over(workers, group)
                        if self._pace.num_queries:
                            return  # the queries are for the workers that are there now
            except Exception as error:
                foreseen = isinstance(error, TpumonError)
                if foreseen and not self._targets:
                    raise
                words = one_line(str(error)) if foreseen else unexpected(error)
                if self._targets:
                    _log.warning("discovery failed; the known workers stay: %s", words)
                else:
                    self._take_over(Workers(waiting=f"discovery failed; it is tried again: {words}"), group)
                await asyncio.sleep(_FIND_AGAIN_S)
            else:
                return

    def _take_over(self, workers: Workers, group: asyncio.TaskGroup) -> None:
        if self._pace.num_queries and not workers.targets:
            raise NoTargetError(workers.waiting or "there is no worker to follow")
        self._on_workers(workers)
        self._follow_only(workers.targets, group)

    def _follow_only(self, targets: Sequence[Target], group: asyncio.TaskGroup) -> None:
        before, self._targets = self._targets, {_key(target): target for target in targets}
        self._server_workers = workers_of_servers(targets)
        for key in before.keys() - self._targets.keys():
            self._tasks.pop(key).cancel()
            self._workers.pop(key, None)
        for key, worker in self._workers.items():
            if before[key].process != self._targets[key].process:
                self._note_process(key, worker)
        self._keeping_up.forget({target.address for target in targets})
        new = [key for key in self._targets if key not in before]
        for place, key in enumerate(new):
            delay_s = max(0, place - _AT_ONCE) * _FIRST_GAP_S
            follow = self._follow(key, delay_s, scattered=len(new) > _AT_ONCE)
            self._tasks[key] = group.create_task(follow, name=f"follow {key}")

    async def _follow(self, key: _Key, delay_s: float, *, scattered: bool) -> None:
        clock_s = asyncio.get_running_loop().time
        asked = 0
        await asyncio.sleep(delay_s)
        async with AsyncExitStack() as stack:
            target = self._targets[key]
            client = await stack.enter_async_context(self._open_client(target.address))
            profilers = [make(client, target, self._options) for make in self._profilers]
            account = self._duty.follow(target.address)
            self._duty.note_process(target.address, None if target.process is None else target.process.pid)
            stack.callback(self._duty.leave, account)
            progress = self._options.progress
            stack.callback(progress.forget, target.address)
            held = Held(self._pause, self._options.state_of)
            worker = SampledWorker(target, profilers, self._query, self._pace, held, self._duty, account, progress)
            self._workers[key] = worker
            extra_sources = await stack.enter_async_context(
                aclosing(WorkerExtraSources(self._extra_sources, self._open_client, self._options))
            )
            limit, span = WarningLimit(), ServerSpan()
            last_s = planned_s = None
            responded = 0
            while True:
                if last_s is not None and planned_s:
                    self._keeping_up.note(target.address, planned_s, clock_s() - last_s)
                if not asked:
                    self._keeping_up.first_asked(target.address, clock_s())
                sample = await self._ask(worker, extra_sources, span, self._targets[key])
                if not asked:
                    round_s = self._keeping_up.first_answered(target.address, clock_s())
                else:  # a second query, or one after a failure, waits for those that have not answered yet
                    round_s = self._keeping_up.round_s if responded < 2 else None
                responded += sample.is_conclusive
                if sample.warnings:
                    sample = replace(sample, warnings=limit.pass_on(sample.warnings, clock_s()))
                sample = self._paced(sample, round_s)
                self._on_sample(sample)
                asked += 1
                if self._pace.num_queries and (asked >= self._pace.num_queries or worker.has_failed_for_good):
                    return
                due_s, last_s = worker.plan_next(), worker.asked_s
                if scattered and asked == 1:  # or those that started together stay together
                    due_s += random.random() * worker.on_time_interval_s
                planned_s = worker.on_time_interval_s if sample.is_conclusive else None
                if await worker.wait_until(due_s, partial(self._idle_s, extra_sources, key)):
                    await client.close()  # gRPC would wait before it looks for the next process

    def _paced(self, sample: Sample, round_s: float | None) -> Sample:
        """The sample with the interval that results while this machine cannot keep up: its worker is not to blame."""
        advice = self._keeping_up.advice()
        if advice is not None:
            _log.warning("%s", advice)
        late_s = max(self._keeping_up.interval_s or 0.0, round_s or 0.0)
        if sample.interval_s is None or sample.interval_s >= late_s or not sample.is_conclusive:
            return sample
        return replace(sample, interval_s=late_s)

    async def _ask(
        self, worker: SampledWorker, extra_sources: WorkerExtraSources, span: ServerSpan, target: Target
    ) -> Sample:
        """Runs one query of the profiler and of the extra sources at the same time; any may be missing."""
        workers = len(self._targets)
        asked_s, began_s = time.monotonic(), asyncio.get_running_loop().time()
        if extra_sources.are_due(target):
            sample, _ = await asyncio.gather(worker.ask(), extra_sources.read(target, workers))
        else:  # without a task for each
            sample = await worker.ask()
        failure = sample.failure
        if failure is not None and failure.is_silence and extra_sources.is_older(_OLD_S):
            # It waited for its turn, and silence counts by the second.
            await extra_sources.read(target, workers, again=True)
        if worker.gone and not worker.held.why:  # the job may have ended since
            await extra_sources.read(target, workers, again=True)
            span.forget()
            if not worker.has_answered:
                sample = await self._with_elsewhere(sample)
        if sample.failure is None or not worker.held.why:
            readings, workers = extra_sources.taken_of_server(), self._server_workers.get(target.worker, 1)
            sample = span.joined(merged(sample, extra_sources.last), began_s, readings, workers)
        worker.gone = worker.gone and not sample.has_figures
        now_s = time.monotonic()
        # If the wall clock was set meanwhile, the query cannot have begun before it was asked.
        taken_s = max(now_s - max(time.time() - sample.time_unix_s, 0.0), asked_s)
        return replace(
            bounded(sample),
            job=target.job or sample.job,
            slice=target.slice or sample.slice,
            process=self._targets.get(_key(target), target).process,  # as of now: it may have waited for its turn
            taken_monotonic_s=taken_s,
        )

    async def _idle_s(self, extra_sources: WorkerExtraSources, key: _Key) -> float | None:
        await extra_sources.read(self._targets[key], len(self._targets))
        return extra_sources.idle_s

    async def _with_elsewhere(self, sample: Sample) -> Sample:
        """A sample of a worker that was not reached, with the profiler servers that this host has at other ports."""
        failure = sample.failure
        if self._elsewhere is None or failure is None:
            return sample
        words = await self._elsewhere.words(sample.address, {target.address for target in self._targets.values()})
        return replace(sample, errors=(*sample.errors[:-1], replace(failure, message=failure.message + words)))

    def _all_gone(self) -> bool:
        """True if every worker was asked and none could be reached."""
        return bool(self._targets) and all(
            (worker := self._workers.get(key)) is not None and worker.gone for key in self._targets
        )


def _key(target: Target) -> _Key:
    """Identity of a worker; its slice and its runtime may change."""
    return target.worker, target.address

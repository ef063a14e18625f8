"""One worker: which source to ask, how often to retry, and when to ask again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from tpumon.collection.sampler.duty import DutyControl
from tpumon.collection.sampler.duty_account import DutyAccount
from tpumon.collection.sampler.held import Held
from tpumon.collection.sampler.host_traces import may_be_hung, may_be_stopped, stopped_words
from tpumon.collection.sampler.pace import JITTER_RATIO, LONGEST_PAUSE_S, Pace, jittered, on_tick, pause_after_failures
from tpumon.collection.sampler.wait_words import WaitWords, why_absent
from tpumon.collection.sources import ProfilerSource
from tpumon.errors import MEANING, SourceError
from tpumon.model import Failure, Figures, Query, Sample, Target
from tpumon.model.progress import Progress
from tpumon.system.exporter_ports import how_to_read
from tpumon.untrusted_text import unexpected

_HELD_S = 1.0  # at least, from one sample to the next that says why nothing is asked
_FREE_DUTY_RATIO = 0.5  # from here on a trace that takes longer is late, not dear
_FAR_S = 60.0  # to the next query
_SILENT_S = 60.0  # without an op, as the runtime says
_CHECKS_RATIO = 1 / 3  # of the time for which a job may be traced
_CHECKS_BEFORE_BELIEVED, _BETWEEN_CHECKS_S = 4, (2.0, 6.0)  # of checks that show nothing
_LONG_UNCHECKED_S = 240.0  # a hang is told 5 minutes after the last activity that was seen
_PROBE_AFTER_S = 30.0  # a worker that does not answer is down for as long as that, not until it may be traced again
_OF_ANOTHER = "another tpumon of this host samples the job just now"
_FIRST_YIELD = 2  # each call that meets another session leaves a line in the job's log: the first pause is 2 s


class _QueryFailedError(Exception):
    def __init__(self, failure: Failure, window_s: float | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.window_s = window_s  # in which nothing ran


class SampledWorker:
    """One worker, and what is remembered about it between queries.

    Its intervals, from the begin of one query to that of the next:

        _wanted_interval_s         as the user or the source wants it, at least the window
        on_time_interval_s         if nothing is late: that, or longer if the job's share of tracing allows no more
        _effective_interval_s      in the long run: longer, too, if the last query took longer
        _interval_after_failure_s  that, or longer until it may be asked again

    Args:
        target: the worker.
        profilers: its sources, in the order in which to try them.
        query: what to ask.
        pace: how often.
        held: what holds its queries back.
        duty: for how long jobs may be traced.
        account: what of that concerns this worker's job.
        progress: told what is done.
    """

    def __init__(
        self,
        target: Target,
        profilers: Sequence[ProfilerSource],
        query: Query,
        pace: Pace,
        held: Held,
        duty: DutyControl,
        account: DutyAccount,
        progress: Progress,
    ) -> None:
        self.target = target
        self._progress = progress
        self._words = WaitWords(progress, target.address, account, pace.awaited, lambda: self._wanted_interval_s)
        self._profilers = profilers
        self._profiler = profilers[0]  # the one that answered last
        self._query = query
        self._pace = pace
        self.held = held
        self._clock_s = asyncio.get_running_loop().time
        self._duty = duty
        self._account = account
        account.awaited = pace.awaited
        self._traced_s = 0.0  # by the last query
        self._took_s = 0.0  # by the last query
        self._window_s = query.window_s  # of the last answer
        self._asked_s = self._clock_s()
        self._waited_s = 0.0  # until the job might be traced, by the last query
        self._failures_in_a_row = 0
        self._probes_next = False
        self._not_before_s = 0.0
        self._woken = asyncio.Event()
        self._is_renewed = False  # woken as its process has ended, or is another one
        self._ended = False  # its process, as far as this host's processes are seen
        self._must_check = False  # between queries, no extra source tells if anything runs
        self._checked_s = float("-inf")
        self._is_another_tpumon = False  # the session that was met last is another tpumon's
        self.has_answered = False
        self._serves = False  # the last trace with programs showed those of a server
        self._simulated = False
        self.has_failed_for_good = False
        """True if this worker never answered, and its last failure is final."""
        self.gone = False
        """True if its last query did not reach it."""

    @property
    def asked_s(self) -> float:
        """Start of the last query, by the loop's clock: when the job might be traced."""
        return self._asked_s + self._waited_s

    @property
    def _wanted_interval_s(self) -> float:
        """The interval that is wanted, at least the window: a server may answer before it is over."""
        return max(self._wanted_s, self._window_s or 0.0)

    @property
    def _wanted_s(self) -> float:
        return self._pace.interval_s if self._pace.interval_s is not None else self._profiler.usual_interval_s

    @property
    def _effective_interval_s(self) -> float | None:
        """The interval in the long run, as the job is traced for its share of time only; None: unknown yet.

        No less than the last query took: it may have waited for its turn, and will again.
        """
        if not self.has_answered and self._pace.interval_s is None:
            return None
        interval_s = max(self._wanted_interval_s, self._cost_s * self._pace_s)
        return self._took_s if self._took_s > (1 + JITTER_RATIO) * interval_s else interval_s

    @property
    def on_time_interval_s(self) -> float:
        """From one query to the next if nothing is late: what is wanted, or what the job's share of tracing allows."""
        if self._pace.max_duty_ratio > _FREE_DUTY_RATIO:
            return self._wanted_interval_s
        return max(self._wanted_interval_s, self._cost_s * self._pace_s)

    @property
    def _checks_help(self) -> bool:
        """True if activity checks are of use: queries are far apart, and no extra source tells if anything runs."""
        if not self._must_check or self._pace.num_queries or not self._profiler.activity_check_s(self._query):
            return False
        return self._cost_s * self._account.pace_s > _LONG_UNCHECKED_S

    @property
    def _pace_s(self) -> float:
        """The least time from one query to the next for each second that it costs; activity checks have a part."""
        return self._account.pace_s / (1 - _CHECKS_RATIO if self._checks_help else 1)

    @property
    def _cost_s(self) -> float:
        """For how long the next query is likely to trace the job."""
        likely_s = self._account.likely_s
        return likely_s if likely_s is not None else self._profiler.likely_s(self._query)

    def plan_next(self) -> float:
        """Plans the next query, or a probe before it; returns when, by the loop's clock: each call draws anew."""
        start_s = self.asked_s
        window_s, interval_s = self._window_s or 0.0, self._wanted_interval_s
        due_s = start_s + interval_s
        if interval_s > window_s:  # back to back is back to back; a gap is jittered
            due_s = start_s + jittered(interval_s)
            if not self._profiler.costs_job:  # traces are too rare to save by it, and could lock onto steps
                due_s = on_tick(due_s, interval_s)
            due_s = max(due_s, start_s + window_s)
        if self._probes_next and not self.gone:  # a probe has no figures: those come as soon as they may
            due_s = start_s
        if self._cost_s and not self._account.lacks:  # a command waits in turn
            gap_s = self._account.ready_s(self._cost_s) - start_s
            due_s = max(due_s, start_s + gap_s * random.uniform(1, 1 + JITTER_RATIO))  # never sooner than it may
        due_s = max(due_s, self._not_before_s)
        probe_s = self._clock_s() + jittered(_PROBE_AFTER_S)
        self._probes_next = self.gone and due_s > probe_s
        return probe_s if self._probes_next else due_s

    async def wait_until(self, due_s: float, idle_s: Callable[[], Awaitable[float | None]]) -> bool:
        """Waits until a query is due, or it is woken.

        Args:
            due_s: by the loop's clock.
            idle_s: gets the seconds for which nothing has run, at no cost for the job; None: not known, and activity
                checks are made instead. Called while the query is far away; a long silence makes it sooner and shorter.

        Returns:
            True if its process has ended, or is another one.
        """
        while True:
            left_s = min(due_s - self._clock_s(), self.held.left_s)  # it is asked at once when a pause ends
            self._words.next(left_s, self._cost_s, is_held=bool(self.held.why))
            if self._woken.is_set() or due_s - self._clock_s() <= _FAR_S:
                break
            await self._wait_for_wake(_FAR_S / 2)
            silent_s = await idle_s()
            self._must_check = silent_s is None
            is_silent = await self._checks_show_silence() if silent_s is None else silent_s > _SILENT_S
            if is_silent and self._note_silence():
                due_s = min(due_s, self.plan_next())
            elif self._checks_help:  # they were paid from its share
                due_s = max(due_s, self._account.ready_s(self._cost_s))
        await self._wait_for_wake(due_s - self._clock_s())
        if not self._woken.is_set():
            return False
        self._woken.clear()
        self._failures_in_a_row = 0
        is_renewed, self._is_renewed = self._is_renewed, False
        self._probes_next = self._account.needs_probe(self._cost_s, self._clock_s(), is_renewed=is_renewed)
        return is_renewed

    async def _wait_for_wake(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._woken.wait()

    async def _checks_show_silence(self) -> bool:
        """True if activity checks show that nothing runs: several, as the job may have stopped for a moment.

        A worker that they do not reach is asked at once.
        """
        cost_s, now_s = self._profiler.activity_check_s(self._query), self._clock_s()
        interval_s = max(_FAR_S, cost_s * self._account.pace_s / _CHECKS_RATIO)
        if self.held.why or not self._checks_help or now_s - max(self._checked_s, self.asked_s) < interval_s:
            return False
        for number in range(_CHECKS_BEFORE_BELIEVED):
            if self._woken.is_set() or await self.held.pause() is not None:
                return False
            self._checked_s = now_s + number * interval_s  # each is paid
            if await self._runs(cost_s) is not False:
                return False
            await self._wait_for_wake(random.uniform(*_BETWEEN_CHECKS_S))
        return not self._woken.is_set()

    async def _runs(self, cost_s: float) -> bool | None:
        """True if an activity check shows that anything runs; None: the check does not tell."""
        self._duty.charge(self._account, cost_s)
        try:
            runs = await self._profiler.anything_runs()
            self._account.note_host_trace(0.0, is_answered=True)
            return runs
        except SourceError as error:
            if MEANING[error.reason].unreached:
                self.wake()
            return None
        except Exception:  # noqa: BLE001 - a bug there must not end the monitor; the next query tells it
            return None
        finally:
            self._duty.charge(self._account, self._profiler.current_traced_s - cost_s)

    def _note_silence(self) -> bool:
        """True if the next query is a short one from now on."""
        if self._profiler.is_silent or not self._profiler.note_silence(self._query):
            return False
        self._note_next_cost(self._profiler)
        return True

    def _note_next_cost(self, profiler: ProfilerSource) -> None:
        self._account.likely_s, self._account.is_silent = profiler.likely_s(self._query), profiler.is_silent

    def wake(self, *, ended: bool = False) -> None:
        """Ends the wait: its process has ended, or is another one. A worker that may not be traced yet is probed."""
        self._ended, self._is_renewed = ended, True
        self._woken.set()

    def wake_held(self) -> None:
        """Ends the wait: what holds queries back has changed."""
        self._woken.set()
        self._account.wake()

    async def ask(self) -> Sample:
        """Runs one query, up to `attempts` times; or a probe, if the worker may not be traced for a while."""
        time_unix_s, start_s, self._asked_s = time.time(), time.monotonic(), self._clock_s()
        self._traced_s = self._took_s = self._waited_s = 0.0
        self._words.note_query()
        for attempt in range(1, self._pace.attempts + 1):
            try:
                sample = await self._fetch()
            except _QueryFailedError as error:
                failure, window_s = error.failure, error.window_s or self._window_s
                self._note_failure(failure)
            else:
                return self._note_answer(sample)
            if attempt == self._pace.attempts or not self._may_try_again(failure):
                break
            left_s = self._not_before_s - self._clock_s()
            self._progress.waits(self.target.address, "asked again", left_s)
            await asyncio.sleep(left_s)
        self._took_s = max(0.0, time.monotonic() - start_s - self._waited_s)
        return Sample(
            worker=self.target.worker,
            address=self.target.address,
            time_unix_s=time_unix_s + self._waited_s,
            window_s=window_s,
            took_s=self._took_s,
            interval_s=self._interval_after_failure_s,
            traced_s=self._traced_s,
            simulated=self._simulated,
            figures=Figures(absent=why_absent(failure, self._query.level)),
            errors=(failure,),
        )

    @property
    def _interval_after_failure_s(self) -> float | None:
        """The interval after a failure: what is known then, such as that nothing ran, holds until the next query.

        Also before the first answer, if what failed was traced and its share of time puts off the next query.
        """
        next_s = max(self._not_before_s, self._account.ready_s(self._cost_s)) - self.asked_s
        interval_s = self._effective_interval_s
        if interval_s is None:
            return next_s if next_s > LONGEST_PAUSE_S else None
        return max(interval_s, next_s)

    def _note_answer(self, sample: Sample) -> Sample:
        self.has_answered, self._simulated = True, sample.simulated
        self.has_failed_for_good = self.gone = self._ended = False
        self._serves = sample.figures.serves
        self._failures_in_a_row, self._not_before_s = 0, 0.0
        self._window_s, self._took_s = sample.window_s, sample.took_s
        interval_s = self._effective_interval_s
        return sample if sample.interval_s == interval_s else replace(sample, interval_s=interval_s)

    def _note_failure(self, failure: Failure) -> None:
        shortens = failure.reason == "too-large" and self._query.window_s is None  # the next window
        self.has_failed_for_good = MEANING[failure.reason].final and not shortens and not self.has_answered
        self.gone = MEANING[failure.reason].unreached
        if self.held.why:
            self._probes_next, self._not_before_s = False, self._clock_s() + _HELD_S
            return
        if self._awaits_requests(failure):
            self._failures_in_a_row, self._not_before_s = 0, 0.0
            return
        self._failures_in_a_row += 1
        yields = MEANING[failure.reason].state == "busy" and not self._is_another_tpumon
        pause_s = pause_after_failures(self._failures_in_a_row + (_FIRST_YIELD if yields else 0))
        self._not_before_s = self._clock_s() + pause_s

    def _may_try_again(self, failure: Failure) -> bool:
        """Another session is left alone, unless it is another tpumon's, and a job is not traced more for a failure.

        A worker that let a deadline pass, or whose process has ended, is named first, and asked again after that.
        """
        if failure.reason == "deadline" or self._ended or failure.shows_nothing or self._awaits_requests(failure):
            return False
        if self.has_answered and not self._pace.num_queries and failure.is_silence:
            return False  # that nothing runs is an answer, and none for seconds would be a worker that went away
        affordable = self._account.ready_s(self._cost_s) <= self._clock_s()
        return affordable and (self._is_another_tpumon or MEANING[failure.reason].retry)

    def _awaits_requests(self, failure: Failure) -> bool:
        """True if nothing ran as a server had no request: it is looked at as often as ever, or it would seem busier."""
        return self._serves and failure.is_silence

    async def _fetch(self) -> Sample:
        """Asks the source that this worker offers; after it went away, all again: it may come back as another."""
        await self._check_held()
        query, interval_s = self._query, self._effective_interval_s
        allowed_s = self._wanted_s / self._account.pace_s
        if (query.interval_s, query.allowed_s) != (interval_s, allowed_s):
            self._query = query = replace(query, interval_s=interval_s, allowed_s=allowed_s)
        window_s = None
        for profiler in self._profilers[self._profilers.index(self._profiler) :]:
            try:
                sample = await self._ask_source(profiler, query)
            except SourceError as error:
                failure, window_s = await self._failure_of(profiler.name, error), error.window_s
                if error.reason != "unimplemented":
                    break
            except _QueryFailedError:
                raise
            except Exception as error:  # noqa: BLE001 - a bug in one source must not end the monitor
                words = f"a bug in tpumon: {unexpected(error)}"
                failure = Failure.of(profiler.name, SourceError("internal", words), self.target.address)
                break
            else:
                self._profiler = profiler
                return sample
        if MEANING[failure.reason].unreached or failure.reason == "unimplemented":
            self._profiler = self._profilers[0]
        raise _QueryFailedError(failure, window_s)

    async def _failure_of(self, source: str, error: SourceError) -> Failure:
        """The failure; says so if the session that does not end may be a tpumon's."""
        self._is_another_tpumon = False
        failure = Failure.of(source, error, self.target.address)
        address, process = self.target.address, self.target.process
        pid = None if process is None else process.pid
        if may_be_stopped(error, address, pid) and (words := await asyncio.to_thread(stopped_words, address, pid)):
            return replace(failure, reason="deadline", message=words, detail="stopped")
        if not may_be_hung(error):
            words = await self._duty.earlier_sampler(self._account, error)
            return replace(failure, message=error.message + words, detail="server-gone") if words else failure
        is_others = error.reason == "busy" and await self._duty.is_charged_elsewhere(self._account)
        if hung_by := self._account.hung_by:
            return replace(failure, reason="deadline", message=hung_by, detail="host-trace")
        if waits := self._account.host_trace_waits:
            return replace(failure, message=waits, detail="host-trace-waits")
        self._is_another_tpumon = is_others
        return replace(failure, message=f"{_OF_ANOTHER}{await how_to_read()}") if is_others else failure

    def _waits_in_vain(self) -> bool:
        """True if waiting until it may be traced is of no use: it is held, gone, or known to hang from the start."""
        hangs = not self.has_answered and (self._account.hung_by or self._account.host_trace_waits)
        return self._ended or bool(self.held.why or hangs)

    async def _check_held(self) -> None:
        """Raises _QueryFailedError while the worker is held."""
        failure = await self.held.failure(self.target, self._profiler.name, self._account.hung_by)
        if failure is not None:
            self._woken.clear()  # it is told now
            raise _QueryFailedError(failure)

    async def _ask_source(self, profiler: ProfilerSource, query: Query) -> Sample:
        """Runs a query once the job may be traced for as long as it is likely to take; or a probe, at once."""
        estimate_s, interval_s = 0.0, self._effective_interval_s or profiler.usual_interval_s
        if profiler.costs_job and not self._probes_next:
            self._account.interval_s = interval_s
            begun_s = self._clock_s()
            likely_s = partial(self._likely_s, profiler)
            entered_s = await self._duty.enter(self._account, likely_s, self._words.turn, self._waits_in_vain)
            self._probes_next, estimate_s, query = entered_s is None, entered_s or 0.0, self._query
            self._waited_s += self._clock_s() - begun_s
            try:
                await self._check_held()  # a pause may have begun meanwhile
            except BaseException:
                self._duty.settle(self._account, estimate_s, 0.0)
                raise
        traced_s, answered, is_answered, is_gone = 0.0, False, False, False
        self._woken.clear()  # by what this query sees
        self._words.asks()
        telling = None
        if profiler.costs_job:  # others trace no host
            telling = asyncio.create_task(self._duty.tell_of_host_trace(self._account, profiler, self._words.tracing))
        try:
            if self._probes_next:
                sample = await self._probe(profiler)
                traced_s, is_answered = sample.traced_s, profiler.costs_job
                return sample
            sample = await profiler.fetch(query)
            traced_s, answered, is_answered = sample.traced_s, True, profiler.costs_job
            if query.window_s is None and sample.figures.step_time_s is not None:
                self._account.window_s = profiler.window_s(query)  # the first one was a guess
        except SourceError as error:
            traced_s, answered = error.traced_s, error.traced_s > 0 and not MEANING[error.reason].unreached
            is_answered, is_gone = answered, error.reason == "unavailable"
            raise
        except BaseException:  # cut off, or a bug
            traced_s = profiler.current_traced_s
            raise
        finally:
            if telling is not None:
                telling.cancel()
            self._account.waits_since_s = 0.0
            self._traced_s += traced_s
            self._account.note_host_trace(profiler.unanswered_s, is_answered=is_answered, is_gone=is_gone)
            self._duty.settle(self._account, estimate_s, traced_s)
            if answered and profiler.costs_job:
                self._note_next_cost(profiler)
        if not profiler.costs_job:
            self._account.likely_s, self._account.interval_s = None, 0.0
        return sample

    def _likely_s(self, profiler: ProfilerSource) -> float:
        """Likely cost of a query, with the window that another tpumon may have found meanwhile."""
        if (known_s := self._account.known_window_s) != self._query.known_window_s:
            self._query = replace(self._query, known_window_s=known_s)
        return profiler.likely_s(self._query)

    async def _probe(self, profiler: ProfilerSource) -> Sample:
        """An answer without figures, of a worker that did not answer before and may not be traced for a while."""
        time_unix_s, self._account.probed_s = time.time(), self._clock_s()
        await profiler.probe()
        return Sample(
            worker=self.target.worker,
            address=self.target.address,
            time_unix_s=time_unix_s,
            window_s=self._window_s,
            took_s=self._clock_s() - self._account.probed_s,
            traced_s=profiler.current_traced_s,
            source=profiler.name,
            simulated=self._simulated,
            figures=Figures(absent=self._words.why_not_traced),
        )

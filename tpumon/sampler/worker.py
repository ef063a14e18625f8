"""One worker: which source to ask, how often to retry, and when to ask again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from tpumon.errors import MEANING, Reason, SourceError
from tpumon.figures import IDLE, INFEED, MXU, STEP
from tpumon.model import Failure, Figures, Query, Sample, Target
from tpumon.sampler.pace import JITTER_RATIO, Budget, Pace, jittered, on_a_tick, pause_after_failures
from tpumon.sources import ProfilerSource
from tpumon.system.pausing import Pause
from tpumon.text import one_line

_OF_WHAT_RUNS = tuple(figure.fields[0] for figure in (MXU, IDLE, STEP, INFEED))
_LOOK_AGAIN_S = 1.0  # whether a pause is over
_FREE_DUTY_RATIO = 0.5  # from here on a trace that takes longer is late, not dear
_FIRST_YIELD = 2  # each look at another session leaves a line in the job's log, so the first pause is 2 s already


class _QueryFailedError(Exception):
    def __init__(self, failure: Failure, traced_s: float) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.traced_s = traced_s


class Worker:
    """What is remembered about one worker between queries.

    Args:
        target: the worker.
        profilers: its sources, in the order in which to try them.
        query: what to ask.
        pace: how often.
        pause: the pause in effect, if any.
        budget: for how long its job may be traced.
    """

    def __init__(
        self,
        target: Target,
        profilers: Sequence[ProfilerSource],
        query: Query,
        pace: Pace,
        pause: Callable[[], Awaitable[Pause | None]],
        budget: Budget,
    ) -> None:
        self.target = target
        self._profilers = profilers
        self._profiler = profilers[0]  # the one that answered last
        self._query = query
        self._pace = pace
        self._pause = pause
        self._clock_s = asyncio.get_running_loop().time
        self._budget = budget
        self._traced_s = 0.0  # by the last query
        self._took_s = 0.0  # by the last query
        self._window_s = query.window_s  # of the last answer
        self._failures_in_a_row = 0
        self._not_before_s = 0.0
        self._answered = False
        self._simulated = False
        self.hopeless = False
        """Whether this worker never answered, and its last failure is final."""
        self.gone = False
        """Whether its last query did not reach it."""

    @property
    def _wanted_interval_s(self) -> float:
        """What the user or the source wants, but no less than the window: a server may answer before it is over."""
        wanted_s = self._pace.interval_s if self._pace.interval_s is not None else self._profiler.usual_interval_s
        return max(wanted_s, self._window_s or 0.0)

    @property
    def _interval_s(self) -> float | None:
        """What results in the long run, the job being traced for no more than its share; None: unknown yet.

        No less than the last query took: it may have waited for its turn, and will again.
        """
        if not self._answered and self._pace.interval_s is None:
            return None
        interval_s = max(self._wanted_interval_s, self._traced_s / self._budget.ratio)
        return self._took_s if self._took_s > (1 + JITTER_RATIO) * interval_s else interval_s

    @property
    def planned_interval_s(self) -> float:
        """From one query to the next if nothing is late: what is wanted, or what the job's share of tracing allows."""
        if self._pace.max_duty_ratio > _FREE_DUTY_RATIO:
            return self._wanted_interval_s
        return max(self._wanted_interval_s, self._traced_s / self._pace.max_duty_ratio)

    def due_s(self, start_s: float) -> float:
        """When to ask next, by the loop's clock, having asked at `start_s`."""
        window_s, interval_s = self._window_s or 0.0, self._wanted_interval_s
        due_s = start_s + interval_s
        if interval_s > window_s:  # back to back is back to back; a gap is jittered
            due_s = on_a_tick(start_s + max(window_s, jittered(interval_s)))
        if self._traced_s:
            gap_s = self._budget.ready_s(self._traced_s) - start_s
            due_s = max(due_s, start_s + gap_s * random.uniform(1, 1 + JITTER_RATIO))  # never sooner than it may
        return max(due_s, self._not_before_s)

    async def ask(self) -> Sample:
        """Runs one query, up to `attempts` times."""
        time_unix_s, start_s, asked_s = time.time(), time.monotonic(), self._clock_s()
        self._traced_s = self._took_s = 0.0
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
        self._took_s = time.monotonic() - start_s
        return Sample(
            worker=self.target.worker,
            address=self.target.address,
            time_unix_s=time_unix_s,
            window_s=self._window_s,
            took_s=self._took_s,
            interval_s=self._interval_s_after(failure, asked_s),
            traced_s=self._traced_s,
            simulated=self._simulated,
            figures=Figures(absent=self._why_absent(failure)),
            errors=(failure,),
        )

    def _interval_s_after(self, failure: Failure, asked_s: float) -> float | None:
        """An answer that nothing ran is current until the next one is due, which may be later than usual."""
        if MEANING[failure.reason].state != "no-activity":
            return self._interval_s
        return max(self._interval_s or 0.0, self._not_before_s - asked_s)

    def _why_absent(self, failure: Failure) -> Mapping[str, str]:
        """Why figures are absent although the worker answered: nothing ran."""
        if MEANING[failure.reason].state != "no-activity":
            return {}
        return dict.fromkeys(_OF_WHAT_RUNS if self._query.level > 1 else _OF_WHAT_RUNS[:1], "nothing ran")

    def _note_answer(self, sample: Sample) -> Sample:
        self._answered, self.hopeless, self.gone, self._simulated = True, False, False, sample.simulated
        self._failures_in_a_row, self._not_before_s = 0, 0.0
        self._window_s, self._took_s = sample.window_s, sample.took_s
        self._count_traced(sample.traced_s)
        return sample if sample.interval_s == self._interval_s else replace(sample, interval_s=self._interval_s)

    def _note_failure(self, failure: Failure, traced_s: float) -> None:
        self._count_traced(traced_s)
        shortens = failure.reason == "too-large" and self._query.window_s is None  # the next window
        self.hopeless = MEANING[failure.reason].final and not shortens and not self._answered
        self.gone = MEANING[failure.reason].unreached
        if failure.reason == "paused":
            self._not_before_s = self._clock_s() + _LOOK_AGAIN_S
            return
        self._failures_in_a_row += 1
        yields = MEANING[failure.reason].state == "busy"
        pause_s = pause_after_failures(self._failures_in_a_row + (_FIRST_YIELD if yields else 0))
        self._not_before_s = self._clock_s() + pause_s

    def _may_try_again(self, failure: Failure) -> bool:
        """Another session is left alone, and a job is not traced more because its query failed.

        A worker that let a deadline pass is named first, and asked again after that.
        """
        if failure.reason == "deadline":
            return False
        affordable = self._budget.ready_s(self._traced_s) <= self._clock_s()
        return affordable and MEANING[failure.reason].retry

    def _count_traced(self, traced_s: float) -> None:
        if traced_s:
            self._traced_s += traced_s
            self._budget.usual_s = self._traced_s
            self._budget.spend(traced_s, self._clock_s())

    async def _fetch(self) -> Sample:
        """Asks the source that this worker offers; after it went away, all again: it may come back as another."""
        pause = await self._pause()
        if pause is not None:
            raise _QueryFailedError(self._failure("pause", "paused", str(pause)), 0.0)
        query = replace(self._query, interval_s=self._interval_s)
        traced_s = 0.0
        for profiler in self._profilers[self._profilers.index(self._profiler) :]:
            try:
                sample = await profiler.fetch(query)
            except asyncio.CancelledError:
                self._count_traced(profiler.unpaid_s)
                raise
            except SourceError as error:
                failure = self._failure(profiler.name, error.reason, error.message, error.address)
                traced_s = error.traced_s
                if error.reason != "unimplemented":
                    break
            except Exception as error:  # noqa: BLE001 - a bug in one source must not end the monitor
                words = f"a bug in tpumon: {type(error).__name__}: {one_line(str(error))}"
                failure = self._failure(profiler.name, "internal", words)
                break
            else:
                self._profiler = profiler
                return sample
        if MEANING[failure.reason].unreached or failure.reason == "unimplemented":
            self._profiler = self._profilers[0]
        raise _QueryFailedError(failure, traced_s)

    def _failure(self, source: str, reason: Reason, message: str, address: str | None = None) -> Failure:
        return Failure(source=source, reason=reason, message=message, address=address or self.target.address)

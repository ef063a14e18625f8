"""Figures from short device traces, for profiler servers without the Monitor RPC, such as those of TPU VMs."""

from __future__ import annotations

import asyncio
import math
import secrets
import tempfile
import time
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tpumon.collection.sources.base import ProfilerSource, SourceOptions
from tpumon.collection.sources.doctor_reports import COST, Examination, RpcAnswer, figures_by_traces, release_of
from tpumon.collection.sources.traces import readers
from tpumon.collection.sources.traces.backoff import Backoff
from tpumon.collection.sources.traces.call_cost import PROBE_S, CallCost
from tpumon.collection.sources.traces.cpu_use import COMPUTES, HOST_CHECK_S, CpuUse
from tpumon.collection.sources.traces.idle_check import IdleCheck
from tpumon.collection.sources.traces.profile_rpc import HostEvents, Profiler, TraceRequest
from tpumon.collection.sources.traces.reducer import TraceReducer
from tpumon.collection.sources.traces.slots import QUICK_BYTES
from tpumon.collection.sources.traces.stopped_time import StoppedTime
from tpumon.collection.sources.traces.window import (
    BUSY_IDLE_RATIO,
    FIRST_WINDOW_S,
    USUAL_LONGEST_WINDOW_S,
    Window,
    figures_of_window,
)
from tpumon.errors import MEANING, NOT_SEEN, SourceError, TpumonError
from tpumon.model import LONGEST_WINDOW_S, Address, Query, Sample, Target
from tpumon.model.figure_table import of_level
from tpumon.system.host_files import since_boot_s
from tpumon.system.logdir import LocalLogDir, LogDir, trace_file_name
from tpumon.untrusted_text import unexpected
from tpumon.xspace.outline import outline

if TYPE_CHECKING:
    from tpumon.collection.sources.rpc import Client
    from tpumon.errors import Detail, Reason
    from tpumon.xspace.trace_figures import TraceFigures

_REFUSALS = frozenset({"INVALID_ARGUMENT", "UNIMPLEMENTED"})  # of options: the device's profiler checks them first
_PATIENCE_S = 10.0  # after the window: for how long a worker that answers in time may keep a turn
_CANNOT_BE_SEEN = (
    "this old server can only write traces to files, and none that are visible from here; give a --logdir that both "
    "can see (a shared directory or gs://)"
)

_SAFE_HOST_LEVEL = 1  # includes step annotations; level 2 costs the job more
_CAPTURE_HOST_LEVEL = 2  # what level 0 requests
_SHORTEST_CHECK_S, _ROOM = 0.1, 1.25  # at a device that was busy: a window in which an op shows, wherever it begins


class _TakenTrace(Struct, frozen=True):
    """A trace, when its window began, how long it was to be, and if the trace is lighter."""

    xspace: memoryview
    time_unix_s: float
    window_s: float
    is_lighter: bool


class TraceSource(ProfilerSource):
    """Takes a short trace of one worker and analyses it.

    Source: /tensorflow.ProfilerService/Profile, approached as `profile_rpc` does; figures by
    `tpumon.xspace`, which follows XProf.
    """

    name = "trace"
    title = "short traces"
    usual_interval_s = 10.0
    rpc = "Profile"
    costs_job = True
    gives = f"by short traces: not yet seen which figures{COST}"

    def __init__(self, client: Client, target: Target, options: SourceOptions) -> None:
        self._target = target
        self._options = options
        host_events = HostEvents(level=options.host_level, safe_level=_SAFE_HOST_LEVEL, beside_devices=False)
        self._profiler = Profiler(client, host_events, gpu=options.gpu, signs_at=options.signs_at)
        self._client = client
        self._window = Window()
        self._backoff = Backoff(client)
        self._reducer = TraceReducer(client)
        self._cost = CallCost()
        self._writes_elsewhere_on: int | None = None
        self._is_heavy = False
        self._had_steps = False
        self._was_busy = self.is_silent = False  # the device was busy by the last usual trace
        self._short_s = math.inf  # a window that held a whole op wherever it began, by that trace
        self._has_device = True  # by that trace
        self._cpu_use = CpuUse(options.cpu_s_of)
        self._in_time_on: int | None = None  # the connection on which its last trace came in time
        self._idle_check = IdleCheck()

    async def fetch(self, query: Query) -> Sample:
        """Takes one trace; level 1 takes the same trace as level 2 and shows less of it.

        Raises:
            SourceError: `busy` if another session is active; `refused` if the server can only write traces to files
                that are not visible from here; otherwise as the call failed or the trace is. `traced_s` is how long
                the job was traced nevertheless.
        """
        await self._begin()
        start_s = time.monotonic()
        checks_idle, was_silent = False, self.is_silent
        self._say("it is asked what its profiler can do", "asking")
        try:
            returns_traces = await self._returns_traces()
            window_s = self.window_s(query)
            in_time = self._answers_in_time
            self._say("waiting for its turn among the workers", "waiting")
            async with self._options.slots.slot(in_time=in_time, heavy=self._is_heavy, window_s=window_s) as answered:
                checks_idle = self._idle_check.is_due(self._client.connection, self._profiler.known.signs.pid)
                if checks_idle and (checks_idle := await self._may_check_idle()):
                    window_s, in_time = min(window_s, FIRST_WINDOW_S), False
                level = IdleCheck.host_level if checks_idle else None
                trace = await self._take(window_s, in_time=in_time, returns_traces=returns_traces, host_level=level)
                answered()
                self._say("its trace is analysed", "reading")
                trace_figures = await self._figures_of(trace, query)
        except SourceError as error:
            if checks_idle and MEANING[error.reason].state in {"busy", "continuous"}:
                self._idle_check.forget_tried()
            self._note_failure(error, usual_query=None if checks_idle else query)
            raise
        self._backoff.note_trace()
        self.is_silent = False
        if trace_figures.core_count:
            self._profiler.saw_devices()
        elif trace.is_lighter and self._profiler.known.device_planes:
            self._reducer.give_up()  # accepted, and nothing was collected
        is_usual = not checks_idle and not was_silent
        if is_usual:
            if trace_figures.truncated and self._note_overflow(query):
                self._window.shrink()
            self._learn(trace_figures, query)
        self._idle_check.note_figures(trace_figures, self._client.connection, was_silent=was_silent)
        return self._sample(query, trace_figures, trace, start_s=start_s, is_usual=is_usual)

    async def _begin(self) -> None:
        """Waits for the turn of a query that has cost nothing yet."""
        self._cost.begin_query()
        self.unanswered_s = 0.0
        self._backoff.check()
        await self._client.wait_for_turn()

    async def probe(self) -> None:
        """Finds out if the server answers, by a trace of 1 ms. Raises as `fetch`."""
        await self._begin()
        try:
            self._profiler.forget()
            await self._returns_traces()
        except SourceError as error:
            self._note_failure(error)
            raise

    def note_silence(self, query: Query) -> bool:
        """As in the base class; also where the user gave the window, if usual ones are rare and short ones tell."""
        self.is_silent = self._check_tells(query)
        return self.is_silent

    def activity_check_s(self, query: Query) -> float:
        may_check_activity = self._profiler.may_check_activity(has_device=self._has_device)
        is_of_use = self._check_tells(query) and not self.is_silent and may_check_activity
        return self._cost.of_trace_s(self._short_s) if is_of_use else 0.0

    @property
    def _computes(self) -> bool:
        """True if the job's process may run something on its host, which has no device."""
        return not self._has_device and not self._cpu_use.is_idle(self._profiler.known.signs.pid)

    def _check_tells(self, query: Query) -> bool:
        return self._check_may_tell(query) and not self._computes

    def _check_may_tell(self, query: Query) -> bool:
        usual_s, allowed_s = query.window_s or self._window.length_s, (query.window_s and query.allowed_s) or 0.0
        if not self._has_device:
            is_known = self._cpu_use.is_known(self._profiler.known.signs.pid)
            return usual_s > FIRST_WINDOW_S and is_known and self._profiler.may_check_activity(has_device=False)
        return self._had_steps and self._was_busy and usual_s > max(FIRST_WINDOW_S, 2 * self._short_s, allowed_s)

    async def anything_runs(self) -> bool:
        """Tells by a short trace if anything runs on a device that was busy, or on a host whose job seems to pause."""
        await self._begin()
        of_long_ones = self._cost.collecting_s, self._in_time_on, self._is_heavy
        try:
            returns_traces = await self._returns_traces()
            if not self._profiler.may_check_activity(has_device=self._has_device):
                return True  # another server has the port by now: nothing says that it is silent
            level = 0 if self._has_device else None
            async with self._options.slots.slot(in_time=False, heavy=False, window_s=self._short_s) as answered:
                trace = await self._take(self._short_s, in_time=False, returns_traces=returns_traces, host_level=level)
                answered()
            self._backoff.note_trace()
            return bool((await self._read(trace.xspace, 0)).core_count) or not self._has_device
        except SourceError as error:
            if error.reason == "empty-trace":
                return False
            self._note_failure(error)
            raise
        finally:
            self._cost.collecting_s, self._in_time_on, self._is_heavy = of_long_ones

    @property
    def current_traced_s(self) -> float:
        """Seconds for which the query under way, or cut off, has traced the job."""
        return self._cost.traced_s

    def likely_s(self, query: Query) -> float:
        """Seconds for which a query is likely to trace the job."""
        probe_s = 0.0 if self._profiler.is_known else PROBE_S
        return probe_s + self._cost.of_trace_s(self.window_s(query))

    def window_s(self, query: Query) -> float:
        if query.window_s is not None and not self.is_silent:
            return query.window_s
        return self._short_s if self.is_silent else self._window.of_level(query.level, query.known_window_s)

    def _note_failure(self, error: SourceError, *, usual_query: Query | None = None) -> None:
        """Notes what a failed call cost, and what follows; raises what to say instead, if that is something else.

        Args:
            error: the failure.
            usual_query: whose trace was a usual one; None: it was not, so its size says nothing of the next ones.

        Raises:
            SourceError: what to say instead, after several failures of this kind.
        """
        if self.unanswered_s:
            self._profiler.spare_host(self.unanswered_s)
        if MEANING[error.reason].traced:
            error.traced_s = self.current_traced_s
        if error.detail == "connection-refused":
            self._idle_check.forget_tried()
            self._had_steps = self.is_silent = self._window.shows_compiling = False
        if error.reason == "too-large" and usual_query is not None:
            self._note_overflow(usual_query)
            self._window.shrink()
            self._backoff.note_too_large(error)
        if MEANING[error.reason].state in {"busy", "continuous"}:
            self._backoff.note_busy(error)

    def _say(self, words: str, brief: str, *, takes_s: float | None = None) -> None:
        self._options.progress.does(self._target.address, words, brief, takes_s=takes_s)

    @property
    def _answers_in_time(self) -> bool:
        """True if its last trace came in time, over the connection that it has now."""
        return self._client.connected and self._in_time_on == self._client.connection

    async def _returns_traces(self) -> bool:
        """True if the server returns traces: asks it, unless that is known."""
        await self._profiler.find_signs()
        self._cost.begin_call(PROBE_S)
        returns_traces = await self._profiler.approach()
        self._cost.end_call()
        return returns_traces

    async def _may_check_idle(self) -> bool:
        """True if the host may be traced to tell why the device is idle; that is tried now, and not again."""
        self._idle_check.note_tried(self._profiler.known.signs.pid)
        self._cost.begin_call(PROBE_S)
        may_check = await self._profiler.may_raise_host_level()
        self._cost.end_call()
        return may_check

    async def _take(
        self, window_s: float, *, in_time: bool, returns_traces: bool, host_level: int | None = None
    ) -> _TakenTrace:
        """Takes the trace. A worker that answered in time must do so again; others have the whole deadline."""
        time_unix_s, traced_from_s = time.time(), time.monotonic()
        if self._profiler.known.may_hang and host_level != 0:
            self.unanswered_s = since_boot_s()
        likely_s = self._cost.of_trace_s(window_s)
        self._cost.begin_call(likely_s)
        options = self._reducer.options if returns_traces else {}
        request = TraceRequest(window_s=window_s, advanced=options, host_level=host_level)
        take = self._take_returned if returns_traces else self._take_written
        self._say(f"a trace of {1000 * window_s:.0f} ms is taken", "tracing", takes_s=likely_s)
        try:
            with StoppedTime(self._profiler.known.signs.pid, self._options.state_of) as stopped:
                async with asyncio.timeout(window_s + _PATIENCE_S if in_time else None):
                    xspace, is_lighter = await take(request)
        except TimeoutError as error:
            self._in_time_on = None
            words = f"no answer within {time.monotonic() - traced_from_s:.0f} s"
            raise self._error("deadline", f"{words}; is it a profiler server, and is its host alive?") from error
        except SourceError as error:
            if error.reason != "deadline":
                self.unanswered_s = 0.0
            if MEANING[error.reason].unreached:
                self._in_time_on = None
            else:
                self._cost.end_call()
            raise
        except TpumonError as error:
            self._cost.end_call()
            raise self._error("refused", str(error)) from error
        except asyncio.CancelledError:
            if time.monotonic() - traced_from_s < window_s + _PATIENCE_S:
                self.unanswered_s = 0.0  # it may well be answered
            raise
        took_s, self.unanswered_s = self._cost.end_call(stopped.seconds), 0.0
        self._cost.collecting_s = max(0.0, took_s - window_s)
        self._in_time_on = self._client.connection if took_s <= window_s + _PATIENCE_S else None
        return _TakenTrace(xspace, time_unix_s, window_s, is_lighter=is_lighter)

    async def _read(self, xspace: memoryview, ops: int) -> TraceFigures:
        """Reads a trace: one that is large or takes long in the process for such traces. Raises as `Readers.read`."""
        is_large = len(xspace) > QUICK_BYTES
        self._is_heavy = self._is_heavy or is_large
        by = readers.SLOW if self._is_heavy else readers.QUICK
        try:
            trace_figures, cpu_s = await by.read(xspace, ops)
        except SourceError as error:
            if error.reason != "too-large" or by is readers.SLOW:
                raise
            self._is_heavy = True
            return await self._read(xspace, ops)
        self._is_heavy = is_large or cpu_s > readers.QUICK.cpu_s
        return trace_figures

    async def _figures_of(self, trace: _TakenTrace, query: Query) -> TraceFigures:
        try:
            return await self._read(trace.xspace, query.ops if query.level > 1 else 0)
        except SourceError as error:
            if error.reason == "empty-trace":
                if trace.is_lighter:
                    self._reducer.give_up()
                raise await self._empty(trace, error, query) from error
            raise self._error(error.reason, error.message) from error
        except Exception as error:  # a bug in the analysis must not make tracing free
            message = f"a bug in tpumon: {unexpected(error)}"
            raise self._error("internal", message) from error

    async def _empty(self, trace: _TakenTrace, error: SourceError, query: Query) -> SourceError:
        """The error for an empty trace; after a few that can never hold anything else, tracing stops."""
        if (await asyncio.to_thread(outline, trace.xspace, count_events=False)).device_planes:
            self._profiler.saw_devices()
        was_silent = self.is_silent
        self._learn(None, query)
        if was_silent and self._computes:
            return self._error("empty-trace", f"{NOT_SEEN}: {COMPUTES}", "not-seen")
        if not self._profiler.records_nothing:
            self._backoff.note_trace()
            empty = self._error("empty-trace", self._window.why_empty(error.message))
            empty.window_s = trace.window_s
            return empty
        why = self._profiler.why_nothing
        return self._backoff.note_empty(why) or self._error("empty-trace", f"{NOT_SEEN}: {why}", "not-seen")

    def _error(self, reason: Reason, message: str, detail: Detail | None = None) -> SourceError:
        return SourceError(reason, message, address=self._target.address, detail=detail)

    async def examine(self) -> Examination:
        """Finds out for `doctor` what the server can do, by the probe and GetSnapshot.

        Raises:
            SourceError: as `fetch`.
        """
        host_events = HostEvents(level=None, safe_level=_CAPTURE_HOST_LEVEL, beside_devices=True)
        profiler = Profiler(self._client, host_events, signs_at=self._options.signs_at)
        self._cost.begin_query()
        self._cost.begin_call(PROBE_S)
        returns_traces = await profiler.approach()
        self._cost.end_call()
        safe, signs, devices = not profiler.leaves_out_host_events, profiler.known.signs, profiler.known.device_planes
        words = "writes traces to a disk, cannot return them"
        if returns_traces:
            words = f"returns traces, {'with' if devices else 'without'} device planes"
        snapshot = RpcAnswer(rpc="GetSnapshot", state="ok", words="known: tracing the host is safe")
        if signs.host_events_safe:
            words_if_seen = f"tracing the host is safe: the job is {signs.framework or 'not one of jaxlib alone'}"
            snapshot = RpcAnswer(rpc="GetSnapshot", state="not asked", words=words_if_seen)
        elif not safe:
            words_if_unsafe = "unknown (UNIMPLEMENTED): tracing the host may hang the job"
            snapshot = RpcAnswer(rpc="GetSnapshot", state="absent", words=words_if_unsafe)
        visible = returns_traces or Address.parse(self._target.address).is_this_host
        holds_tpu = bool(devices) or signs.holds_tpu
        return Examination(
            answers=(RpcAnswer(rpc=self.rpc, state="ok", words=words), snapshot),
            usable=visible and (holds_tpu or safe or not returns_traces),
            gives=figures_by_traces(devices=devices, holds_tpu=holds_tpu, safe=safe),
            generation=release_of(returns_traces=returns_traces, safe=safe, signs=signs),
            device_planes=devices,
            writes_only=not returns_traces,
            host_events_safe=safe,
            simulated=profiler.known.simulated,
        )

    def _learn(self, trace_figures: TraceFigures | None, query: Query) -> None:
        """Adapts the window. One without a step suggests long steps if the device was busy, or if there is none.

        Where a job had steps and nothing runs now, the window stays as it is: a longer one would show no more. A device
        that was busy, or a host without one, is then looked at in short windows, until something runs again.
        """
        figures = None if trace_figures is None else trace_figures.figures
        idle_ratio = None if figures is None else figures.idle_ratio
        busy = idle_ratio is not None and idle_ratio < BUSY_IDLE_RATIO
        serves = figures is not None and figures.serves
        if trace_figures is not None:
            self._was_busy = busy and not serves
            self._has_device = trace_figures.core_count > 0 or self._profiler.may_have_device
            op_s = _ROOM * (trace_figures.op_within_s or math.inf)
            self._short_s = max(_SHORTEST_CHECK_S, op_s) if self._has_device else HOST_CHECK_S
        if figures is not None and figures.step_time_s is not None:
            self._had_steps = True
            self._window.learn(figures.step_time_s.avg, figures.step_source)
        elif figures is not None and self._window.note_compiling(figures.compile_ratio):
            pass  # no step could end in it
        elif trace_figures is not None and serves and query.level > 1 and (trace_figures.stepless or not busy):
            self._had_steps = True
            self._window.note_server_window((query.allowed_s or 0.0) - self._cost.collecting_s)
        elif trace_figures is None and (self._had_steps or self._check_tells(query)):
            self.note_silence(query)
        elif trace_figures is not None and trace_figures.stepless:
            # A longer window would show no step either, unless this one was made for another program's short steps.
            self._window.grow(FIRST_WINDOW_S)
        elif query.level == 1:
            pass  # its figures need no whole step
        elif self._profiler.known.device_planes:
            self._window.grow(LONGEST_WINDOW_S if busy else USUAL_LONGEST_WINDOW_S)
        elif not self._profiler.leaves_out_host_events:
            self._window.grow(LONGEST_WINDOW_S)

    def _note_overflow(self, query: Query) -> bool:
        """Makes the next trace lighter; returns whether its window is to be shorter."""
        return self._reducer.note_overflow(
            window_is_given=query.window_s is not None,
            knows_options=bool(self._profiler.known.returns_traces and self._profiler.known.device_planes),
        )

    async def _take_returned(self, request: TraceRequest) -> tuple[memoryview, bool]:
        """Takes a trace from a server that returns it: the trace, and whether the options of `request` were used.

        A server that refuses them has traced nothing yet, and is asked again without them.
        """
        if not request.advanced:
            return await self._profiler.take(request), False
        try:
            return await self._profiler.take(request), True
        except SourceError as error:
            if error.reason != "empty-trace" and error.status not in _REFUSALS:
                raise
            self._reducer.give_up()
            if error.reason == "empty-trace":
                raise  # the job was traced: the next query goes without them
        return await self._profiler.take(replace(request, advanced={})), False

    async def _take_written(self, request: TraceRequest) -> tuple[memoryview, bool]:
        """Takes a trace from a server that can only write it to a file; such servers know no options."""
        if self._writes_elsewhere_on == self._client.connection:
            raise self._error("refused", _CANNOT_BE_SEEN)
        if self._options.logdir is not None:
            return await self._take_into(self._options.logdir, request), False
        if not Address.parse(self._target.address).is_this_host:
            raise self._error("refused", _CANNOT_BE_SEEN)
        with tempfile.TemporaryDirectory(prefix="tpumon-", ignore_cleanup_errors=True) as private:
            return await self._take_into(LocalLogDir(private), request), False

    async def _take_into(self, logdir: LogDir, request: TraceRequest) -> memoryview:
        session = f"tpumon-{secrets.token_hex(8)}"
        try:
            return await self._profiler.take_written(request, logdir, session)
        except SourceError as error:
            # Once is enough: if the server runs in a container, every trace would stay on its disk for good.
            if error.reason == "refused":
                self._writes_elsewhere_on = self._client.connection
            raise
        finally:
            await asyncio.to_thread(logdir.discard, session, trace_file_name(self._target.address))

    def _sample(
        self, query: Query, trace_figures: TraceFigures, trace: _TakenTrace, *, start_s: float, is_usual: bool
    ) -> Sample:
        may_be_long = is_usual and not trace_figures.stepless and not trace_figures.truncated
        long_steps = self._window.warning(query, trace_figures.figures) if may_be_long else None
        lighter = self._reducer.warning if trace.is_lighter else None
        return Sample(
            worker=self._target.worker,
            address=self._target.address,
            time_unix_s=trace.time_unix_s,
            window_s=trace_figures.window_s,
            took_s=time.monotonic() - start_s,
            traced_s=self._cost.traced_s,
            source="trace",
            simulated=trace_figures.simulated,
            device_type=trace_figures.device_type,
            cores=trace_figures.core_count if query.level > 1 else None,
            figures=of_level(figures_of_window(trace_figures, trace.window_s), query.level),
            truncated=trace_figures.truncated,
            is_activity_checked=self._check_may_tell(query),
            warnings=(*trace_figures.warnings, *filter(None, [lighter, long_steps])),
        )

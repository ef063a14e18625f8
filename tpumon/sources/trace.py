"""Figures from short device traces, for profiler servers without the Monitor RPC, such as those of TPU VMs."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tpumon.errors import MEANING, SourceError, TpumonError
from tpumon.figures import of_level
from tpumon.logdir import LocalLogDir, LogDir, trace_file_name
from tpumon.model import LONGEST_WINDOW_S, Address, JobSigns, Query, Sample, Target
from tpumon.model.frozen import frozen
from tpumon.sources import readers
from tpumon.sources.base import ProfilerSource, SourceOptions
from tpumon.sources.examination import Answer, Examination
from tpumon.sources.lighter import Lighter
from tpumon.sources.profile import MOST_PROBE_BYTES, Capture, HostEvents, Profiler
from tpumon.sources.restraint import Restraint
from tpumon.sources.sharing import Lane, Turn
from tpumon.sources.window import BUSY_IDLE_RATIO, USUAL_LONGEST_WINDOW_S, Window
from tpumon.text import one_line
from tpumon.xspace.outline import outline

if TYPE_CHECKING:
    from tpumon.errors import Reason
    from tpumon.sources.rpc import Client
    from tpumon.xspace import TraceFigures

_Result = TypeVar("_Result")

_REFUSALS = frozenset({"INVALID_ARGUMENT", "UNIMPLEMENTED"})  # of options: the device's profiler checks them first
_PROBE_S = 0.02  # what a probe is taken to cost if it has no answer
_COLLECTING_S = 0.1  # after the window, before an answer has shown how long it takes

# For how long a worker may keep one of the turns that quick ones share.
_QUICK_PROBE_S = 3.0
_QUICK_TRACE_S = 10.0  # after the window
_LATE_TURN_S = 10.0
_QUICK_BYTES = 8_000_000
_COPIES = 3  # as gRPC receives it, as it puts it together, and the answer, until the first two are gone
_COPIES_LATER = 2  # the answer, and its copy in the file of the process that reads it
_LEAST_BYTES = 1 << 20
_NEW_BYTES = 1 << 19  # of a worker that may never answer: many such wait at a time

_CANNOT_BE_SEEN = (
    "this old server can only write traces to files, and none that are visible from here; give a --logdir that both "
    "can see (a shared directory or gs://)"
)

_SAFE_HOST_LEVEL = 1  # includes step annotations; level 2 costs the job more
_CAPTURE_HOST_LEVEL = 2  # what level 0 requests
_COST = "; the job is traced for 1 % of the time at most"


@frozen(kw_only=False)
class _Taken:
    """A trace, when its window began, and if it is lighter."""

    xspace: memoryview
    time_unix_s: float
    advanced: bool


class TraceSource(ProfilerSource):
    """Takes a short trace of one worker and analyses it.

    Source: /tensorflow.ProfilerService/Profile, approached as `tpumon.sources.profile` does; figures by
    `tpumon.xspace`, which follows XProf.
    """

    name = "trace"
    title = "short traces"
    usual_interval_s = 10.0
    rpc = "Profile"
    costs_job = True
    gives = f"by short traces: not yet seen which figures{_COST}"

    def __init__(self, client: Client, target: Target, options: SourceOptions) -> None:
        self._target = target
        self._options = options
        host_events = HostEvents(level=options.host_level, safe_level=_SAFE_HOST_LEVEL, beside_devices=False)
        self._profiler = Profiler(client, host_events, gpu=options.gpu, signs_at=options.signs_at)
        self._client = client
        self._window = Window()
        self._restraint = Restraint(client)
        self._lighter = Lighter(client)
        self._traced_s = 0.0  # by the calls of the last query that are over
        self._call: tuple[float, float] | None = None  # the one under way: since when, and what it is likely to cost
        self._collecting_s = _COLLECTING_S  # as the last answer took it
        self._writes_elsewhere_on: int | None = None
        self._is_heavy = False
        self._late_on: int | None = None  # the connection on which it let time pass without an answer
        self._traced_on: int | None = None  # the one on which it answered with a trace
        self._expected_bytes = _QUICK_BYTES

    async def fetch(self, query: Query) -> Sample:
        """Takes one trace; level 1 takes the same trace as level 2 and shows less of it.

        Raises:
            SourceError: `busy` if another session is active; `refused` if the server can only write traces to files
                that are not visible from here; otherwise as the call failed or the trace is. `traced_s` is how long
                the job was traced nevertheless.
        """
        self._traced_s, self._call = 0.0, None
        self._restraint.check()
        await self._client.wait_for_turn()
        start_s = time.monotonic()
        async with self._turn() as turn:
            try:
                taken = await self._take(query, turn)
                trace = await self._analyse(taken, turn, query)
            except SourceError as error:
                self._note_failure(error, query)
                raise
        self._restraint.note_trace()
        if trace.cores:
            self._profiler.saw_devices()
        elif taken.advanced and self._profiler.has_devices:
            self._lighter.give_up()  # accepted, and nothing was collected
        if trace.truncated and self._note_overflow(query):
            self._window.shrink()
        self._learn(trace, query.level)
        return self._sample(query, trace, taken, start_s=start_s)

    async def probe(self) -> None:
        """Finds out if the server answers, by a trace of 1 ms.

        Raises:
            SourceError: as `fetch`.
        """
        self._traced_s, self._call = 0.0, None
        self._restraint.check()
        await self._client.wait_for_turn()
        async with self._turn() as turn:
            try:
                self._profiler.forget()
                await self._probe(turn)
            except SourceError as error:
                self._note_failure(error, None)
                raise

    @property
    def unpaid_s(self) -> float:
        """How long the query under way, or cut off, has traced the job.

        A call that has no answer counts for as long as is likely: the server may be dead, or trace when it wakes up.
        """
        if self._call is None:
            return self._traced_s
        since_s, likely_s = self._call
        return self._traced_s + min(time.monotonic() - since_s, likely_s)

    def likely_s(self, query: Query) -> float:
        """How long a query is likely to trace the job."""
        probe_s = 0.0 if self._profiler.is_known else _PROBE_S
        return probe_s + self._window_s(query) + self._collecting_s

    def _window_s(self, query: Query) -> float:
        return query.window_s if query.window_s is not None else self._window.of_level(query.level)

    def _note_failure(self, error: SourceError, query: Query | None) -> None:
        """Notes what a query or a probe cost, and what follows from its failure.

        Raises:
            SourceError: what to say instead, after several failures of this kind.
        """
        if MEANING[error.reason].traced:
            error.traced_s = self.unpaid_s
        if error.reason == "too-large" and query is not None:
            self._note_overflow(query)
            self._window.shrink()
            self._restraint.note_too_large(error)
        if MEANING[error.reason].state in {"busy", "continuous"}:
            self._restraint.note_busy(error)

    def _end_call(self) -> None:
        """Counts the call under way, which was answered."""
        if self._call is not None:
            self._traced_s += time.monotonic() - self._call[0]
            self._call = None

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Turn]:
        """Waits for a turn; among those that are late not for long, since a server that restarts is not one of them."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_LATE_TURN_S if self._is_late else None):
                    turn = await stack.enter_async_context(Turn(self._lane))
            except TimeoutError:
                raise self._error("deadline", "no answer to its last query; others like it are asked first") from None
            yield turn

    @property
    def _lane(self) -> Lane:
        sharing = self._options.sharing
        if self._is_late or self._is_heavy:
            return sharing.late if self._is_late else sharing.heavy
        is_new = self._traced_on != self._client.connection or not self._client.connected
        return sharing.new if is_new else sharing.quick

    @property
    def _is_late(self) -> bool:
        """Whether it let time pass without an answer; whoever restarted since is like any other."""
        return self._late_on == self._client.connection

    async def _take(self, query: Query, turn: Turn) -> _Taken:
        """Takes the trace, while this worker has its turn; its memory is held until that ends."""
        is_new = turn.lane is self._options.sharing.new
        returns_traces = await self._probe(turn)
        most_bytes = min(_NEW_BYTES if is_new else self._expected_bytes, 1_000_000 * self._options.max_trace_mb)
        memory = await turn.hold(_COPIES * most_bytes)
        window_s = self._window_s(query)
        time_unix_s, traced_from_s = time.time(), time.monotonic()
        self._call = traced_from_s, window_s + self._collecting_s
        capture = Capture(window_s=window_s, advanced=self._lighter.options if returns_traces else {})
        readers.warm_up()
        take = self._take_returned if returns_traces else self._take_written
        try:
            with turn.waiting(window_s):
                xspace, advanced = await self._in_time(take(capture), window_s + _QUICK_TRACE_S)
        except SourceError as error:
            if not MEANING[error.reason].unreached:
                self._end_call()
            raise
        except TpumonError as error:
            self._end_call()
            raise self._error("refused", str(error)) from error
        took_s = time.monotonic() - traced_from_s
        self._end_call()
        self._collecting_s = max(0.0, took_s - window_s)
        self._traced_on = self._client.connection
        self._late_on = self._traced_on if took_s > window_s + _QUICK_TRACE_S else None
        self._expected_bytes = max(_LEAST_BYTES, 2 * len(xspace))
        memory.resize(_COPIES_LATER * len(xspace))
        return _Taken(xspace, time_unix_s, advanced=advanced)

    async def _probe(self, turn: Turn) -> bool:
        """Whether the server returns traces: asks it, unless that is known."""
        await self._profiler.look()
        is_new = turn.lane is self._options.sharing.new
        memory = await turn.hold(_COPIES * (_NEW_BYTES if is_new else MOST_PROBE_BYTES))
        self._call = time.monotonic(), _PROBE_S
        returns_traces = await self._approach(turn)
        self._end_call()
        memory.resize(0)
        return returns_traces

    async def _approach(self, turn: Turn) -> bool:
        """Whether the server returns traces. If it takes its time, it goes on waiting among those that are late."""
        approach = asyncio.ensure_future(self._profiler.approach())
        try:
            with turn.waiting():
                await asyncio.wait([approach], timeout=None if self._is_late else _QUICK_PROBE_S)
            if not approach.done():
                self._late_on = self._client.connection
                if not await turn.move(self._options.sharing.late):
                    raise self._error("deadline", _no_answer(_QUICK_PROBE_S))
            return await approach
        finally:
            approach.cancel()

    async def _in_time(self, call: Awaitable[_Result], patience_s: float) -> _Result:
        """The result of a call, if it comes in time; one that was late has all the time that the call has."""
        start_s = time.monotonic()
        try:
            async with asyncio.timeout(None if self._is_late else patience_s):
                return await call
        except TimeoutError as error:
            self._late_on = self._client.connection
            raise self._error("deadline", _no_answer(time.monotonic() - start_s)) from error

    async def _read(self, xspace: memoryview, turn: Turn, ops: int) -> TraceFigures:
        """Reads a trace. One that is large, or takes longer than those of quick workers may, gives its turn away first.

        Raises:
            SourceError: as `readers.read`.
        """
        sharing = self._options.sharing
        lane = sharing.quick if turn.lane is sharing.new else turn.lane  # it has answered
        if lane is sharing.quick:
            if len(xspace) <= _QUICK_BYTES:
                try:
                    return await self._read_in(lane, xspace, ops)
                except SourceError as error:
                    if error.reason != "too-large":
                        raise
            self._is_heavy = True
            lane = sharing.heavy
            if lane.answers.has(_COPIES_LATER * len(xspace)):  # else its turn is kept: memory is bounded
                await turn.give_back()
                turn.lane = lane
                await turn.hold(_COPIES_LATER * len(xspace))
        return await self._read_in(lane, xspace, ops)

    async def _read_in(self, lane: Lane, xspace: memoryview, ops: int) -> TraceFigures:
        trace, cpu_s = await readers.read(xspace, lane, ops)
        self._is_heavy = len(xspace) > _QUICK_BYTES or cpu_s > self._options.sharing.quick.cpu_s
        return trace

    async def _analyse(self, taken: _Taken, turn: Turn, query: Query) -> TraceFigures:
        try:
            return await self._read(taken.xspace, turn, query.ops if query.level > 1 else 0)
        except SourceError as error:
            if error.reason == "empty-trace":
                if taken.advanced:
                    self._lighter.give_up()
                raise await self._empty(taken.xspace, error, query.level) from error
            raise self._error(error.reason, error.message) from error
        except Exception as error:  # a bug in the analysis must not make tracing free
            message = f"a bug in tpumon: {type(error).__name__}: {one_line(str(error))}"
            raise self._error("internal", message) from error

    async def _empty(self, xspace: memoryview, error: SourceError, level: int) -> SourceError:
        """What to raise for an empty trace; after a few that can never hold anything else, tracing stops."""
        if (await asyncio.to_thread(outline, xspace, count_events=False)).device_planes:
            self._profiler.saw_devices()
        self._learn(None, level)
        if not self._profiler.records_nothing:
            self._restraint.note_trace()
            return self._error("empty-trace", error.message)
        why = self._profiler.why_nothing
        return self._restraint.note_empty(why) or self._error("empty-trace", f"{error.message}; {why}")

    def _error(self, reason: Reason, message: str) -> SourceError:
        return SourceError(reason, message, address=self._target.address)

    async def examine(self) -> Examination:
        """Finds out for `doctor` what the server can do, by the probe and GetSnapshot.

        Raises:
            SourceError: as `fetch`.
        """
        host_events = HostEvents(level=None, safe_level=_CAPTURE_HOST_LEVEL, beside_devices=True)
        profiler = Profiler(self._client, host_events, signs_at=self._options.signs_at)
        self._traced_s, self._call = 0.0, (time.monotonic(), _PROBE_S)
        returns_traces = await profiler.approach()
        self._end_call()
        safe, signs, devices = not profiler.leaves_out_host_events, profiler.signs, profiler.has_devices
        words = "writes traces to a disk, cannot return them"
        if returns_traces:
            words = f"returns traces, {'with' if devices else 'without'} device planes"
        snapshot = Answer(rpc="GetSnapshot", state="ok", words="known: host events are safe")
        if signs.host_events_safe:
            words_if_seen = f"host events are safe: the job is {signs.framework or 'not one of jaxlib alone'}"
            snapshot = Answer(rpc="GetSnapshot", state="not asked", words=words_if_seen)
        elif not safe:
            words_if_unsafe = "unknown (UNIMPLEMENTED): host events may hang the job"
            snapshot = Answer(rpc="GetSnapshot", state="absent", words=words_if_unsafe)
        visible = returns_traces or Address.parse(self._target.address).is_this_host
        holds_tpu = bool(devices) or signs.holds_tpu
        return Examination(
            answers=(Answer(rpc=self.rpc, state="ok", words=words), snapshot),
            usable=visible and (holds_tpu or safe or not returns_traces),
            gives=_gives(devices=devices, holds_tpu=holds_tpu, safe=safe),
            generation=_age(returns_traces=returns_traces, safe=safe, signs=signs),
            device_planes=devices,
            writes_only=not returns_traces,
            host_events_safe=safe,
            simulated=profiler.simulated,
        )

    def _learn(self, trace: TraceFigures | None, level: int) -> None:
        """Adapts the window. One without a step suggests long steps if the device was busy, or if there is none."""
        figures = None if trace is None else trace.figures
        if figures is not None and figures.step_time_s is not None:
            self._window.learn(figures.step_time_s.avg, figures.step_source)
        elif trace is not None and trace.stepless:
            pass  # a longer window would show no step either
        elif level == 1:
            pass  # its figures need no whole step
        elif self._profiler.has_devices:
            idle_ratio = None if figures is None else figures.idle_ratio
            busy = idle_ratio is not None and idle_ratio < BUSY_IDLE_RATIO
            self._window.grow(LONGEST_WINDOW_S if busy else USUAL_LONGEST_WINDOW_S)
        elif not self._profiler.leaves_out_host_events:
            self._window.grow(LONGEST_WINDOW_S)

    def _note_overflow(self, query: Query) -> bool:
        """Makes the next trace lighter; returns whether its window is to be shorter."""
        return self._lighter.note_overflow(
            window_is_given=query.window_s is not None,
            takes_options=bool(self._profiler.returns_traces and self._profiler.has_devices),
        )

    async def _take_returned(self, capture: Capture) -> tuple[memoryview, bool]:
        """Takes a trace from a server that returns it: the trace, and whether the options of `capture` were used.

        A server that refuses them has traced nothing yet, and is asked again without them.
        """
        if not capture.advanced:
            return await self._profiler.take(capture), False
        try:
            return await self._profiler.take(capture), True
        except SourceError as error:
            if error.reason != "empty-trace" and error.status not in _REFUSALS:
                raise
            self._lighter.give_up()
            if error.reason == "empty-trace":
                raise  # the job was traced: the next query goes without them
        return await self._profiler.take(replace(capture, advanced={})), False

    async def _take_written(self, capture: Capture) -> tuple[memoryview, bool]:
        """Takes a trace from a server that can only write it to a file; such servers know no options."""
        return await self._take_file(capture), False

    async def _take_file(self, capture: Capture) -> memoryview:
        if self._writes_elsewhere_on == self._client.connection:
            raise self._error("refused", _CANNOT_BE_SEEN)
        if self._options.logdir is not None:
            return await self._take_into(self._options.logdir, capture)
        if not Address.parse(self._target.address).is_this_host:
            raise self._error("refused", _CANNOT_BE_SEEN)
        with tempfile.TemporaryDirectory(prefix="tpumon-", ignore_cleanup_errors=True) as private:
            return await self._take_into(LocalLogDir(private), capture)

    async def _take_into(self, logdir: LogDir, capture: Capture) -> memoryview:
        session = f"tpumon-{secrets.token_hex(8)}"
        try:
            return await self._profiler.take_written(capture, logdir, session)
        except SourceError as error:
            # Once is enough: if the server runs in a container, every trace would stay on its disk for good.
            if error.reason == "refused":
                self._writes_elsewhere_on = self._client.connection
            raise
        finally:
            await asyncio.to_thread(logdir.discard, session, trace_file_name(self._target.address))

    def _sample(self, query: Query, trace: TraceFigures, taken: _Taken, *, start_s: float) -> Sample:
        long_steps = None if trace.stepless or trace.truncated else self._window.caution(query, trace.figures)
        lighter = self._lighter.caution if taken.advanced else None
        return Sample(
            worker=self._target.worker,
            address=self._target.address,
            time_unix_s=taken.time_unix_s,
            window_s=trace.window_s,
            took_s=time.monotonic() - start_s,
            traced_s=self._traced_s,
            source="trace",
            simulated=trace.simulated,
            device_type=trace.device_type,
            cores=trace.cores if query.level > 1 else None,
            figures=of_level(trace.figures, query.level),
            truncated=trace.truncated,
            warnings=(*trace.warnings, *filter(None, [lighter, long_steps])),
        )


def _gives(*, devices: bool | None, holds_tpu: bool, safe: bool) -> str:
    """Which figures short traces of a server have, as far as its answers and its process show it."""
    if devices:
        return f"by short traces: MXU, idle and step time{_COST}"
    if holds_tpu:
        return f"by short traces: MXU, idle and step time once the TPU the job holds shows in them{_COST}"
    if safe:
        return f"by short traces: step time; no TPU is seen{_COST}"
    return f"by short traces: no figures unless the job uses a TPU; none is seen{_COST}"


def _age(*, returns_traces: bool, safe: bool, signs: JobSigns) -> str:
    """Which releases answer so."""
    if returns_traces:  # TensorFlow and XProf have the same
        return "as in jaxlib 0.7 and 0.8" if not safe else "as in jaxlib 0.9 or newer"
    match signs.framework:
        case "TensorFlow":
            return "as in TensorFlow 2.20 or older"
        case "PyTorch/XLA":
            return "as in PyTorch/XLA 2.9 or older"
    return "as in jaxlib 0.6 or older" + ("" if signs.framework else ", TensorFlow 2.20 or older, PyTorch/XLA")


def _no_answer(waited_s: float) -> str:
    return f"no answer within {waited_s:.0f} s; is it a profiler server, and is its host alive?"

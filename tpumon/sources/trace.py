"""Figures from short device traces, for profiler servers without the Monitor RPC, such as those of TPU VMs."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tpumon.errors import MEANING, SourceError, TpumonError
from tpumon.figures import of_level
from tpumon.logdir import LocalLogDir, LogDir, trace_file_name
from tpumon.model import LONGEST_WINDOW_S, Address, Query, Sample, Target
from tpumon.sources import readers
from tpumon.sources.base import ProfilerSource, SourceOptions
from tpumon.sources.examination import Answer, Examination
from tpumon.sources.profile import MOST_PROBE_BYTES, Capture, HostEvents, Profiler
from tpumon.sources.sharing import Lane
from tpumon.text import one_line

if TYPE_CHECKING:
    from tpumon.errors import Reason
    from tpumon.sources.rpc import Client
    from tpumon.xspace import TraceFigures

_Result = TypeVar("_Result")

_FIRST_WINDOW_S = 0.5
_SHORTEST_WINDOW_S = 0.1
_USUAL_LONGEST_WINDOW_S = 2.0
_STEPS_WANTED = 3

_COLLECTING_S = 5.0
_BUSY_IDLE_RATIO = 0.5

# For how long a worker may keep one of the turns that quick ones share.
_QUICK_PROBE_S = 3.0
_QUICK_TRACE_S = 10.0  # after the window
_QUICK_READING_S = 1.0
_COPIES = 3  # gRPC's, the answer's and the trace's own, until the first two are gone
_UNKNOWN_BYTES, _LEAST_BYTES = 1 << 40, 1 << 20  # of an answer: all that there may be; no less than that

_CANNOT_BE_SEEN = (
    "this old server can only write traces to files, and none that are visible from here; give a --logdir that both "
    "can see (a shared directory or gs://)"
)

_SAFE_HOST_LEVEL = 1  # includes step annotations; level 2 costs the job more
_CAPTURE_HOST_LEVEL = 2  # what level 0 requests
_GIVES_WITHOUT_TPU = "without a TPU, by short traces: step time; the job is traced for 2 % of the time at most"
_AGES = {True: "as in jaxlib 0.9 or newer", False: "as in jaxlib 0.7 and 0.8"}  # TensorFlow and XProf have the same


class Window:
    """How long to trace: about three steps.

    100 ms to 2 s; up to 10 s once steps turn out not to fit.
    """

    def __init__(self) -> None:
        self.length_s = _FIRST_WINDOW_S
        self._longest_s = LONGEST_WINDOW_S

    def learn(self, step_s: float) -> None:
        """Notes how long a step takes, on average."""
        longest_s = _USUAL_LONGEST_WINDOW_S if 2 * step_s <= _USUAL_LONGEST_WINDOW_S else LONGEST_WINDOW_S
        self.length_s = min(longest_s, self._longest_s, max(_SHORTEST_WINDOW_S, _STEPS_WANTED * step_s))

    def grow(self, longest_s: float) -> None:
        """Notes that the last window held no whole step."""
        self.length_s = max(self.length_s, min(longest_s, self._longest_s, 2 * self.length_s))

    def shrink(self) -> None:
        """Notes that the last window's trace was too large."""
        self.length_s = self._longest_s = max(_SHORTEST_WINDOW_S, self.length_s / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """A trace, when its window began, and how long the job was traced for it, the probe included."""

    xspace: bytes
    time_unix_s: float
    traced_s: float


class TraceSource(ProfilerSource):
    """Takes a short trace of one worker and analyses it.

    Source: /tensorflow.ProfilerService/Profile, approached as `tpumon.sources.profile` does; figures by
    `tpumon.xspace`, which follows XProf.
    """

    name = "trace"
    usual_interval_s = 10.0
    rpc = "Profile"
    costs_job = True
    gives = "by short traces: MXU, idle and step time; the job is traced for 2 % of the time at most"

    def __init__(self, client: Client, target: Target, options: SourceOptions) -> None:
        self._target = target
        self._options = options
        host_events = HostEvents(level=options.host_level, safe_level=_SAFE_HOST_LEVEL, beside_devices=False)
        self._profiler = Profiler(client, host_events)
        self._client = client
        self._window = Window()
        self._writes_elsewhere_on: int | None = None
        self._is_late = self._is_heavy = False
        self._usual_bytes = _UNKNOWN_BYTES

    async def fetch(self, query: Query) -> Sample:
        """Takes one trace; level 1 takes the same trace as level 2 and shows less of it.

        Raises:
            SourceError: `busy` if another session is active; `refused` if the server can only write traces to files
                that are not visible from here; otherwise as the call failed or the trace is. `traced_s` is how long
                the job was traced nevertheless.
        """
        start_s = time.monotonic()
        lane = self._lane
        async with lane.turns, AsyncExitStack() as stack:
            try:
                taken = await self._take(query, lane, stack)
                trace = await self._analyse(taken, lane)
            except SourceError as error:
                if error.reason == "too-large":
                    self._window.shrink()
                raise
        self._learn(trace)
        return self._sample(query, trace, taken, start_s=start_s)

    @property
    def _lane(self) -> Lane:
        sharing = self._options.sharing
        return sharing.late if self._is_late else sharing.heavy if self._is_heavy else sharing.quick

    async def _take(self, query: Query, lane: Lane, stack: AsyncExitStack) -> _Taken:
        """Takes the trace, while this worker has its turn; its memory is held until the stack ends."""
        asked_s = time.monotonic()
        async with lane.answers.hold(_COPIES * MOST_PROBE_BYTES):
            returns_traces = await self._in_time(self._profiler.approach(), _QUICK_PROBE_S)
        probe_s = time.monotonic() - asked_s
        most_bytes = min(self._usual_bytes, 1_000_000 * self._options.max_trace_mb)
        await stack.enter_async_context(lane.answers.hold(_COPIES * most_bytes))
        window_s = query.window_s if query.window_s is not None else self._window.length_s
        time_unix_s, traced_from_s = time.time(), time.monotonic()
        capture = Capture(window_s=window_s)
        readers.warm_up()
        take = self._profiler.take if returns_traces else self._take_written
        try:
            xspace = await self._in_time(take(capture), window_s + _QUICK_TRACE_S)
        except SourceError as error:
            if MEANING[error.reason].traced:
                error.traced_s = _paid_s(time.monotonic() - traced_from_s, window_s)
            raise
        except TpumonError as error:
            raise self._error("refused", str(error), _paid_s(time.monotonic() - traced_from_s, window_s)) from error
        now_s = time.monotonic()
        self._is_late = now_s - traced_from_s > window_s + _QUICK_TRACE_S
        self._usual_bytes = max(_LEAST_BYTES, 2 * len(xspace))
        return _Taken(xspace=xspace, time_unix_s=time_unix_s, traced_s=probe_s + now_s - traced_from_s)

    async def _in_time(self, call: Awaitable[_Result], patience_s: float) -> _Result:
        """The result of a call, if it comes in time; one that was late has all the time that the call has."""
        start_s = time.monotonic()
        try:
            async with asyncio.timeout(None if self._is_late else patience_s):
                return await call
        except TimeoutError as error:
            self._is_late = True
            words = (
                f"no answer within {time.monotonic() - start_s:.0f} s; is it a profiler server, and is its host alive?"
            )
            raise self._error("deadline", words) from error

    async def _analyse(self, taken: _Taken, lane: Lane) -> TraceFigures:
        traced_s = taken.traced_s
        try:
            trace, took_s = await readers.read(taken.xspace, self._options.sharing, lane)
        except SourceError as error:
            self._is_heavy = error.reason == "too-large"
            left_out = ""
            if error.reason == "empty-trace":
                self._learn(None)
                left_out = f"; {self._profiler.what_is_left_out}" if self._profiler.leaves_out_host_events else ""
            raise self._error(error.reason, f"{error.message}{left_out}", traced_s) from error
        except Exception as error:  # a bug in the analysis must not make tracing free
            message = f"a bug in tpumon: {type(error).__name__}: {one_line(str(error))}"
            raise self._error("internal", message, traced_s) from error
        self._is_heavy = took_s > _QUICK_READING_S
        return trace

    def _error(self, reason: Reason, message: str, traced_s: float = 0.0) -> SourceError:
        return SourceError(reason, message, address=self._target.address, traced_s=traced_s)

    async def examine(self) -> Examination:
        """Finds out for `doctor` what the server can do, by the probe and GetSnapshot.

        Raises:
            SourceError: as `fetch`.
        """
        host_events = HostEvents(level=None, safe_level=_CAPTURE_HOST_LEVEL, beside_devices=True)
        profiler = Profiler(self._client, host_events)
        returns_traces = await profiler.approach()
        safe = not profiler.leaves_out_host_events
        words = "writes traces to a disk, cannot return them"
        if returns_traces:
            words = f"returns traces, {'with' if profiler.has_devices else 'without'} device planes"
        snapshot = Answer(rpc="GetSnapshot", state="ok", words="known: host events are safe")
        if not safe:
            words_if_unsafe = "unknown (UNIMPLEMENTED): host events may hang the job"
            snapshot = Answer(rpc="GetSnapshot", state="absent", words=words_if_unsafe)
        visible = returns_traces or Address.parse(self._target.address).is_this_host
        return Examination(
            answers=(Answer(rpc=self.rpc, state="ok", words=words), snapshot),
            usable=visible,
            gives=_GIVES_WITHOUT_TPU if profiler.has_devices is False else self.gives,
            generation=_AGES[safe] if returns_traces else "as in jaxlib 0.6 or older",
            device_planes=profiler.has_devices,
            writes_only=not returns_traces,
            host_events_safe=safe,
            simulated=profiler.simulated,
        )

    def _learn(self, trace: TraceFigures | None) -> None:
        """Adapts the window. One without a step suggests long steps if the device was busy, or if there is none."""
        figures = None if trace is None else trace.figures
        if figures is not None and figures.step_time_s is not None:
            self._window.learn(figures.step_time_s.avg)
        elif trace is not None and trace.stepless:
            pass  # a longer window would show no step either
        elif self._profiler.has_devices:
            idle_ratio = None if figures is None else figures.idle_ratio
            busy = idle_ratio is not None and idle_ratio < _BUSY_IDLE_RATIO
            self._window.grow(LONGEST_WINDOW_S if busy else _USUAL_LONGEST_WINDOW_S)
        elif not self._profiler.leaves_out_host_events:
            self._window.grow(LONGEST_WINDOW_S)

    async def _take_written(self, capture: Capture) -> bytes:
        """Takes a trace from a server that can only write it to a file."""
        if self._writes_elsewhere_on == self._client.connection:
            raise self._error("refused", _CANNOT_BE_SEEN)
        if self._options.logdir is not None:
            return await self._take_into(self._options.logdir, capture)
        if not Address.parse(self._target.address).is_this_host:
            raise self._error("refused", _CANNOT_BE_SEEN)
        with tempfile.TemporaryDirectory(prefix="tpumon-", ignore_cleanup_errors=True) as private:
            return await self._take_into(LocalLogDir(private), capture)

    async def _take_into(self, logdir: LogDir, capture: Capture) -> bytes:
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
        return Sample(
            worker=self._target.worker,
            address=self._target.address,
            time_unix_s=taken.time_unix_s,
            window_s=trace.window_s,
            took_s=time.monotonic() - start_s,
            traced_s=taken.traced_s,
            source="trace",
            simulated=trace.simulated,
            device_type=trace.device_type,
            cores=trace.cores if query.level > 1 else None,
            figures=of_level(trace.figures, query.level),
            truncated=trace.truncated,
            warnings=trace.warnings,
        )


def _paid_s(elapsed_s: float, window_s: float) -> float:
    """What a failed call cost the job: the window and collecting, not the wait for a dead server."""
    return min(elapsed_s, 2 * window_s + _COLLECTING_S)

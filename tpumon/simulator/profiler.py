"""The profiler service of one simulated worker, which behaves like a real one.

There is one session at a time. The window is ProfileOptions.duration_ms; ProfileRequest.duration_ms is ignored. A
Terminate for a session that is not running ends the next Profile with that ID. Without `emit_xspace` the server writes
the file itself. Unlike a real server, it never writes into its working directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec.structs import replace

from tpumon.model import SIMULATED_MARK
from tpumon.proto import GET_SNAPSHOT, MONITOR, PROFILE, TERMINATE, profiler_pb2
from tpumon.simulator.expected_figures import ExpectedFigures, figures
from tpumon.simulator.grpc_servers import Abort, Code, Method
from tpumon.simulator.monitor_text import monitor_text
from tpumon.simulator.scenario import SimulatedJob, to_ns
from tpumon.simulator.trace_writer import SimulatedTrace, TraceOptions, build_trace

BUSY = "Another profiling session active."
NO_SNAPSHOT = "No continuous profiling session found."
_DEFAULT_OPTIONS = TraceOptions(host_tracer_level=2, device_tracer_level=1)  # for requests of options version 0

OVERFLOW_SHARE = 0.4
"""Of a window: from then on events are dropped, where traces overflow."""

_Request = TypeVar("_Request", bound=Message)


class ProfilerService:
    """The methods of one worker's profiler service.

    Args:
        job: the simulated job.
        worker: index of the worker.
        generation: one of `tpumon.simulator.simulator_settings.SERVERS`.
        monitor: whether Monitor is implemented.
        clock: returns the seconds since the epoch.
        epoch_unix_ns: when the job started.
        refused_writes: receives this worker's name for each request to write into its working directory.
    """

    def __init__(
        self,
        job: SimulatedJob,
        worker: int,
        *,
        generation: str,
        monitor: bool,
        clock: Callable[[], float],
        epoch_unix_ns: int,
        refused_writes: list[str],
    ) -> None:
        self._job = job
        self._worker = worker
        self._generation = generation
        self._clock = clock
        self._epoch_unix_ns = epoch_unix_ns
        self._refused_writes = refused_writes
        self._session: str | None = None
        self._wake = asyncio.Event()
        self._stopped: set[str] = set()
        self._calls = 0
        self.methods: dict[str, Method] = {PROFILE: self._profile, TERMINATE: self._terminate}
        self.methods[MONITOR] = self._monitor if monitor else _no_monitor
        if generation == "new":
            self.methods[GET_SNAPSHOT] = _no_snapshot

    def restart(self) -> None:
        """Drops the state that a real server loses when its process ends."""
        self._stopped.clear()

    async def _profile(self, data: bytes) -> bytes:
        await self._stumble()
        request = _parse(data, profiler_pb2.ProfileRequest)
        if self._job.overflow(self._now_ns()) == "refused" and request.opts.advanced_configuration:
            raise Abort(Code.INVALID_ARGUMENT, f"{SIMULATED_MARK}: unrecognized option in advanced_configuration")
        if self._session is not None:
            raise Abort(Code.INTERNAL, BUSY)
        self._session = request.session_id
        self._wake.clear()
        try:
            trace = await self._watch(request)
        finally:
            self._session = None
            self._stopped.discard(request.session_id)
        if request.emit_xspace and self._generation != "old":
            return profiler_pb2.ProfileResponse(empty_trace=trace.empty, xspace=trace.xspace).SerializeToString()
        if not request.repository_root:
            self._refused_writes.append(self._job.topology.worker_name(self._worker))
            raise Abort(
                Code.INTERNAL, f"{SIMULATED_MARK}: refused to write into the working directory; a real server would"
            )
        await asyncio.to_thread(_write, request, trace.xspace)
        return profiler_pb2.ProfileResponse(empty_trace=trace.empty).SerializeToString()

    async def _watch(self, request: profiler_pb2.ProfileRequest) -> SimulatedTrace:
        """Runs a session: waits for its start, then until its window is over or Terminate ends it."""
        options = request.opts
        await self._sleep(request.session_id, options.start_timestamp_ns / 1e9 - self._clock())
        start_ns = self._now_ns()
        if not options.duration_ms:
            return build_trace(
                self._job,
                self._worker,
                start_ns=start_ns,
                stop_ns=start_ns,
                epoch_unix_ns=self._epoch_unix_ns,
                options=TraceOptions(device_tracer_level=0),
            )
        slept_s = await self._sleep(request.session_id, options.duration_ms / 1e3)
        requested = TraceOptions(
            host_tracer_level=options.host_tracer_level, device_tracer_level=options.device_tracer_level
        )
        overflow, lighter = self._job.overflow(start_ns), bool(options.advanced_configuration)
        if overflow == "nothing" and lighter:
            requested = replace(requested, device_tracer_level=0)
        slept_ns = int(slept_s * 1e9)
        return build_trace(
            self._job,
            self._worker,
            start_ns=start_ns,
            stop_ns=start_ns + slept_ns,
            full_ns=start_ns + int(OVERFLOW_SHARE * slept_ns) if overflow and not lighter else None,
            epoch_unix_ns=self._epoch_unix_ns,
            options=requested if options.version else _DEFAULT_OPTIONS,
        )

    async def _sleep(self, session_id: str, seconds: float) -> float:
        """Sleeps until the time is over or the session is stopped; returns the seconds slept, at most `seconds`."""
        if seconds <= 0 or session_id in self._stopped:
            return 0.0
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return seconds
        return min(loop.time() - began_s, seconds)

    async def _terminate(self, data: bytes) -> bytes:
        session_id = _parse(data, profiler_pb2.TerminateRequest).session_id
        self._stopped.add(session_id)
        if session_id == self._session:
            self._wake.set()
        return profiler_pb2.TerminateResponse().SerializeToString()

    async def _monitor(self, data: bytes) -> bytes:
        await self._stumble()
        request = _parse(data, profiler_pb2.MonitorRequest)
        start_ns = self._now_ns()
        duration_ms = request.duration_ms or 1000
        await asyncio.sleep(duration_ms / 1e3)
        stop_ns = start_ns + duration_ms * 1_000_000
        window = figures(self._job, self._worker, start_ns, stop_ns)
        text = monitor_text(
            self._job, window, level=request.monitoring_level, unix_s=self._clock() if request.timestamp else None
        )
        result = monitor_result(window, level=request.monitoring_level)
        return profiler_pb2.MonitorResponse(data=text, monitor_result=result).SerializeToString()

    async def _stumble(self) -> None:
        """Makes some calls of a flaky worker fail or hang."""
        self._calls += 1
        failure = self._job.call_fails(self._worker, self._calls, self._now_ns())
        if failure == "unavailable":
            raise Abort(Code.UNAVAILABLE, f"{SIMULATED_MARK}: Socket closed")
        if failure == "hang":
            await asyncio.Event().wait()

    def _now_ns(self) -> int:
        return to_ns(self._clock()) - self._epoch_unix_ns


def monitor_result(window: ExpectedFigures, *, level: int) -> profiler_pb2.MonitorResult:
    """Returns the figures as numbers; `response_type` says which of them are set."""
    result = profiler_pb2.MonitorResult(
        response_type=profiler_pb2.MonitorResult.UTIL_ONLY, matrix_unit_utilization_percent=100 * window.mxu_ratio
    )
    if level < 2 or window.idle_ratio is None:
        return result
    result.response_type = profiler_pb2.MonitorResult.UTIL_IDLE
    result.device_idle_time_percent = 100 * window.idle_ratio
    if window.step_s is None or window.infeed_ratio is None:
        return result
    result.response_type = profiler_pb2.MonitorResult.UTIL_IDLE_STEP
    result.step_time_ms_avg = 1e3 * window.step_s.avg
    result.step_time_ms_min = 1e3 * window.step_s.min
    result.step_time_ms_max = 1e3 * window.step_s.max
    result.infeed_percent_avg = 100 * window.infeed_ratio.avg
    result.infeed_percent_min = 100 * window.infeed_ratio.min
    result.infeed_percent_max = 100 * window.infeed_ratio.max
    return result


async def _no_monitor(_data: bytes) -> bytes:
    raise Abort(Code.UNIMPLEMENTED, "unimplemented.")


async def _no_snapshot(_data: bytes) -> bytes:
    raise Abort(Code.NOT_FOUND, NO_SNAPSHOT)


def _parse(data: bytes, message: Callable[[], _Request]) -> _Request:
    parsed = message()
    try:
        parsed.ParseFromString(data)
    except DecodeError:
        raise Abort(Code.INTERNAL, "") from None
    return parsed


def _write(request: profiler_pb2.ProfileRequest, xspace: bytes) -> None:
    """Writes the trace as a real server does: ROOT/SESSION/HOST.xplane.pb, with `_` for each colon in HOST."""
    root = request.repository_root
    if "://" in root:
        raise Abort(Code.INTERNAL, f"{SIMULATED_MARK}: no access to {root}")
    if Path(root).exists() and not Path(root).is_dir():
        raise Abort(Code.INTERNAL, f"{root} is not a directory")
    # Unlike in a real server, the two names cannot contain a path.
    session, host = (name.replace("/", "_").replace("..", "_") for name in (request.session_id, request.host_name))
    folder = Path(root, session)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{host.replace(':', '_')}.xplane.pb").write_bytes(xspace)
    except OSError as error:
        raise Abort(Code.INTERNAL, f"{folder}; {error.strerror}") from None

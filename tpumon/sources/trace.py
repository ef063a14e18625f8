"""Figures from short device traces: for every profiler server that offers no Monitor, which is every TPU VM's."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tpumon.errors import SourceError, TpumonError
from tpumon.figures import of_level
from tpumon.logdir import LocalLogDir, LogDir, trace_file_name
from tpumon.model import LONGEST_WINDOW_S, Query, Sample, Target
from tpumon.sources.base import SourceOptions
from tpumon.sources.profile import Capture, HostEvents, Profiler
from tpumon.text import one_line

if TYPE_CHECKING:
    from tpumon.sources.rpc import Client
    from tpumon.xspace import TraceFigures

_FIRST_WINDOW_S = 0.5
_SHORTEST_WINDOW_S = 0.1
_USUAL_LONGEST_WINDOW_S = 2.0
_STEPS_WANTED = 3

_NOT_TRACED = frozenset({"busy", "unimplemented", "not-a-profiler"})
_COLLECTING_S = 5.0
_BUSY_IDLE_RATIO = 0.5

_BIG_TRACE_BYTES = 8_000_000

_CANNOT_BE_SEEN = (
    "this old server can only write traces into files, and none that can be seen from here; give --logdir DIR that "
    "both see (a shared directory or gs://)"
)

_SAFE_HOST_LEVEL = 1  # step annotations are in it; level 2 costs the job more

# Reading a trace takes a core for as long as a big one lasts; sampling goes on meanwhile.
_readers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tpumon-read")


class Window:
    """How long to trace: about three steps.

    100 ms to 2 s; longer, up to 10 s, once steps turn out not to fit.
    """

    def __init__(self) -> None:
        self.length_s = _FIRST_WINDOW_S

    def learn(self, step_s: float) -> None:
        """Steps take so long, on average."""
        longest_s = _USUAL_LONGEST_WINDOW_S if 2 * step_s <= _USUAL_LONGEST_WINDOW_S else LONGEST_WINDOW_S
        self.length_s = min(longest_s, max(_SHORTEST_WINDOW_S, _STEPS_WANTED * step_s))

    def grow(self, longest_s: float) -> None:
        """No whole step was in the last window."""
        self.length_s = max(self.length_s, min(longest_s, 2 * self.length_s))


class TraceSource:
    """Takes a short trace of one worker and analyses it.

    Source: /tensorflow.ProfilerService/Profile, approached as `tpumon.sources.profile` does; figures by
    `tpumon.xspace`, which follows XProf.
    """

    name = "trace"
    usual_interval_s = 10.0

    def __init__(self, client: Client, target: Target, options: SourceOptions) -> None:
        self._target = target
        self._options = options
        host_events = HostEvents(level=options.host_level, safe_level=_SAFE_HOST_LEVEL, beside_devices=False)
        self._profiler = Profiler(client, host_events)
        self._client = client
        self._window = Window()
        self._writes_elsewhere_on: int | None = None

    async def fetch(self, query: Query) -> Sample:
        """One trace, at level 1 the same as at level 2: less of it is shown.

        Raises:
            SourceError: `busy` where anyone else is profiling; `refused` where the server can only write traces into
                files that cannot be seen from here; otherwise as the call failed or the trace is. Its `traced_s` is
                what the job paid all the same.
        """
        async with self._options.traces_in_flight:
            return await self._fetch(query)

    async def _fetch(self, query: Query) -> Sample:
        start_s = time.monotonic()
        returns_traces = await self._profiler.approach()
        window_s = query.window_s if query.window_s is not None else self._window.length_s
        time_unix_s, asked_s = time.time(), time.monotonic()
        shot = Capture(window_s=window_s)
        try:
            xspace = await (self._profiler.take(shot) if returns_traces else self._take_written(shot))
            traced_s = time.monotonic() - start_s
        except TpumonError as error:
            reason = error.reason if isinstance(error, SourceError) else "refused"
            traced_s = 0.0 if reason in _NOT_TRACED else _paid_s(time.monotonic() - asked_s, window_s)
            raise SourceError(reason, str(error), traced_s=traced_s) from error
        trace = await self._analyse(xspace, traced_s)
        self._learn(trace)
        return self._sample(query, trace, time_unix_s=time_unix_s, traced_s=traced_s, start_s=start_s)

    async def _analyse(self, xspace: bytes, traced_s: float) -> TraceFigures:
        try:
            return await asyncio.get_running_loop().run_in_executor(_readers, _figures, xspace)
        except SourceError as error:
            left_out = ""
            if error.reason == "empty-trace":
                self._learn(None)
                left_out = f"; {self._profiler.what_is_left_out}" if self._profiler.leaves_out_host_events else ""
            message = f"{self._target.address}: {error}{left_out}"
            raise SourceError(error.reason, message, traced_s=traced_s) from error
        except Exception as error:  # a bug in the analysis must not make tracing free
            message = f"{self._target.address}: a bug in tpumon: {type(error).__name__}: {one_line(str(error))}"
            raise SourceError("internal", message, traced_s=traced_s) from error

    def _learn(self, trace: TraceFigures | None) -> None:
        """A window without a step is evidence of long steps where the device was busy, or on a job without one."""
        figures = None if trace is None else trace.figures
        if figures is not None and figures.step_time_s is not None:
            self._window.learn(figures.step_time_s.avg)
        elif self._profiler.has_devices:
            idle_ratio = None if figures is None else figures.idle_ratio
            busy = idle_ratio is not None and idle_ratio < _BUSY_IDLE_RATIO
            self._window.grow(LONGEST_WINDOW_S if busy else _USUAL_LONGEST_WINDOW_S)
        elif not self._profiler.leaves_out_host_events:
            self._window.grow(LONGEST_WINDOW_S)

    async def _take_written(self, shot: Capture) -> bytes:
        """A trace from a server that can only write it into a file."""
        if self._writes_elsewhere_on == self._client.connection:
            raise SourceError("refused", f"{self._target.address}: {_CANNOT_BE_SEEN}")
        if self._options.logdir is not None:
            return await self._take_into(self._options.logdir, shot)
        if not on_this_host(self._target.address):
            raise SourceError("refused", f"{self._target.address}: {_CANNOT_BE_SEEN}")
        with tempfile.TemporaryDirectory(prefix="tpumon-", ignore_cleanup_errors=True) as private:
            return await self._take_into(LocalLogDir(private), shot)

    async def _take_into(self, logdir: LogDir, shot: Capture) -> bytes:
        session = f"tpumon-{secrets.token_hex(8)}"
        try:
            return await self._profiler.take_written(shot, logdir, session)
        except SourceError as error:
            # Once is enough: in a container of its own, each trace would stay on the server's disk for good.
            if error.reason == "refused":
                self._writes_elsewhere_on = self._client.connection
            raise
        finally:
            await asyncio.to_thread(logdir.discard, session, trace_file_name(self._target.address))

    def _sample(
        self, query: Query, trace: TraceFigures, *, time_unix_s: float, traced_s: float, start_s: float
    ) -> Sample:
        return Sample(
            worker=self._target.worker,
            address=self._target.address,
            time_unix_s=time_unix_s,
            window_s=trace.window_s,
            took_s=time.monotonic() - start_s,
            traced_s=traced_s,
            source="trace",
            simulated=trace.simulated,
            device_type=trace.device_type,
            cores=trace.cores if query.level > 1 else None,
            figures=of_level(trace.figures, query.level),
            warnings=trace.warnings,
        )


def _paid_s(elapsed_s: float, window_s: float) -> float:
    """What a call that failed cost the job: the window and what collecting may take, not the wait for a dead server."""
    return min(elapsed_s, 2 * window_s + _COLLECTING_S)


def _figures(xspace: bytes) -> TraceFigures:
    from tpumon.xspace import figures, read_trace  # NumPy comes with it

    try:
        return figures([read_trace(xspace)])
    finally:
        if len(xspace) > _BIG_TRACE_BYTES:
            _give_back_memory()


def _give_back_memory() -> None:
    """What one big trace took would stay with this process, and the next one would come on top."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def on_this_host(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

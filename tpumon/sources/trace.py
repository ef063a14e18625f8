"""Figures from short device traces, for profiler servers without the Monitor RPC, such as those of TPU VMs."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tpumon.errors import MEANING, SourceError, TpumonError
from tpumon.figures import of_level
from tpumon.logdir import LocalLogDir, LogDir, trace_file_name
from tpumon.model import LONGEST_WINDOW_S, Address, Query, Sample, Target
from tpumon.sources.base import ProfilerSource, SourceOptions
from tpumon.sources.examination import Answer, Examination
from tpumon.sources.profile import Capture, HostEvents, Profiler
from tpumon.text import one_line

if TYPE_CHECKING:
    from tpumon.errors import Reason
    from tpumon.sources.rpc import Client
    from tpumon.xspace import TraceFigures

_FIRST_WINDOW_S = 0.5
_SHORTEST_WINDOW_S = 0.1
_USUAL_LONGEST_WINDOW_S = 2.0
_STEPS_WANTED = 3

_COLLECTING_S = 5.0
_BUSY_IDLE_RATIO = 0.5

_BIG_TRACE_BYTES = 8_000_000

_CANNOT_BE_SEEN = (
    "this old server can only write traces to files, and none that are visible from here; give a --logdir that both "
    "can see (a shared directory or gs://)"
)

_SAFE_HOST_LEVEL = 1  # includes step annotations; level 2 costs the job more
_CAPTURE_HOST_LEVEL = 2  # what level 0 requests
_GIVES_WITHOUT_TPU = "without a TPU, by short traces: step time; the job is traced for 2 % of the time at most"
_AGES = {True: "as in jaxlib 0.9 or newer", False: "as in jaxlib 0.7 and 0.8"}  # TensorFlow and XProf have the same

# Reading a big trace keeps a core busy for a while; sampling goes on meanwhile.
_readers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tpumon-read")


class Window:
    """How long to trace: about three steps.

    100 ms to 2 s; up to 10 s once steps turn out not to fit.
    """

    def __init__(self) -> None:
        self.length_s = _FIRST_WINDOW_S

    def learn(self, step_s: float) -> None:
        """Notes how long a step takes, on average."""
        longest_s = _USUAL_LONGEST_WINDOW_S if 2 * step_s <= _USUAL_LONGEST_WINDOW_S else LONGEST_WINDOW_S
        self.length_s = min(longest_s, max(_SHORTEST_WINDOW_S, _STEPS_WANTED * step_s))

    def grow(self, longest_s: float) -> None:
        """Notes that the last window held no whole step."""
        self.length_s = max(self.length_s, min(longest_s, 2 * self.length_s))


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

    async def fetch(self, query: Query) -> Sample:
        """Takes one trace; level 1 takes the same trace as level 2 and shows less of it.

        Raises:
            SourceError: `busy` if another session is active; `refused` if the server can only write traces to files
                that are not visible from here; otherwise as the call failed or the trace is. `traced_s` is how long
                the job was traced nevertheless.
        """
        async with self._options.traces_in_flight:
            return await self._fetch(query)

    async def _fetch(self, query: Query) -> Sample:
        start_s = time.monotonic()
        returns_traces = await self._profiler.approach()
        window_s = query.window_s if query.window_s is not None else self._window.length_s
        time_unix_s, asked_s = time.time(), time.monotonic()
        capture = Capture(window_s=window_s)
        try:
            xspace = await (self._profiler.take(capture) if returns_traces else self._take_written(capture))
            traced_s = time.monotonic() - start_s
        except SourceError as error:
            if MEANING[error.reason].traced:
                error.traced_s = _paid_s(time.monotonic() - asked_s, window_s)
            raise
        except TpumonError as error:
            raise self._error("refused", str(error), _paid_s(time.monotonic() - asked_s, window_s)) from error
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
            raise self._error(error.reason, f"{error.message}{left_out}", traced_s) from error
        except Exception as error:  # a bug in the analysis must not make tracing free
            message = f"a bug in tpumon: {type(error).__name__}: {one_line(str(error))}"
            raise self._error("internal", message, traced_s) from error

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
            truncated=trace.truncated,
            warnings=trace.warnings,
        )


def _paid_s(elapsed_s: float, window_s: float) -> float:
    """What a failed call cost the job: the window and collecting, not the wait for a dead server."""
    return min(elapsed_s, 2 * window_s + _COLLECTING_S)


def _figures(xspace: bytes) -> TraceFigures:
    from tpumon.xspace import figures, read_trace  # NumPy comes with it

    try:
        return figures([read_trace(xspace)])
    finally:
        if len(xspace) > _BIG_TRACE_BYTES:
            _give_back_memory()


def _give_back_memory() -> None:
    """Returns freed memory: that of one big trace would stay with this process and the next would come on top."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)

"""Figures from short device traces: for every profiler server that offers no Monitor, which is every TPU VM's."""

from __future__ import annotations

import asyncio
import ipaddress
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from tpumon.errors import SourceError
from tpumon.logdir import TRACE_SUFFIX, LocalLogDir, LogDir, trace_file_name
from tpumon.model import Query, Sample, Target
from tpumon.sources.base import SourceOptions
from tpumon.sources.profile import Approach, TraceRequest, approach, await_file, take_trace, unique_session_id

if TYPE_CHECKING:
    from tpumon.sources.rpc import Client
    from tpumon.xspace import Figures

_FIRST_WINDOW_S = 0.5
_SHORTEST_WINDOW_S = 0.1
_USUAL_LONGEST_WINDOW_S = 2.0
_LONGEST_WINDOW_S = 10.0
_STEPS_WANTED = 3

_LEVEL_1_FIELDS = frozenset(
    {"device_type", "window_s", "simulated", "mxu_utilization_ratio", "mxu_method"},
)

_SAMPLE_FIELDS = frozenset(field.name for field in fields(Sample))

_NOT_TRACED = frozenset({"busy", "unavailable", "unimplemented", "not-a-profiler"})

_SAFE_HOST_LEVEL = 1  # step annotations are in it; level 2 costs the job more

# Reading a trace takes a core for as long as a big one lasts; sampling goes on meanwhile.
_readers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tpumon-read")


class Window:
    """How long to trace: about three steps.

    100 ms to 2 s; longer, up to 10 s, once steps turn out not to fit.
    """

    def __init__(self) -> None:
        self.length_s = _FIRST_WINDOW_S

    def learn(self, step_s: float | None) -> None:
        """Takes into account what the last window showed.

        Args:
            step_s: average step, in seconds; None: no whole step was in it.
        """
        if step_s is None:
            self.length_s = min(_LONGEST_WINDOW_S, 2 * self.length_s)
            return
        wanted_s = _STEPS_WANTED * step_s
        longest_s = _USUAL_LONGEST_WINDOW_S if 2 * step_s <= _USUAL_LONGEST_WINDOW_S else _LONGEST_WINDOW_S
        self.length_s = min(longest_s, max(_SHORTEST_WINDOW_S, wanted_s))


class TraceSource:
    """Takes a short trace of one worker and analyses it.

    Source: /tensorflow.ProfilerService/Profile, approached as `tpumon.sources.profile` does; figures by
    `tpumon.xspace`, which follows XProf.
    """

    name = "trace"
    usual_interval_s = 10.0

    def __init__(self, client: Client, target: Target, options: SourceOptions) -> None:
        self._client = client
        self._target = target
        self._options = options
        self._approach: Approach | None = None
        self._window = Window()

    async def fetch(self, query: Query) -> Sample:
        """One trace, at level 1 the same as at level 2: less of it is shown.

        Raises:
            SourceError: `busy` where anyone else is profiling; `refused` where the server can only write traces into
                files that cannot be seen from here; otherwise as the call failed or the trace is.
        """
        try:
            return await self._fetch(query)
        except SourceError as error:
            if error.reason != "busy":
                self._approach = None
            raise

    async def _fetch(self, query: Query) -> Sample:
        # A server that went away may come back as another one, of a generation that host events would hang: what was
        # learned is good for one connection, and is forgotten with any failure.
        if not self._client.connected:
            self._approach = None
        if self._approach is None:
            self._approach = await approach(self._client, host_events=self._options.host_level is None)
        window_s = query.window_s if query.window_s is not None else self._window.length_s
        time_unix_s, start_s = time.time(), time.monotonic()
        try:
            xspace = await self._take(self._approach, window_s)
        except SourceError as error:
            error.traced_s = 0.0 if error.reason in _NOT_TRACED else time.monotonic() - start_s
            raise
        traced_s = time.monotonic() - start_s
        try:
            found = await asyncio.get_running_loop().run_in_executor(_readers, _figures, xspace)
        except SourceError as error:
            left_out = self._what_is_left_out(self._approach) if error.reason == "empty-trace" else ""
            message = f"{self._client.address}: {error}{left_out}"
            raise SourceError(error.reason, message, traced_s=traced_s) from error
        self._window.learn(found.step_time_s.avg if found.step_time_s is not None else None)
        return self._sample(query, found, time_unix_s=time_unix_s, traced_s=traced_s, start_s=start_s)

    def _host_level(self, known: Approach) -> int:
        if self._options.host_level is not None:
            return self._options.host_level
        return _SAFE_HOST_LEVEL if known.host_events_safe and not known.device_planes else 0

    def _what_is_left_out(self, known: Approach) -> str:
        """Why a trace of a job without TPU or GPU has nothing in it."""
        if self._host_level(known) or known.host_events_safe:
            return ""
        return (
            "; host events were left out: this server is of an age in which they can hang the job for good (jaxlib "
            f"0.6.2 to 0.8.2 without TensorFlow do); --host-tracer-level {_SAFE_HOST_LEVEL} takes them all the same"
        )

    async def _take(self, known: Approach, window_s: float) -> bytes:
        request = TraceRequest(
            window_s=window_s, host_level=self._host_level(known), hlo=False, session_id=unique_session_id("sample")
        )
        if known.returns_traces:
            xspace = await take_trace(self._client, request)
        else:
            with self._written_to() as logdir:
                xspace = await _take_written(self._client, request, logdir)
        if not xspace:
            raise SourceError("empty-trace", f"{self._client.address}: the server answered without a trace")
        return xspace

    @contextmanager
    def _written_to(self) -> Iterator[LogDir]:
        """Where a server that writes traces itself may do so."""
        if self._options.logdir is not None:
            yield self._options.logdir
        elif _on_this_host(self._client.address):
            with tempfile.TemporaryDirectory(prefix="tpumon-") as private:
                yield LocalLogDir(private)
        else:
            raise SourceError(
                "refused",
                f"{self._client.address}: this old server can only write traces into files; give --logdir DIR that "
                "both see (a shared directory or gs://)",
            )

    def _sample(self, query: Query, found: Figures, *, time_unix_s: float, traced_s: float, start_s: float) -> Sample:
        figures = {field.name: getattr(found, field.name) for field in fields(found) if field.name in _SAMPLE_FIELDS}
        if query.level == 1:
            figures = {name: value for name, value in figures.items() if name in _LEVEL_1_FIELDS}
            why = found.absent.get("mxu_utilization_ratio")
            figures["absent"] = {} if why is None else {"mxu_utilization_ratio": why}
        return Sample(
            worker=self._target.worker,
            address=self._target.address,
            time_unix_s=time_unix_s,
            took_s=time.monotonic() - start_s,
            traced_s=traced_s,
            source="trace",
            **figures,
        )


async def _take_written(client: Client, request: TraceRequest, logdir: LogDir) -> bytes | None:
    """A trace from a server that writes it itself: fetched from where it wrote it, and removed there."""
    logdir.prepare()
    file_name = trace_file_name(client.address)
    request = replace(request, repository_root=logdir.root, host_name=file_name.removesuffix(TRACE_SUFFIX))
    try:
        await take_trace(client, request)
        return await await_file(logdir, request.session_id, file_name, client.address)
    finally:
        await asyncio.to_thread(logdir.discard, request.session_id, file_name)


def _figures(xspace: bytes) -> Figures:
    from tpumon.xspace import figures, read_trace  # NumPy comes with it

    return figures([read_trace(xspace)])


def _on_this_host(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

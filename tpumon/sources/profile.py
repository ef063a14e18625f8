"""The Profile RPC: how a server is approached so that its job is not harmed, and how a trace is taken."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpumon import wire
from tpumon.errors import SourceError
from tpumon.sources.rpc import ANSWER_GRACE_S, is_missing_method, is_not_found, server_words
from tpumon.wire.profiler_pb2 import GetSnapshotRequest, ProfileOptions, ProfileRequest, ProfileResponse
from tpumon.xspace.outline import outline

if TYPE_CHECKING:
    from tpumon.logdir import LogDir
    from tpumon.sources.rpc import Client

# Old servers write into the root instead of answering with the trace; in /dev/null they cannot, and say so. An empty
# root would be worse than useless: they then write into the job's working directory.
_NOWHERE = "/dev/null"
_PROBE_TIMEOUT_S = ANSWER_GRACE_S

_SHARED_DIRECTORY_S = 5.0
_LOOK_S = 0.2

_DEVICE_TRACER_LEVEL = 1
_OPTIONS_VERSION = 1
_MAX_EVENTS = 1_000_000  # as TensorFlow's client sends it; open servers ignore it


@dataclass(frozen=True, slots=True, kw_only=True)
class Approach:
    """What a probe told about a profiler server.

    Attributes:
        returns_traces: it answers with the trace; else it can only write a file itself.
        device_planes: whether its traces have planes of devices; None where the probe could not tell.
        host_events_safe: host tracing is proved not to hang the job.
    """

    returns_traces: bool
    device_planes: bool | None
    host_events_safe: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One trace to take.

    Attributes:
        window_s: length of the window.
        host_level: host tracer level, 0-3.
        hlo: whether HLO protos are wanted with it (the memory viewer needs them).
        start_unix_ns: the server's wall clock at which the window starts; 0: at once.
        start_in_s: how far ahead that is, for the deadline.
        session_id: unique; an old server makes it a directory's name.
        repository_root: where an old server writes; never empty.
        host_name: an old server makes it the file's name.
    """

    window_s: float
    host_level: int
    hlo: bool
    session_id: str
    start_unix_ns: int = 0
    start_in_s: float = 0.0
    repository_root: str = _NOWHERE
    host_name: str = ""


def unique_session_id(kind: str) -> str:
    """A session id that nobody else uses: a Terminate sent for an id sticks to that id."""
    return f"tpumon-{kind}-{secrets.token_hex(6)}"


async def approach(client: Client, *, host_events: bool) -> Approach:
    """Finds out what a server of unknown age can do, harmlessly: a trace of 1 ms without host events.

    Args:
        client: the worker's.
        host_events: whether host events are wanted; only then is it asked whether they are safe, since that question
            takes a snapshot of somebody's continuous session where one runs.

    Raises:
        SourceError: `busy` where anyone else is profiling; otherwise as the call failed.
    """
    request = _request(TraceRequest(window_s=0.001, host_level=0, hlo=False, session_id=unique_session_id("probe")))
    try:
        reply = await client.call(wire.PROFILE, request, ProfileResponse, timeout_s=_PROBE_TIMEOUT_S)
    except SourceError as error:
        if _NOWHERE not in server_words(error):
            raise
        returns_traces, device_planes = False, None
    else:
        returns_traces = bool(reply.xspace)
        device_planes = bool(outline(reply.xspace).device_planes) if returns_traces else None
    safe = await _host_events_safe(client) if host_events else False
    return Approach(returns_traces=returns_traces, device_planes=device_planes, host_events_safe=safe)


async def _host_events_safe(client: Client) -> bool:
    """Whether this server is of a generation in which host tracing does not deadlock a job without TensorFlow.

    Servers that know GetSnapshot are; jaxlib 0.6.2 to 0.8.2 do not know it, and hang for good at host level 1.
    """
    try:
        await client.call(wire.GET_SNAPSHOT, GetSnapshotRequest(), ProfileResponse, timeout_s=_PROBE_TIMEOUT_S)
    except SourceError as error:
        if is_not_found(error):
            return True
        if is_missing_method(error):
            return False
        raise
    message = f"{client.address}: a continuous profiling session runs there; standing back"
    raise SourceError("busy", message)


async def take_trace(client: Client, request: TraceRequest) -> bytes | None:
    """Takes one trace.

    Returns:
        The serialized XSpace exactly as the server sent it, or None where the server kept it to itself (an old one,
        which writes `repository_root/session_id/host_name.xplane.pb`).

    Raises:
        SourceError: the call failed.
    """
    # The server collects after the window, for as long again in the worst case seen; a large trace takes time to send.
    timeout_s = request.start_in_s + request.window_s + max(2 * ANSWER_GRACE_S, request.window_s)
    reply = await client.call(wire.PROFILE, _request(request), ProfileResponse, timeout_s=timeout_s)
    return reply.xspace or None


async def await_file(logdir: LogDir, session: str, file_name: str, address: str) -> bytes:
    """The file that an old server wrote; a shared directory may show it a little later.

    Raises:
        SourceError: `refused`, it is not to be seen from here.
        TpumonError: it cannot be read.
    """
    deadline_s = time.monotonic() + _SHARED_DIRECTORY_S
    while (content := await asyncio.to_thread(logdir.load, session, file_name)) is None:
        if time.monotonic() > deadline_s:
            raise SourceError(
                "refused",
                f"{address}: this old server writes traces itself, and wrote to its own disk: {logdir.root}/{session}/"
                f"{file_name} is not to be seen from here; give a --logdir that both see (a shared directory or gs://)",
            )
        await asyncio.sleep(_LOOK_S)
    return content


def _request(trace: TraceRequest) -> ProfileRequest:
    window_ms = max(1, round(trace.window_s * 1000))
    return ProfileRequest(
        duration_ms=window_ms,
        max_events=_MAX_EVENTS,
        repository_root=trace.repository_root,
        session_id=trace.session_id,
        host_name=trace.host_name,
        emit_xspace=True,
        opts=ProfileOptions(
            version=_OPTIONS_VERSION,
            include_dataset_ops=True,
            host_tracer_level=trace.host_level,
            device_tracer_level=_DEVICE_TRACER_LEVEL,
            python_tracer_level=0,
            enable_hlo_proto=trace.hlo,
            start_timestamp_ns=trace.start_unix_ns,
            duration_ms=window_ms,
        ),
    )

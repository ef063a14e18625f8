"""The Profile RPC: how a server is approached so that its job is not harmed, and how a trace is taken.

Level 0 and sampling both go through `Profiler`: what must never be done to a job is kept in one place.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpumon import wire
from tpumon.errors import SourceError
from tpumon.logdir import TRACE_SUFFIX, trace_file_name
from tpumon.sources.rpc import ANSWER_GRACE_S, is_missing_method, is_not_found, server_words
from tpumon.wire.profiler_pb2 import GetSnapshotRequest, ProfileOptions, ProfileRequest, ProfileResponse
from tpumon.xspace.outline import outline

if TYPE_CHECKING:
    from tpumon.logdir import LogDir
    from tpumon.sources.rpc import Client

# Old servers write into the root instead of answering with the trace; in /dev/null they cannot, and say so. An empty
# root would be worse than useless: they then write into the job's working directory.
_NOWHERE = "/dev/null"
_PROBE_S = 0.001

_SHARED_DIRECTORY_S = 5.0
_LOOK_S = 0.2

_DEVICE_TRACER_LEVEL = 1
_OPTIONS_VERSION = 1
_MAX_EVENTS = 1_000_000  # as TensorFlow's client sends it; open servers ignore it


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvents:
    """Which host events are wanted.

    Attributes:
        level: host tracer level 0-3 that the user asked for; None: `safe_level` where that is proved safe, else 0.
        safe_level: for `level` None.
        beside_devices: whether they are wanted for jobs with devices, too; a TPU's figures do not need them.
    """

    level: int | None
    safe_level: int
    beside_devices: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One trace to take.

    Attributes:
        window_s: its length.
        hlo: whether HLO protos are wanted with it (the memory viewer needs them).
        start_unix_ns: the server's wall clock at which the window starts; 0: at once.
        start_in_s: how far ahead that is, for the deadline.
    """

    window_s: float
    hlo: bool = False
    start_unix_ns: int = 0
    start_in_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What a probe told about the server at the other end of one connection.

    Attributes:
        connection: which; at the same port may be another server after it broke.
        returns_traces: it answers with the trace; else it can only write a file itself.
        device_planes: whether its traces have planes of devices; None where the probe could not tell.
        host_level: what is to be asked for.
        simulated: whether tpumon's simulator made its traces.
    """

    connection: int
    returns_traces: bool
    device_planes: bool | None
    host_level: int
    simulated: bool


class Profiler:
    """One worker's profiler server.

    Args:
        client: the worker's.
        host_events: which are wanted.
    """

    def __init__(self, client: Client, host_events: HostEvents) -> None:
        self._client = client
        self._host_events = host_events
        self._known: _Known | None = None

    @property
    def address(self) -> str:
        """Of the worker."""
        return self._client.address

    @property
    def has_devices(self) -> bool | None:
        """Whether traces have planes of devices; None where that is not known."""
        return self._known.device_planes if self._known is not None else None

    @property
    def simulated(self) -> bool:
        """Whether tpumon's simulator is known to answer."""
        return self._known is not None and self._known.simulated

    @property
    def leaves_out_host_events(self) -> bool:
        """Whether host events are wanted, but not proved safe."""
        wanted = self._host_events.level is None and (self._host_events.beside_devices or not self.has_devices)
        return wanted and self._known is not None and self._known.host_level == 0

    @property
    def what_is_left_out(self) -> str:
        """The words for it: what, why, and the option that overrides."""
        return (
            "host events are left out: this server is of an age in which host tracing can hang the job for good "
            "(jaxlib 0.6.2 to 0.8.2 without TensorFlow do); "
            f"--host-tracer-level {self._host_events.safe_level} takes them all the same"
        )

    async def approach(self) -> bool:
        """Finds out what this server can do, harmlessly, once a connection.

        Returns:
            Whether it answers with traces; else it can only write them into files.

        Raises:
            SourceError: `busy` where anyone else is profiling; otherwise as the call failed.
        """
        known = self._known
        if known is None or not self._stands():
            self._known = None
            self._known = known = await self._probe()
        return known.returns_traces

    async def take(self, shot: Capture) -> bytes:
        """A trace that the server answers with; the serialized XSpace exactly as it was sent.

        Raises:
            SourceError: the call failed; `empty-trace`: there was no trace in the answer.
        """
        reply = await self._profile(shot, root=_NOWHERE, session=_unique_session_id(), host_name="")
        if not reply.xspace:
            raise SourceError("empty-trace", f"{self.address}: the server answered without a trace")
        return reply.xspace

    async def take_written(self, shot: Capture, logdir: LogDir, session: str) -> bytes:
        """A trace that the server writes itself, read where it wrote it: LOGDIR/.../SESSION/HOST_PORT.xplane.pb.

        Raises:
            SourceError: the call failed; `refused`: the file is not to be seen from here.
            TpumonError: the directory cannot be used.
        """
        file_name = trace_file_name(self.address)
        # Made by us, so that we can remove what another user's server writes into it.
        await asyncio.to_thread(logdir.make_session, session)
        await self._profile(shot, root=logdir.root, session=session, host_name=file_name.removesuffix(TRACE_SUFFIX))
        deadline_s = time.monotonic() + _SHARED_DIRECTORY_S  # a shared directory may show it a little later
        while (content := await asyncio.to_thread(logdir.load, session, file_name)) is None:
            if time.monotonic() > deadline_s:
                raise SourceError(
                    "refused",
                    f"{self.address}: this old server writes traces itself, and wrote to its own disk: {logdir.root}/"
                    f"{session}/{file_name} is not to be seen from here; give a --logdir that both see (a shared "
                    "directory or gs://)",
                )
            await asyncio.sleep(_LOOK_S)
        return content

    def _stands(self) -> bool:
        """Whether what is known still holds: the connection that it was learned on is the one there is."""
        known = self._known
        return known is not None and known.connection == self._client.connection and self._client.connected

    async def _probe(self) -> _Known:
        request = _request(
            Capture(window_s=_PROBE_S), root=_NOWHERE, session=_unique_session_id(), host_name="", host_level=0
        )
        try:
            reply = await self._client.call(wire.PROFILE, request, ProfileResponse, timeout_s=ANSWER_GRACE_S)
        except SourceError as error:
            if _NOWHERE not in server_words(error):
                raise
            returns_traces, device_planes, simulated = False, None, False
        else:
            returns_traces = bool(reply.xspace)
            seen = outline(reply.xspace)
            device_planes, simulated = bool(seen.device_planes) if returns_traces else None, seen.simulated
        return _Known(
            connection=self._client.connection,
            returns_traces=returns_traces,
            device_planes=device_planes,
            host_level=await self._choose_host_level(device_planes),
            simulated=simulated,
        )

    async def _choose_host_level(self, device_planes: bool | None) -> int:
        wanted = self._host_events
        if wanted.level is not None:
            return wanted.level
        if device_planes and not wanted.beside_devices:
            return 0
        return wanted.safe_level if await self._host_events_safe() else 0

    async def _host_events_safe(self) -> bool:
        """Whether this server is of a generation in which host tracing does not deadlock a job without TensorFlow.

        Servers that know GetSnapshot are; jaxlib 0.6.2 to 0.8.2 do not know it, and hang for good at host level 1.
        Asked only where host events are wanted: it takes a snapshot of somebody's continuous session where one runs.
        """
        try:
            await self._client.call(wire.GET_SNAPSHOT, GetSnapshotRequest(), ProfileResponse, timeout_s=ANSWER_GRACE_S)
        except SourceError as error:
            if is_not_found(error):
                return True
            if is_missing_method(error):
                return False
            raise
        raise SourceError("busy", f"{self.address}: a continuous profiling session runs there; standing back")

    async def _profile(self, shot: Capture, *, root: str, session: str, host_name: str) -> ProfileResponse:
        known = self._known
        if known is None or not self._stands():
            raise SourceError("unavailable", f"{self.address}: the connection broke off")
        request = _request(shot, root=root, session=session, host_name=host_name, host_level=known.host_level)
        # The server collects after the window, for as long again in the worst case seen; a large trace takes its time.
        timeout_s = shot.start_in_s + shot.window_s + max(ANSWER_GRACE_S, shot.window_s)
        return await self._client.call(wire.PROFILE, request, ProfileResponse, timeout_s=timeout_s)


def _unique_session_id() -> str:
    """A session id that nobody else uses: a Terminate sent for an id sticks to that id."""
    return f"tpumon-{secrets.token_hex(8)}"


def _request(shot: Capture, *, root: str, session: str, host_name: str, host_level: int) -> ProfileRequest:
    window_ms = max(1, round(shot.window_s * 1000))
    return ProfileRequest(
        duration_ms=window_ms,
        max_events=_MAX_EVENTS,
        repository_root=root,
        session_id=session,
        host_name=host_name,
        emit_xspace=True,
        opts=ProfileOptions(
            version=_OPTIONS_VERSION,
            include_dataset_ops=True,
            host_tracer_level=host_level,
            device_tracer_level=_DEVICE_TRACER_LEVEL,
            python_tracer_level=0,
            enable_hlo_proto=shot.hlo,
            start_timestamp_ns=shot.start_unix_ns,
            duration_ms=window_ms,
        ),
    )

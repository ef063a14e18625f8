"""The Profile RPC: how to approach a server without harming its job, and how to take a trace.

Level 0 and sampling both use `Profiler`: what must never be done to a job is kept in one place.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from tpumon import proto as wire
from tpumon.collection.sources.rpc import ANSWER_GRACE_S
from tpumon.errors import SourceError
from tpumon.model import JobSigns
from tpumon.proto.profiler_pb2 import GetSnapshotRequest, ProfileOptions, ProfileRequest, ProfileResponse
from tpumon.system.host_files import since_boot_s, time_of_day
from tpumon.system.ledger import UNANSWERED_COUNTS_S
from tpumon.system.logdir import TRACE_SUFFIX, trace_file_name
from tpumon.xspace.outline import Outline, outline

if TYPE_CHECKING:
    from tpumon.collection.sources.rpc import Client
    from tpumon.system.logdir import LogDir

# Old servers write into the root instead of answering with the trace; in /dev/null they cannot, and say so. An empty
# root would be worse than useless: they then write into the job's working directory.
_NOWHERE = "/dev/null"
_PROBE_S = 0.001
MOST_PROBE_BYTES = 8 << 20

_SHARED_DIRECTORY_S = 5.0
_POLL_S = 0.2

_ALL_DEVICES, _TPUS = ProfileOptions.UNSPECIFIED, ProfileOptions.TPU
_STEP_MARKER_LEVEL = 2  # where PyTorch/XLA marks the steps of any job; at 1, only of those that use StepTrace
_DEVICE_TRACER_LEVEL = 1
_OPTIONS_VERSION = 1
_MAX_EVENTS = 1_000_000  # as TensorFlow's client sends it; open servers ignore it

_log = logging.getLogger(__name__)

_MAY_HANG = "this host trace may hang jobs of jaxlib 0.5.0 to 0.8.3 (--host-tracer-level)"


class HostEvents(Struct, frozen=True, kw_only=True):
    """Host events to collect.

    Attributes:
        level: host tracer level 0-3; None: `safe_level` if the server is known to be safe, otherwise 0.
        safe_level: the level to use when `level` is None.
        beside_devices: also collect them for jobs with devices, whose figures do not need them.
    """

    level: int | None
    safe_level: int
    beside_devices: bool


class TraceRequest(Struct, frozen=True, kw_only=True):
    """One trace to take.

    Attributes:
        window_s: length of the window.
        hlo: include HLO protos, which the memory viewer needs.
        advanced: options of the device's profiler by name, for servers that return traces; others ignore or lack them.
        all_devices: trace GPUs, too, whatever the server's other traces hold.
        host_level: host tracer level of this trace alone; None: that of the server's other traces.
        start_unix_ns: when the window starts, by the server's wall clock; 0: at once.
        start_in_s: how far ahead that is, to extend the deadline.
    """

    window_s: float
    hlo: bool = False
    advanced: Mapping[str, int] = field(default_factory=dict)
    all_devices: bool = False
    host_level: int | None = None
    start_unix_ns: int = 0
    start_in_s: float = 0.0


class ProbedServer(Struct, frozen=True, kw_only=True):
    """The server at the other end of one connection, as a probe has shown it; by default nothing is known.

    Attributes:
        connection: number of that connection; after it broke, another server may have the port.
        returns_traces: True if it answers with the trace; if not, it can only write a file.
        device_planes: True if its traces have device planes; None if the probe could not tell.
        host_level: host tracer level to request; None: not chosen yet.
        device_type: of the devices to trace, as in ProfileOptions.
        may_hang: True if the host is traced because the user says so, where that hangs jobs.
        spares_host: True if it is not, although the user says so: that has hung the job before.
        signs: of what the job is; none if it is not on this host, or hidden.
        simulated: True if its traces are made by tpumon's simulator.
    """

    connection: int = -1
    returns_traces: bool = False
    device_planes: bool | None = None
    host_level: int | None = None
    device_type: ProfileOptions.DeviceType = _TPUS
    may_hang: bool = False
    spares_host: bool = False
    signs: JobSigns = JobSigns()
    simulated: bool = False


class Profiler:
    """One worker's profiler server.

    Only TPUs are traced: with any other device type a server that can use a GPU loads CUPTI into its job, which then
    initialises the GPU driver and, when the trace ends, has crashed jobs (github.com/jax-ml/jax/issues/40260).

    Args:
        client: channel to it.
        host_events: which to collect.
        gpu: trace all devices.
        signs_at: what can be seen of the job that listens at an address; may take a second.

    Attributes:
        known: the server, as far as `approach` has found out.
    """

    def __init__(
        self,
        client: Client,
        host_events: HostEvents,
        *,
        gpu: bool = False,
        signs_at: Callable[[str], JobSigns | None] = lambda _address: None,
    ) -> None:
        self._client = client
        self._host_events = host_events
        self._device_type = _ALL_DEVICES if gpu else _TPUS
        self._signs_at = signs_at
        self._signs: JobSigns | None = None  # found before the probe that needs them
        self._hung_s = 0.0  # when a trace of the host began that has probably hung the job
        self._has_said_hung = False
        self.known = ProbedServer()

    @property
    def address(self) -> str:
        """The worker's `host:port`."""
        return self._client.address

    @property
    def leaves_out_host_events(self) -> bool:
        """True if host events would be collected, but are not known to be safe."""
        wanted = self._host_events.level is None and (self._host_events.beside_devices or not self.known.device_planes)
        return self.known.spares_host or (wanted and self.known.host_level == 0)

    @property
    def what_is_left_out(self) -> str:
        """Words for what is left out, why, and the option that overrides it."""
        if self.known.spares_host:
            return (
                "the host is not traced, although --host-tracer-level says so: tpumon's trace of it at "
                f"{time_of_day(max(self._hung_s, self.known.signs.hung_before_s))} has probably hung the job that ran "
                "then; so it stays until the job has jaxlib 0.9 or newer, or for a day"
            )
        unless = "" if self.known.signs.framework == "JAX" else ", unless the job is TensorFlow or PyTorch/XLA"
        return (
            f"the host (what the job runs on its CPU) is not traced, as that can hang the job{unless}: a fault of "
            "jaxlib 0.5.0 to 0.8.3 without TensorFlow imported; update the job to jaxlib 0.9 or newer, or, if it may "
            f"be lost, add --host-tracer-level {self._host_events.safe_level}"
        )

    @property
    def records_nothing(self) -> bool:
        """True if only devices are traced, and there is no sign of one."""
        known = self.known
        return known.host_level == 0 and not known.device_planes and not known.signs.holds_tpu

    def may_check_activity(self, *, has_device: bool) -> bool:
        """True if an activity check at its device, or at its host, can tell, and does no harm."""
        known = self.known
        return known.returns_traces and (has_device or (bool(known.host_level) and not known.may_hang))

    @property
    def may_have_device(self) -> bool:
        """True if it has one, also one that is not traced."""
        return bool(self.known.device_planes or self.known.signs.holds_tpu or self.known.signs.holds_gpu)

    @property
    def why_nothing(self) -> str:
        """Reason why traces stay empty, if `records_nothing`."""
        why = self.what_is_left_out if self.leaves_out_host_events else "--host-tracer-level 0 leaves out the rest"
        return f"no TPU in its traces, and {why}"

    def saw_devices(self) -> None:
        """Notes that a trace had device planes, even if the probe's had none: host events are then not needed."""
        if not self.known.device_planes:
            unneeded = self._host_events.level is None and not self._host_events.beside_devices
            host_level = 0 if unneeded else self.known.host_level
            self.known = replace(self.known, device_planes=True, host_level=host_level)

    @property
    def is_known(self) -> bool:
        """True if the next `approach` needs no call: what is known was learned on the present connection."""
        return self.known.connection == self._client.connection and self._client.connected

    def forget(self) -> None:
        """Has the next `approach` ask the server again."""
        self.known = ProbedServer()

    def spare_host(self, begun_s: float) -> None:
        """Has the host traced from now on only where that is known to be safe: it has hung the job.

        Args:
            begun_s: when the trace that did so began, in seconds since this machine was started.
        """
        self._hung_s = begun_s
        self.forget()

    async def find_signs(self) -> None:
        """Finds signs of the kind of job, on this host only; calls no server. Part of `approach`, unless done.

        It takes a second at most, in which the job is not traced.
        """
        if not self.is_known:
            self._signs = await asyncio.to_thread(self._signs_at, self.address)

    async def approach(self) -> bool:
        """Finds out what this server can do, without harm, once per connection.

        Returns:
            True if it returns traces; if not, it can only write them to files.

        Raises:
            SourceError: `busy` if another session is active; otherwise as the call failed.
        """
        if not self.is_known:
            self.forget()
            if self._signs is None:
                await self.find_signs()
            self.known = await self._probe(self._signs or JobSigns())
            self._signs = None
            if self.known.may_hang or (self.known.spares_host and not self._has_said_hung):
                self._has_said_hung = self.known.spares_host
                _log.warning("%s: %s", self.address, _MAY_HANG if self.known.may_hang else self.what_is_left_out)
        return self.known.returns_traces

    async def take(self, request: TraceRequest) -> memoryview:
        """Takes a trace that the server returns: the serialized XSpace exactly as sent.

        Raises:
            SourceError: the call failed; `empty-trace`: the answer holds no trace.
        """
        xspace = await self._profile(request, root=_NOWHERE)
        if not xspace:
            raise SourceError("empty-trace", "the server answered without a trace", address=self.address)
        return xspace

    async def take_written(self, request: TraceRequest, logdir: LogDir, session: str) -> memoryview:
        """Takes a trace that the server writes itself, and reads it: LOGDIR/.../SESSION/HOST_PORT.xplane.pb.

        Raises:
            SourceError: the call failed; `refused`: the file is not visible from here.
            TpumonError: the directory cannot be used.
        """
        file_name = trace_file_name(self.address)
        # Made by us, so that we can remove what another user's server writes into it.
        await asyncio.to_thread(logdir.make_session, session)
        await self._profile(request, root=logdir.root, session=session, host_name=file_name.removesuffix(TRACE_SUFFIX))
        deadline_s = time.monotonic() + _SHARED_DIRECTORY_S  # a shared directory may show it a little later
        while (content := await asyncio.to_thread(logdir.load, session, file_name)) is None:
            if time.monotonic() > deadline_s:
                message = (
                    "this old server writes traces itself, and wrote this one to a disk that is not visible from here "
                    f"({logdir.root}/{session}/{file_name}); give a --logdir that both can see (a shared directory or "
                    "gs://)"
                )
                raise SourceError("refused", message, address=self.address)
            await asyncio.sleep(_POLL_S)
        return memoryview(content)

    async def _probe(self, signs: JobSigns) -> ProbedServer:
        device_type = self._device_type
        trace = await self._probe_devices(device_type)
        hidden_tpu = trace is not None and not trace.device_planes and signs.holds_tpu
        if hidden_tpu and device_type == _TPUS and not signs.may_use_gpu:
            # The job has a TPU open: perhaps its profiler does not know the type.
            unrestricted = await self._probe_devices(_ALL_DEVICES)
            if unrestricted is not None and unrestricted.device_planes:
                trace, device_type = unrestricted, _ALL_DEVICES
        device_planes = None if trace is None else bool(trace.device_planes)
        hangs = bool(self._host_events.level) and not signs.host_events_safe and not await self._host_events_safe()
        hung_s = max(self._hung_s, signs.hung_before_s)
        spares_host = hangs and bool(hung_s) and since_boot_s() - hung_s < UNANSWERED_COUNTS_S
        return ProbedServer(
            connection=self._client.connection,
            returns_traces=trace is not None,
            device_planes=device_planes,
            host_level=0 if spares_host else await self._choose_host_level(device_planes, signs),
            device_type=device_type,
            may_hang=hangs and not spares_host,
            spares_host=spares_host,
            signs=signs,
            simulated=trace is not None and trace.simulated,
        )

    async def _probe_devices(self, device_type: ProfileOptions.DeviceType) -> Outline | None:
        """Content of a trace of 1 ms without host events; None if the server cannot return one."""
        request = _profile_request(
            TraceRequest(window_s=_PROBE_S), root=_NOWHERE, host_level=0, device_type=device_type
        )
        try:
            xspace = await self._trace(request, timeout_s=self._client.grace_s(wire.PROFILE))
        except SourceError as error:
            if _NOWHERE not in error.status_text:  # any status will do: an old server names the root it cannot write to
                raise
            return None
        return await self._outline(xspace) if xspace else None

    async def _outline(self, xspace: memoryview) -> Outline:
        """Content of the probe's trace. One of 1 ms is small; whatever is not is no answer to trust."""
        if len(xspace) > MOST_PROBE_BYTES:
            message = f"the answer to a probe of 1 ms is {len(xspace) / 1e6:.0f} MB; no profiler server sends that"
            raise SourceError("malformed", message, address=self.address)
        try:
            return await asyncio.to_thread(outline, xspace, count_events=False)
        except SourceError as error:
            raise SourceError(error.reason, error.message, address=self.address) from error

    async def _choose_host_level(self, device_planes: bool | None, signs: JobSigns) -> int:
        wanted = self._host_events
        if wanted.level is not None:
            return wanted.level
        if device_planes and not wanted.beside_devices:
            return 0
        if not signs.host_events_safe and not await self._host_events_safe():
            return 0
        return max(wanted.safe_level, _STEP_MARKER_LEVEL if signs.framework == "PyTorch/XLA" else 0)

    async def may_raise_host_level(self) -> bool:
        """True if a trace with more host events than usual is harmless: the user chose no level, the server is safe.

        A server that was not asked yet gets another probe first: GetSnapshot takes the data of a continuous session.

        Raises:
            SourceError: `busy` if another session is active; otherwise as the calls failed.
        """
        known = self.known
        if self._host_events.level is not None or not known.returns_traces or self.leaves_out_host_events:
            return False
        if known.host_level == _STEP_MARKER_LEVEL:
            return False  # as many as usual
        if known.host_level or known.signs.host_events_safe:
            return True
        await self._probe_devices(known.device_type)
        return await self._host_events_safe()

    async def _host_events_safe(self) -> bool:
        """True if host tracing is safe on this server: does not deadlock a job without TensorFlow.

        Servers that know GetSnapshot are safe; jaxlib 0.5.0 to 0.8.3 do not know it, and hang for ever at host level 1.
        Asked only if host events are to be collected: the call takes a snapshot of a continuous session if one runs.
        """
        try:
            await self._client.call(wire.GET_SNAPSHOT, GetSnapshotRequest(), ProfileResponse, timeout_s=ANSWER_GRACE_S)
        except SourceError as error:
            if error.status == "NOT_FOUND":
                return True
            if error.status == "UNIMPLEMENTED":
                return False
            raise
        raise SourceError("continuous", "a continuous profiling session is active; standing back", address=self.address)

    async def _profile(
        self, request: TraceRequest, *, root: str, session: str | None = None, host_name: str = ""
    ) -> memoryview:
        if not self.is_known or self.known.host_level is None:
            raise SourceError("unavailable", "the connection broke", address=self.address)
        profile_request = _profile_request(
            request,
            root=root,
            session=session,
            host_name=host_name,
            host_level=self.known.host_level if request.host_level is None else request.host_level,
            device_type=_ALL_DEVICES if request.all_devices else self.known.device_type,
        )
        # The server collects after the window, for as long again in the worst case seen; a large trace takes its time.
        timeout_s = request.start_in_s + request.window_s + max(ANSWER_GRACE_S, request.window_s)
        return await self._trace(profile_request, timeout_s=timeout_s)

    async def _trace(self, request: ProfileRequest, *, timeout_s: float) -> memoryview:
        """The XSpace that the server returns; empty if it writes it to a file, or has none."""
        reply = await self._client.call(wire.PROFILE, request, ProfileResponse, timeout_s=timeout_s)
        return memoryview(reply.xspace)


def _profile_request(
    request: TraceRequest,
    *,
    root: str,
    session: str | None = None,
    host_name: str = "",
    host_level: int,
    device_type: ProfileOptions.DeviceType,
) -> ProfileRequest:
    window_ms = max(1, round(request.window_s * 1000))
    return ProfileRequest(
        duration_ms=window_ms,
        max_events=_MAX_EVENTS,
        repository_root=root,
        session_id=session or f"tpumon-{secrets.token_hex(8)}",  # unique: a Terminate sent for an id sticks to it
        host_name=host_name,
        emit_xspace=True,
        opts=ProfileOptions(
            version=_OPTIONS_VERSION,
            include_dataset_ops=True,
            host_tracer_level=host_level,
            device_tracer_level=_DEVICE_TRACER_LEVEL,
            python_tracer_level=0,
            device_type=device_type,
            enable_hlo_proto=request.hlo,
            advanced_configuration={
                name: ProfileOptions.AdvancedConfigValue(int64_value=value) for name, value in request.advanced.items()
            },
            start_timestamp_ns=request.start_unix_ns,
            duration_ms=window_ms,
        ),
    )

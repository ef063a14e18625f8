"""What `tpumon doctor` finds out: chips, ports, servers, one harmless call at a time. Says nothing itself."""

from __future__ import annotations

import asyncio
import platform
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any, Literal, TypeVar

from tpumon import __version__
from tpumon.commands.finding import WhereSettings, find_now
from tpumon.errors import Reason, SourceError, TpumonError
from tpumon.model import Query, Sample, Target
from tpumon.sources import Client, SourceOptions
from tpumon.sources.monitor import MonitorSource
from tpumon.sources.profile import HostEvents, Profiler
from tpumon.sources.runtime import Offered, RuntimeMetrics, RuntimeReading
from tpumon.sources.trace import on_this_host
from tpumon.system.pausing import current_pause
from tpumon.targets.chips import Chip, find_chips
from tpumon.targets.local import RUNTIME_PORTS, USUAL_PORTS, Seen, survey

_SERVER_S = 5.0  # for all calls of one kind to one server
_ALL_S = 15.0  # whoever has not been asked by then is not
_AT_ONCE = 64  # servers
_NO_TIME = "no time was left to ask; name fewer workers"
_MONITOR = Query(level=1, window_s=0.001)
_SAFE_HOST_LEVEL = 2  # what level 0 asks for

State = Literal["ok", "absent", "busy", "failed", "not asked"]
Source = Literal["monitor", "trace"]

_LATER: dict[Reason, State] = {"empty-trace": "ok", "busy": "busy"}
"""Reasons for which a server has no figures now."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one RPC, or would have; `words` are one line."""

    rpc: str
    state: State
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A worker's profiler server, or what is at its address.

    Attributes:
        program, pid: of the process that listens there, on this host and where one may know.
        answers: by RPC, in the order in which they are asked.
        reason: why it does not answer as a profiler server that is free; as in a sample's errors.
        generation: what the answers tell of its age.
        device_planes: whether its traces hold planes of devices; None where no trace was returned.
        writes_only: whether it can only write traces to a disk.
        host_events_safe: whether host events may be asked for; None where that was not found out.
        source: what its figures would come from; None: nothing.
        simulated: whether tpumon's simulator answered.
    """

    worker: str
    address: str
    program: str | None = None
    pid: int | None = None
    answers: tuple[Answer, ...] = ()
    reason: Reason | None = None
    generation: str | None = None
    device_planes: bool | None = None
    writes_only: bool = False
    host_events_safe: bool | None = None
    source: Source | None = None
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A runtime metric service, or what is at the address where one may be.

    Attributes:
        state: `absent` where nobody listens, which is usual while no job runs.
        duty_cycle_ratio: the average over its devices.
        offered: the metrics that it lists; None where it does not.
        warnings: what it warns of, and its metrics that failed.
    """

    address: str
    state: State
    words: str
    devices: int = 0
    hbm_used_bytes: int | None = None
    hbm_total_bytes: int | None = None
    duty_cycle_ratio: float | None = None
    simulated: bool = False
    offered: tuple[Offered, ...] | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """Something else that listens on this host; `words` say what it answered, or why it was left alone."""

    address: str
    program: str | None
    pid: int | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong, and what to do."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All that was found.

    Attributes:
        versions: of tpumon and what it stands on, by name.
        local: whether this host's ports were looked at; else servers were named.
        port: the only one of this host's that was looked at; None: all.
        chips, chip_remarks: as in `tpumon.targets.chips`, of this host.
        usable: whether any figure is to be had.
        took_s: how long it took to find out.
    """

    versions: dict[str, str]
    local: bool
    port: int | None
    chips: tuple[Chip, ...]
    chip_remarks: tuple[str, ...]
    paused_until_unix_s: float | None
    servers: tuple[Server, ...]
    runtimes: tuple[Runtime, ...]
    ports: tuple[Port, ...]
    problems: tuple[Problem, ...]
    usable: bool
    took_s: float


async def diagnose(where: WhereSettings, *, use_proxy: bool) -> Diagnosis:
    """Looks around. Every call is harmless and has a deadline; whatever fails is part of the result."""
    start_s = time.monotonic()
    async with AsyncExitStack() as stack:
        look = _Look(partial(Client, use_proxy=use_proxy))
        local = not (where.addresses or where.simulate or where.tpus or where.targets_file)
        chips = asyncio.create_task(asyncio.to_thread(find_chips))
        if local:
            await look.at_this_host(where.port)
        else:
            await look.at(where, stack)
        found = await chips
    servers, runtimes = tuple(look.servers), tuple(look.runtimes)
    return Diagnosis(
        versions=_versions(),
        local=local,
        port=where.port,
        chips=found.chips,
        chip_remarks=found.remarks,
        paused_until_unix_s=look.paused_until_unix_s,
        servers=servers,
        runtimes=runtimes,
        ports=tuple(look.ports),
        problems=tuple(look.problems),
        usable=any(server.source is not None for server in servers) or any(one.state == "ok" for one in runtimes),
        took_s=time.monotonic() - start_s,
    )


class _Look:
    """One look around; what is found piles up in its lists."""

    def __init__(self, open_client: Callable[[str], Client]) -> None:
        self._open_client = open_client
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._ends_s = time.monotonic() + _ALL_S
        pause = current_pause()
        self.paused_until_unix_s = None if pause is None else pause.until_unix_s
        self.servers: list[Server] = []
        self.runtimes: list[Runtime] = []
        self.ports: list[Port] = []
        self.problems: list[Problem] = []

    async def at_this_host(self, port: int | None) -> None:
        """What listens here; of what is no profiler server, no second call is made."""
        try:
            seen = await survey(port)
        except OSError as error:
            remedy = "only usual ports were tried; give --service-addr HOST:PORT"
            self.problems.append(Problem(what=f"what listens here cannot be read: {error.strerror}", remedy=remedy))
            ports = USUAL_PORTS if port is None else (port,)
            await self._examine(
                [Target(worker=f"127.0.0.1:{number}", address=f"127.0.0.1:{number}") for number in ports],
                [f"localhost:{RUNTIME_PORTS[0]}"],
            )
            self.servers = [server for server in self.servers if server.reason != "unavailable"]
            return
        runtimes = [one for one in seen if one.port in RUNTIME_PORTS and (one.owner is None or one.owner.runs_xla)]
        profilers = [one for one in seen if one.is_profiler]
        self.ports = [_port(one) for one in seen if one not in runtimes and one not in profilers]
        await self._examine(
            [Target(worker=one.address, address=one.address) for one in profilers],
            [one.address for one in runtimes],
        )
        by_address = {one.address: one.owner for one in profilers}
        self.servers = [
            replace(server, program=owner.program, pid=owner.pid)
            if (owner := by_address.get(server.address)) is not None
            else server
            for server in self.servers
        ]

    async def at(self, where: WhereSettings, stack: AsyncExitStack) -> None:
        """The workers that were named."""
        try:
            targets = await find_now(where, stack, lambda line: self.problems.append(Problem(what=line, remedy="")))
        except TpumonError as error:
            self.problems.append(Problem(what=str(error), remedy=""))
            return
        runtimes = [address for target in targets for address in _runtime_addresses(target)]
        profilers = [target for target in targets if not _is_runtime_port(target.address)]
        await self._examine(profilers, list(dict.fromkeys(runtimes)))

    async def _examine(self, targets: Sequence[Target], runtime_addresses: Sequence[str]) -> None:
        servers = asyncio.gather(*(self._server(target) for target in targets))
        runtimes = asyncio.gather(*(self._runtime(address) for address in runtime_addresses))
        self.servers, self.runtimes = await servers, await runtimes

    async def _server(self, target: Target) -> Server:
        # This machine's own name is left out of what people paste elsewhere.
        own = target.worker.partition(":")[0] == socket.gethostname()
        server = Server(worker=target.address if own else target.worker, address=target.address)
        async with self._at_once, self._open_client(target.address) as client:
            if time.monotonic() > self._ends_s:
                return _add(server, Answer(rpc="Monitor", state="not asked", words=_NO_TIME))
            try:
                sample = await _in_time(MonitorSource(client, target, SourceOptions()).fetch(_MONITOR))
            except SourceError as error:
                if error.reason != "unimplemented":
                    # One that answers without a figure, or is busy, has them at another time.
                    state = _LATER.get(error.reason, "failed")
                    answer = Answer(rpc="Monitor", state=state, words=_words(error, target.address))
                    source: Source | None = "monitor" if error.reason in _LATER else None
                    return replace(server, answers=(answer,), reason=error.reason, source=source)
            else:
                return _answered_by_monitor(server, sample)
            answer = Answer(rpc="Monitor", state="absent", words="not offered (UNIMPLEMENTED), as on every TPU VM")
            return await self._profile(replace(server, answers=(answer,), source="trace"), client)

    async def _profile(self, server: Server, client: Client) -> Server:
        """The probe, and GetSnapshot; not while someone may be profiling and has asked to be left alone."""
        if self.paused_until_unix_s is not None:
            return _add(server, Answer(rpc="Profile", state="not asked", words="sampling on this host is paused"))
        profiler = Profiler(client, HostEvents(level=None, safe_level=_SAFE_HOST_LEVEL, beside_devices=True))
        try:
            returns_traces = await _in_time(profiler.approach())
        except SourceError as error:
            state: State = "busy" if error.reason == "busy" else "failed"
            failed = Answer(rpc="Profile", state=state, words=_words(error, server.address))
            source: Source | None = "trace" if state == "busy" else None
            return _add(replace(server, reason=error.reason, source=source), failed)
        safe = not profiler.leaves_out_host_events
        planes = "with" if profiler.has_devices else "without"
        server = _add(
            replace(server, device_planes=profiler.has_devices, writes_only=not returns_traces, host_events_safe=safe),
            Answer(rpc="Profile", state="ok", words=f"returns traces, {planes} planes of a device")
            if returns_traces
            else Answer(rpc="Profile", state="ok", words="writes traces to a disk, cannot return them"),
            Answer(rpc="GetSnapshot", state="ok", words="known: host events may be asked for")
            if safe
            else Answer(
                rpc="GetSnapshot", state="absent", words="unknown (UNIMPLEMENTED): host events may hang the job"
            ),
        )
        seen = returns_traces or on_this_host(server.address)
        return replace(
            server,
            simulated=profiler.simulated,
            generation=_generation(server),
            source="trace" if seen else None,
        )

    async def _runtime(self, address: str) -> Runtime:
        metrics = RuntimeMetrics(
            Target(worker=address, address=address, runtime_addresses=(address,)), self._open_client
        )
        async with self._at_once:
            if time.monotonic() > self._ends_s:
                return Runtime(address=address, state="not asked", words=_NO_TIME)
            try:
                reading = await metrics.read()
                return _absent(address) if reading is None else _told(address, reading, await _offered(metrics))
            except SourceError as error:
                return Runtime(address=address, state="failed", words=_words(error, address))
            finally:
                await metrics.close()


async def _in_time(call: Coroutine[Any, Any, _Result]) -> _Result:
    """Raises:
    SourceError: as the call, or because it took too long.
    """
    try:
        async with asyncio.timeout(_SERVER_S):
            return await call
    except TimeoutError:
        raise SourceError("deadline", f"no answer within {_SERVER_S:.0f} s") from None


def _add(server: Server, *answers: Answer) -> Server:
    return replace(server, answers=server.answers + answers)


def _words(error: SourceError, address: str) -> str:
    return str(error).removeprefix(f"{address}: ")


def _answered_by_monitor(server: Server, sample: Sample) -> Server:
    of = f" of {sample.device_type}" if sample.device_type else ""
    return _add(
        replace(
            server,
            source="monitor",
            simulated=sample.simulated,
            generation="a TPU node's (v2, v3)",
        ),
        Answer(rpc="Monitor", state="ok", words=f"answers with the figures{of}"),
        Answer(rpc="Profile", state="not asked", words="not needed: Monitor has the figures"),
    )


def _generation(server: Server) -> str:
    """What six generations of jaxlib showed; TensorFlow and XProf have the same server."""
    if server.writes_only:
        return "as in jaxlib 0.6, or older"
    return "as in jaxlib 0.9, or newer" if server.host_events_safe else "as in jaxlib 0.7 and 0.8"


def _absent(address: str) -> Runtime:
    return Runtime(
        address=address, state="absent", words="nobody listens there: no runtime, as usual without a TPU job"
    )


def _told(address: str, reading: RuntimeReading, offered: tuple[Offered, ...] | None) -> Runtime:
    duty = [share for row in reading.devices if (share := row.runtime_duty_cycle_ratio) is not None]
    count = len(reading.devices)
    return Runtime(
        address=address,
        state="ok",
        words=f"{count} device{'s' if count != 1 else ''}",
        devices=count,
        hbm_used_bytes=reading.hbm_used_bytes,
        hbm_total_bytes=reading.hbm_total_bytes,
        duty_cycle_ratio=sum(duty) / len(duty) if duty else None,
        simulated=reading.simulated,
        offered=offered,
        warnings=(
            *(caution.message for caution in reading.warnings),
            *(failure.message for failure in reading.failures),
        ),
    )


async def _offered(metrics: RuntimeMetrics) -> tuple[Offered, ...] | None:
    try:
        return await metrics.offered()
    except SourceError:
        return None


def _is_runtime_port(address: str) -> bool:
    """Whether somebody took a runtime metric service for a profiler's: it is to be called as what it is."""
    return int(address.rpartition(":")[2]) in RUNTIME_PORTS


def _runtime_addresses(target: Target) -> tuple[str, ...]:
    """Where a worker's runtime metrics may be; on its host, where nobody said."""
    if _is_runtime_port(target.address):
        return (target.address,)
    return target.runtime_addresses or (f"{target.address.rpartition(':')[0]}:{RUNTIME_PORTS[0]}",)


def _port(seen: Seen) -> Port:
    answer = "" if seen.answer is None else _words(seen.answer, seen.address)
    return Port(
        address=seen.address,
        program=None if seen.owner is None else seen.owner.program,
        pid=None if seen.owner is None else seen.owner.pid,
        words=seen.not_approached or answer,
    )


def _versions() -> dict[str, str]:
    return {
        "tpumon": __version__,
        "Python": platform.python_version(),
        "grpcio": version("grpcio"),
        platform.system(): f"{platform.release()} {platform.machine()}",
    }

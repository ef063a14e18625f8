"""The diagnosis of `tpumon doctor`: chips, ports, servers, one harmless call at a time. Prints nothing itself."""

from __future__ import annotations

import asyncio
import platform
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from tpumon import __version__
from tpumon.collection import sources
from tpumon.collection.sampler.host_traces import actual_failure
from tpumon.collection.sources import Client, ExtraSource, SourceOptions
from tpumon.collection.sources.doctor_reports import Examination, ExtraSourceReport, RpcAnswer, State
from tpumon.discovery.addresses import server_name
from tpumon.discovery.host.jobs import HostJob, find_job
from tpumon.discovery.host.listening import signs_at, signs_of
from tpumon.discovery.host.pci_chips import Chip, find_chips
from tpumon.discovery.host.port_survey import (
    RUNTIME_PORTS,
    USUAL_PORTS,
    Elsewhere,
    SurveyedPort,
    survey,
)
from tpumon.errors import MEANING, SUGGESTED_PORT, Detail, Reason, SourceError, TpumonError
from tpumon.model import Address, Framework, Target
from tpumon.system.console import shown_by
from tpumon.system.ledger import DutyLedger
from tpumon.system.pausing import current_pause
from tpumon.untrusted_text import unexpected

_SERVER_S = 5.0  # for all calls of one source to one server
_ALL_S = 15.0  # whatever was not asked by then is not
_AT_ONCE = 64  # servers
_NO_TIME = "no time was left to ask; name fewer workers"
_OPTIONS = SourceOptions(runtime_metrics=True, signs_at=signs_at)

Find = Callable[[], Awaitable[Sequence[Target]]]
"""Finds the workers that are there now."""

_Result = TypeVar("_Result")


class ServerDiagnosis(Struct, frozen=True, kw_only=True):
    """A worker's profiler server, or what is at its address.

    Attributes:
        program, pid: of the process that listens there, on this host if it may be seen; the program with its script.
        answers: by RPC, in the order of the calls.
        reason: why it did not answer as a profiler server that is free; as in a sample's errors.
        detail: what more is known than the reason, as there.
        generation: its age, as the answers show it.
        device_planes: whether its traces hold device planes; None if no trace was returned.
        writes_only: whether it can only write traces to a disk.
        host_events_safe: whether host events may be collected; None if that was not found out.
        source: name of the source that its figures would come from; None: none.
        gives: which figures those are, and their price.
        simulated: whether tpumon's simulator answered.
        attached: whether its job says that its own traces wait for samples (`tpumon run`).
        elsewhere: which profiler servers of this host answer at other ports, with a command; empty: none.
    """

    worker: str
    address: str
    program: str | None = None
    pid: int | None = None
    answers: tuple[RpcAnswer, ...] = ()
    reason: Reason | None = None
    detail: Detail | None = None
    generation: str | None = None
    device_planes: bool | None = None
    writes_only: bool = False
    host_events_safe: bool | None = None
    source: str | None = None
    gives: str = ""
    simulated: bool = False
    attached: bool = False
    elsewhere: str = ""


class ExtraSourceReports(Struct, frozen=True, kw_only=True):
    """One kind of extra source, and what became of each place where it may be."""

    kind: type[ExtraSource]
    reports: tuple[ExtraSourceReport, ...] = ()


class OtherPort(Struct, frozen=True, kw_only=True):
    """Something else that listens on this host; `words` say what it answered, or why it was not called.

    `reason` is that of its answer as in a sample's errors; None: it was not called.
    """

    address: str
    program: str | None
    pid: int | None
    words: str
    reason: Reason | None = None


class Problem(Struct, frozen=True, kw_only=True):
    """Something that is wrong, and what to do."""

    what: str
    remedy: str


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All that `doctor` finds out.

    Attributes:
        versions: of tpumon and what it runs on, by name.
        local: whether this host was examined; if not, workers were named.
        port: the only port of this host that was examined; None: all.
        elsewhere: which profiler servers of this host answer at other ports than that, with a command; empty: none.
        chips, chip_remarks: as in `tpumon.discovery.host.pci_chips`, of this host.
        extra_sources: a row for each kind in `tpumon.collection.sources.EXTRA_SOURCES`.
        job: a job of this host without a profiler server.
        framework: of the job that holds the chips of this host or its runtime metrics; None if unknown.
        usable: whether there is any figure to show.
        took_s: how long it took to find out.
    """

    versions: dict[str, str]
    local: bool
    port: int | None
    elsewhere: str = ""
    chips: tuple[Chip, ...]
    chip_remarks: tuple[str, ...]
    paused_until_unix_s: float | None
    servers: tuple[ServerDiagnosis, ...]
    extra_sources: tuple[ExtraSourceReports, ...]
    ports: tuple[OtherPort, ...]
    problems: tuple[Problem, ...]
    job: HostJob | None = None
    framework: Framework | None = None
    usable: bool
    took_s: float

    def to_json(self) -> dict[str, Any]:
        """The output of `--output json`: every field; each kind of extra source is a list of its own name."""
        own = {name: value for name, value in asdict(self).items() if name != "extra_sources"}
        return own | {row.kind.about.key: row.reports for row in self.extra_sources}


async def diagnose(find: Find | None, *, port: int | None, use_proxy: bool, pages: Sequence[str] = ()) -> Diagnosis:
    """Looks around. Every call is harmless and has a deadline; whatever fails is part of the result.

    Args:
        find: finds the workers to look at; None: this host.
        port: the only port of this host to look at; None: all.
        use_proxy: obey http_proxy.
        pages: of servers' metrics, for this host; beside those that are found.
    """
    start_s = time.monotonic()
    look = _Look(partial(Client, use_proxy=use_proxy))
    searching = asyncio.create_task(asyncio.to_thread(find_chips))
    if find is None:
        await look.at_this_host(port, pages)
    else:
        await look.at(find)
    chips = await searching
    holders = [holder.pid for chip in chips.chips for holder in chip.holders]
    frameworks = await asyncio.to_thread(lambda: [signs_of(pid, ()).framework for pid in holders])
    answering = any(report.state == "ok" for row in look.extra_sources for report in row.reports)
    return Diagnosis(
        versions=_versions(),
        local=find is None,
        port=port,
        elsewhere=look.elsewhere,
        chips=chips.chips,
        chip_remarks=chips.remarks,
        paused_until_unix_s=look.paused_until_unix_s,
        servers=tuple(look.servers),
        extra_sources=tuple(look.extra_sources),
        ports=tuple(look.ports),
        problems=tuple(look.problems),
        job=look.job,
        framework=next((name for name in (*frameworks, *look.frameworks) if name is not None), None),
        usable=answering or any(server.source is not None for server in look.servers),
        took_s=time.monotonic() - start_s,
    )


class _Look:
    """One look around; the results pile up in its lists."""

    def __init__(self, open_client: Callable[[str], Client]) -> None:
        self._open_client = open_client
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._ends_s = time.monotonic() + _ALL_S
        pause = current_pause()
        self.paused_until_unix_s = None if pause is None else pause.until_unix_s
        self.elsewhere = ""
        self.servers: list[ServerDiagnosis] = []
        self.extra_sources: list[ExtraSourceReports] = []
        self.ports: list[OtherPort] = []
        self.problems: list[Problem] = []
        self.job: HostJob | None = None
        self.frameworks: list[Framework | None] = []
        self.traced_s: dict[str, float] = {}  # by server

    async def at_this_host(self, port: int | None, pages: Sequence[str]) -> None:
        """Examines what listens here; what is not a profiler server gets no second call as one."""
        try:
            seen = await survey(port)
        except OSError as error:
            remedy = "only the usual ports were tried; give --service-addr HOST:PORT"
            self.problems.append(Problem(what=f"cannot read what listens here: {error.strerror}", remedy=remedy))
            ports = USUAL_PORTS if port is None else (port,)
            usual = [f"127.0.0.1:{n}" for n in ports]
            await self._examine(*_of_this_host(usual, [f"localhost:{RUNTIME_PORTS[0]}"], pages))
            self.servers = [server for server in self.servers if server.reason != "unavailable"]
            return
        runtimes = [one for one in seen if one.port in RUNTIME_PORTS and (one.owner is None or one.owner.runs_xla)]
        self.frameworks = [one.owner.signs.framework for one in runtimes if one.owner is not None]
        profilers = [one for one in seen if one.is_profiler]
        if port is None:
            with_server = [one.owner for one in profilers if one.owner is not None]
            self.job = await asyncio.to_thread(find_job, but_for=with_server)
        elif not profilers:
            self.elsewhere = await Elsewhere().remedy(f"127.0.0.1:{port}")
            job = await asyncio.to_thread(find_job, but_for=())
            self.job = job if job is not None and job.stopped else None
        self.ports = [_port(one) for one in seen if one not in runtimes and one not in profilers]
        pages_here = [f"http://{one.address}/metrics" for one in seen if _has_page(one)]
        await self._examine(
            *_of_this_host([one.address for one in profilers], [one.address for one in runtimes], [*pages_here, *pages])
        )
        by_address = {one.address: one for one in profilers}
        self.servers = [_with_owner(server, by_address.get(server.address)) for server in self.servers]

    async def at(self, find: Find) -> None:
        """Examines the workers that were named."""
        try:
            with shown_by(lambda line: self.problems.append(Problem(what=line, remedy=""))):
                targets = await find()
        except TpumonError as error:
            self.problems.append(Problem(what=str(error), remedy=""))
            return
        await self._examine(
            [target for target in targets if not _is_runtime_port(target.address)],
            [replace(target, runtime_addresses=_runtime_addresses(target)) for target in targets],
        )
        elsewhere, asked = Elsewhere(), {target.address for target in targets}
        for place, server in enumerate(self.servers):
            if server.reason is not None and MEANING[server.reason].unreached:
                remedy = await elsewhere.remedy(server.address, asked)
                self.servers[place] = replace(server, elsewhere=remedy)

    async def _examine(self, targets: Sequence[Target], extra_sources_of: Sequence[Target]) -> None:
        """Walks the two tables of sources."""
        servers = asyncio.gather(*(self._server(target) for target in targets))
        extra_sources = asyncio.gather(*(self._extra_sources(kind, extra_sources_of) for kind in sources.EXTRA_SOURCES))
        self.servers, self.extra_sources = await servers, await extra_sources
        if self.traced_s:
            with suppress(OSError):  # the tpumons of this host then count without it
                await asyncio.to_thread(DutyLedger().add, self.traced_s)

    async def _server(self, target: Target) -> ServerDiagnosis:
        # This machine's own name is left out of what people paste elsewhere.
        own = target.worker.partition(":")[0] == socket.gethostname()
        server = ServerDiagnosis(worker=target.address if own else target.worker, address=target.address)
        async with self._at_once, self._open_client(target.address) as client:
            profilers = [make(client, target, _OPTIONS) for make in sources.PROFILERS]
            if time.monotonic() > self._ends_s:
                return _add(server, RpcAnswer(rpc=profilers[0].rpc, state="not asked", words=_NO_TIME))
            for place, profiler in enumerate(profilers, 1):
                if profiler.costs_job and self.paused_until_unix_s is not None:
                    answer = RpcAnswer(rpc=profiler.rpc, state="not asked", words="sampling on this host is paused")
                    return _add(replace(server, source=profiler.name, gives=profiler.gives), answer)
                try:
                    examination = await _in_time(profiler.examine())
                except SourceError as error:
                    if error.reason == "unimplemented":
                        server = _add(server, RpcAnswer(rpc=profiler.rpc, state="absent", words=profiler.missing))
                        continue
                    error = await asyncio.to_thread(actual_failure, error, target.address)
                    meaning = MEANING[error.reason]
                    state: State = (
                        "busy" if meaning.state in {"busy", "continuous"} else "ok" if meaning.usable else "failed"
                    )
                    server = _add(server, RpcAnswer(rpc=profiler.rpc, state=state, words=error.message))
                    source = profiler.name if meaning.usable else None  # it has figures at another time
                    return replace(
                        server, reason=error.reason, detail=error.detail, source=source, gives=profiler.gives
                    )
                except Exception as error:  # noqa: BLE001 - a bug there must not cost the rest of the report
                    answer = RpcAnswer(rpc=profiler.rpc, state="failed", words=_bug_words(error))
                    return replace(_add(server, answer), reason="internal")
                finally:
                    if profiler.costs_job:
                        name = server_name(target.address)
                        self.traced_s[name] = self.traced_s.get(name, 0.0) + profiler.current_traced_s
                spared = tuple(
                    RpcAnswer(rpc=other.rpc, state="not asked", words=f"not needed: {profiler.rpc} has the figures")
                    for other in profilers[place:]
                )
                return _examined(server, profiler.name, examination, spared)
        return replace(server, reason="unimplemented")

    async def _extra_sources(self, kind: type[ExtraSource], targets: Sequence[Target]) -> ExtraSourceReports:
        try:
            places = [*kind.places(targets)]
        except Exception as error:  # noqa: BLE001 - a bug there must not cost the rest of the report
            return ExtraSourceReports(kind=kind, reports=(_bug("", error),))
        reports = await asyncio.gather(*(self._extra_source(kind, place) for place in places))
        return ExtraSourceReports(kind=kind, reports=tuple(report for report in reports if report is not None))

    async def _extra_source(self, kind: type[ExtraSource], place: Target) -> ExtraSourceReport | None:
        """The report of an extra source; None: there is none at this place."""
        extra_source: ExtraSource | None = None
        async with self._at_once:
            try:
                extra_source = kind.open(place, self._open_client, _OPTIONS)
                if extra_source is None:
                    return None
                if time.monotonic() > self._ends_s:
                    return ExtraSourceReport(address=place.address, state="not asked", words=_NO_TIME)
                return await _in_time(extra_source.examine())
            except SourceError as error:
                return ExtraSourceReport(address=error.address or place.address, state="failed", words=error.message)
            except Exception as error:  # noqa: BLE001 - a bug there must not cost the rest of the report
                return _bug(place.address, error)
            finally:
                with suppress(Exception):  # what it said stays
                    if extra_source is not None:
                        await extra_source.close()


def _with_owner(server: ServerDiagnosis, seen: SurveyedPort | None) -> ServerDiagnosis:
    """A server with what its process shows."""
    if seen is None:
        return server
    server = replace(server, attached=seen.attached)
    return server if seen.owner is None else replace(server, program=seen.owner.command, pid=seen.owner.pid)


def _bug(address: str, error: Exception) -> ExtraSourceReport:
    return ExtraSourceReport(address=address, state="failed", words=_bug_words(error))


def _bug_words(error: Exception) -> str:
    return f"a bug in tpumon: {unexpected(error)}"


async def _in_time(call: Coroutine[Any, Any, _Result]) -> _Result:
    """Awaits a call.

    Raises:
        SourceError: as the call, or because it took too long.
    """
    try:
        async with asyncio.timeout(_SERVER_S):
            return await call
    except TimeoutError:
        raise SourceError("deadline", f"no answer within {_SERVER_S:.0f} s") from None


def _of_this_host(
    profilers: Sequence[str], runtimes: Sequence[str], pages: Sequence[str]
) -> tuple[Sequence[Target], Sequence[Target]]:
    """Targets to examine for profilers, and for extra sources; all runtimes belong to the first target."""
    targets = [Target(worker=address, address=address) for address in profilers]
    alone = Target(worker="localhost", address=f"127.0.0.1:{SUGGESTED_PORT}")  # where its profiler would be
    first = targets[0] if targets else alone if runtimes or pages else None
    if first is None:
        return targets, []
    more = [replace(first, server_metrics=page) for page in pages[1:]]
    first = replace(first, runtime_addresses=tuple(runtimes), server_metrics=pages[0] if pages else None)
    return targets, [first, *targets[1:], *more]


def _has_page(seen: SurveyedPort) -> bool:
    """Tells if a server of models has its page of metrics there."""
    return seen.owner is not None and seen.owner.page_port == seen.port and Address.parse(seen.address).is_this_host


def _add(server: ServerDiagnosis, *answers: RpcAnswer) -> ServerDiagnosis:
    return replace(server, answers=server.answers + answers)


def _examined(
    server: ServerDiagnosis, source: str, examination: Examination, spared: tuple[RpcAnswer, ...]
) -> ServerDiagnosis:
    return replace(
        server,
        answers=(*server.answers, *examination.answers, *spared),
        source=source if examination.usable else None,
        gives=examination.gives,
        generation=examination.generation,
        device_planes=examination.device_planes,
        writes_only=examination.writes_only,
        host_events_safe=examination.host_events_safe,
        simulated=examination.simulated,
    )


def _is_runtime_port(address: str) -> bool:
    """Tells if the address of a runtime metric service was given as a profiler's: it is called as what it is."""
    return Address.parse(address).port in RUNTIME_PORTS


def _runtime_addresses(target: Target) -> tuple[str, ...]:
    """Addresses at which a worker's runtime metrics may be; the usual port of its host unless someone said."""
    if _is_runtime_port(target.address):
        return (target.address,)
    return target.runtime_addresses or (str(Address.parse(target.address).at(RUNTIME_PORTS[0])),)


def _port(seen: SurveyedPort) -> OtherPort:
    answer = "" if seen.answer is None else seen.answer.message
    return OtherPort(
        address=seen.address,
        program=None if seen.owner is None else seen.owner.command,
        pid=None if seen.owner is None else seen.owner.pid,
        words=seen.not_approached or answer,
        reason=None if seen.not_approached or seen.answer is None else seen.answer.reason,
    )


def _versions() -> dict[str, str]:
    return {
        "tpumon": __version__,
        "Python": platform.python_version(),
        "grpcio": version("grpcio"),
        platform.system(): f"{platform.release()} {platform.machine()}",
    }

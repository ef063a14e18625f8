"""The workers of TPUs given by name."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tpumon.discovery.addresses import PROFILER_PORT
from tpumon.discovery.google_api import LOOKUP_S, ApiError, ApiNode, TpuApi, check_installed
from tpumon.discovery.host.port_survey import line_for
from tpumon.discovery.host.probe import knock
from tpumon.errors import MEANING, SUGGESTED_PORT, NoTargetError, UsageError
from tpumon.model import Address, Target, Workers
from tpumon.system.threads import in_thread
from tpumon.untrusted_text import unexpected

if TYPE_CHECKING:
    from tpumon.errors import SourceError

_log = logging.getLogger(__name__)

PORTS = (8466, 9999, 9012)
"""Where a TPU VM's job may have its profiler server, in the order to try."""

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_POLL_S = 2.0
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 60.0
_REFRESH_S = 300.0
_KNOCK_AGAIN_S = 10.0
_LEAVE_ALONE_S = 600.0
_WORKERS_AT_ONCE = 32

_STATES = {
    "CREATING": "is being created",
    "STARTING": "is starting",
    "RESTARTING": "is restarting",
    "REIMAGING": "is being reimaged",
    "REPAIRING": "is being repaired by Google",
    "STOPPING": "is being stopped",
    "STOPPED": "is stopped; start it: gcloud compute tpus tpu-vm start {name} --zone {zone}",
    "DELETING": "is being deleted",
    "PREEMPTED": "was preempted; delete it and create it again",
    "TERMINATED": "was terminated; delete it and create it again",
    "HIDING": "is being hidden by Google for maintenance",
    "HIDDEN": "is hidden by Google for maintenance",
    "UNHIDING": "is coming back from Google's maintenance",
}
_WELL = {None, "", "HEALTHY", "HEALTH_UNSPECIFIED"}


def check_name(name: str) -> None:
    """Raises UsageError if a text cannot be a TPU's name."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"--tpu {name!r} is not a TPU's name; `gcloud compute tpus tpu-vm list` shows them")


@dataclass(slots=True)
class _NamedTpu:
    """One TPU.

    Attributes:
        ready: whether it is READY, as the API last said.
        line: why it is not, or what else a user should know; None: all is well.
        was_described: whether the API described it when it was last asked.
        job: the queued resource that it is a part of, if that has several slices.
        ips: of its workers, in their order; the last known ones while it is not ready.
        ports: where their profiler servers may be.
        port_of: where they are, by IP address.
        not_before_s: when ports of strangers may be called again.
        knock_at_s: when to try its ports next.
    """

    name: str
    ready: bool = False
    line: str | None = None
    was_described: bool = False
    job: str | None = None
    ips: tuple[str | None, ...] = ()
    ports: tuple[int, ...] = ()
    port_of: dict[str, int] = field(default_factory=dict)
    not_before_s: dict[tuple[str, int], float] = field(default_factory=dict)
    knock_at_s: float = 0.0

    def targets(self) -> list[Target]:
        """Workers of the TPU; a worker that answered at no port gets the port of most others."""
        ports = [self._port(ip) for ip in self.ips]
        return [
            Target(
                worker=f"{self.name}-w-{index}",
                address=str(Address(ip, port)),
                job=self.job,
                slice=self.name,
                slice_workers=len(self.ips),
            )
            for index, (ip, port) in enumerate(zip(self.ips, ports, strict=True))
            if ip is not None and port is not None
        ]

    def _port(self, ip: str | None) -> int | None:
        """The port of a worker's profiler server, now or later; no stranger's, which would be called on and on."""
        if ip in self.port_of:
            return self.port_of[ip]
        usual = [port for port, _ in Counter(self.port_of.values()).most_common()]
        wanted = dict.fromkeys((*usual, SUGGESTED_PORT, *self.ports))
        return next((port for port in wanted if (ip, port) not in self.not_before_s), None)

    def lines(self) -> list[str]:
        """Lines that a user should see about it, beside its workers."""
        lines = [self.line] if self.line is not None else []
        if self.ready and not self.port_of:
            lines.append(
                f"TPU {self.name} is READY, but none of its {sum(ip is not None for ip in self.ips)} workers has a "
                f"profiler server at port {', '.join(map(str, self.ports))} yet: at most memory and duty cycle are "
                f"available; add `{line_for(None)}` to the job, or give --port"
            )
        return lines


class NamedTpus:
    """Looks up the workers of TPUs by name, and again once all are gone, for example preempted and created again.

    Makes one GET per TPU at the start, every 5 minutes, and every 10 to 60 s while no worker answers. Without a given
    port, the usual ports of TPU VMs get the harmless call, one each per worker. While any worker answers, all of them
    stay, whatever the API says.

    Args:
        names: of the TPUs. Each is a slice.
        zone: of the TPUs; None: this machine's.
        project: of the TPUs; None: that of the credentials, or this machine's.
        port: of the profiler servers; None: 8466 on TPU nodes, to be tried on TPU VMs.
        runtime_only: whether a TPU without a profiler server has workers, which may have runtime metrics.
        endpoint: of the API; None: Google's, or CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU.
        call: the harmless call.
        poll_s: time between decisions whether to look.

    Raises:
        UsageError: a name cannot be one, or the extra `gcp` is missing.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        zone: str | None = None,
        project: str | None = None,
        port: int | None = None,
        runtime_only: bool = True,
        endpoint: str | None = None,
        call: Callable[[str], Awaitable[SourceError | None]] = knock,
        poll_s: float = _POLL_S,
    ) -> None:
        for name in names:
            check_name(name)
        check_installed()
        self._api = TpuApi(zone=zone, project=project, endpoint=endpoint)
        self._slices = [_NamedTpu(name) for name in dict.fromkeys(names)]
        self._port = port
        self._runtime_only = runtime_only
        self._call = call
        self._poll_s = poll_s
        self._sent: Workers | None = None
        self._said: dict[str, list[str]] = {}

    async def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields the workers of all TPUs each time they have changed.

        Raises:
            UsageError: zone or project is missing.
            NoTargetError: the API does not show these TPUs to this user.
        """
        clock_s = asyncio.get_running_loop().time
        asked_s, vain = 0.0, 0
        while True:
            settled = self._any_answers(all_gone)
            vain = 0 if settled else vain
            pause_s = _REFRESH_S if settled else min(_LONGEST_PAUSE_S, _SHORTEST_PAUSE_S * 2 ** max(0, vain - 1))
            if self._sent is None or clock_s() - asked_s >= pause_s:
                asked_s, vain = clock_s(), vain + 1
                for tpu in self._slices:  # one after the other: they share credentials, and there are few
                    await self._ask(tpu)
            for tpu in self._slices:
                if tpu.ready and (not tpu.port_of or not settled) and clock_s() >= tpu.knock_at_s:
                    await self._find_ports(tpu, clock_s)
            workers = self._now()
            if self._sent is not None and not workers.targets and self._any_answers(all_gone):
                workers = replace(self._sent, finders=workers.finders)
            if workers != self._sent:
                self._sent = workers
                yield workers
            self._say_lines()
            await asyncio.sleep(self._poll_s)

    def _any_answers(self, all_gone: Callable[[], bool]) -> bool:
        return self._sent is not None and bool(self._sent.targets) and not all_gone()

    async def _ask(self, tpu: _NamedTpu) -> None:
        """Asks the API how a TPU is; if it does not answer, what was known stays."""
        try:
            node = await in_thread(partial(self._api.node, tpu.name), timeout_s=LOOKUP_S)
        except Exception as trouble:  # noqa: BLE001 - whatever it answers
            self._note_trouble(tpu, trouble)
            return
        tpu.was_described = True
        tpu.line = _line(tpu.name, node, self._api.zone)
        tpu.ready = node.state == "READY"
        if not tpu.ready:
            return
        tpu.job = node.job
        if node.ips != tpu.ips:
            tpu.ips, tpu.knock_at_s = node.ips, 0.0
        tpu.ports = (self._port,) if self._port is not None else (PROFILER_PORT,) if node.is_tpu_node else PORTS
        tpu.port_of = {ip: port for ip, port in tpu.port_of.items() if ip in tpu.ips}
        tpu.not_before_s = {(ip, port): at_s for (ip, port), at_s in tpu.not_before_s.items() if ip in tpu.ips}

    def _note_trouble(self, tpu: _NamedTpu, trouble: Exception) -> None:
        """Notes that the API did not describe a TPU.

        Raises:
            UsageError, NoTargetError: it never did, and asking again would not help.
        """
        passing, words = True, f"the TPU API did not answer within {LOOKUP_S:.0f} s"
        if isinstance(trouble, (ApiError, UsageError)):
            passing, words = isinstance(trouble, ApiError) and trouble.passing, str(trouble)
        elif not isinstance(trouble, TimeoutError):
            words = unexpected(trouble)
        if self._sent is None and isinstance(trouble, UsageError):
            raise trouble
        if self._sent is None and not passing:
            raise NoTargetError(f"--tpu {tpu.name}: {words}") from None
        tpu.line = f"TPU {tpu.name}: {words}"
        tpu.ready = tpu.ready and passing
        tpu.was_described = False

    async def _find_ports(self, tpu: _NamedTpu, clock_s: Callable[[], float]) -> None:
        """Tries the ports of a TPU's workers if there is a choice."""
        ips = [ip for ip in tpu.ips if ip is not None]
        if len(tpu.ports) == 1:
            tpu.port_of = dict.fromkeys(ips, tpu.ports[0])
            return
        for at in range(0, len(ips), _WORKERS_AT_ONCE):
            some = ips[at : at + _WORKERS_AT_ONCE]
            ports = await asyncio.gather(*(self._port_of(tpu, ip, clock_s) for ip in some))
            tpu.port_of |= {ip: port for ip, port in zip(some, ports, strict=True) if port is not None}
            if not any(ports):
                break  # a slice runs one program: the others wait until these have it
        tpu.knock_at_s = clock_s() + _KNOCK_AGAIN_S

    async def _port_of(self, tpu: _NamedTpu, ip: str, clock_s: Callable[[], float]) -> int | None:
        async def answers(port: int) -> bool:
            if clock_s() < tpu.not_before_s.get((ip, port), 0.0):
                return False
            answer = await self._call(str(Address(ip, port)))
            tpu.not_before_s.pop((ip, port), None)
            if answer is not None and (MEANING[answer.reason].final or not MEANING[answer.reason].unreached):
                tpu.not_before_s[ip, port] = clock_s() + _LEAVE_ALONE_S
            return answer is None

        here = await asyncio.gather(*(answers(port) for port in tpu.ports))
        return next((port for port, yes in zip(tpu.ports, here, strict=True) if yes), None)

    def _now(self) -> Workers:
        """All workers while any slice is ready, workers of other slices as down; no worker if no slice is ready."""
        here = [tpu for tpu in self._slices if self._runtime_only or tpu.port_of]
        if any(tpu.ready for tpu in here) and (targets := [target for tpu in here for target in tpu.targets()]):
            return Workers(targets=tuple(targets), finders=self._finders())
        lines = "; ".join(line for tpu in self._slices for line in tpu.lines())
        return Workers(waiting=lines, finders=self._finders())

    def _finders(self) -> Mapping[str, bool]:
        return {"tpu-api": all(tpu.was_described for tpu in self._slices)}

    def _say_lines(self) -> None:
        """Says what a user should know beside the workers, each line once."""
        for tpu in self._slices:
            before, self._said[tpu.name] = self._said.get(tpu.name, []), tpu.lines()
            if self._sent is not None and self._sent.targets:
                for line in self._said[tpu.name]:
                    if line not in before:
                        _log.warning("%s", line)


def _line(name: str, node: ApiNode, zone: str) -> str | None:
    if node.state != "READY":
        words = _STATES.get(node.state, f"is in state {node.state}").format(name=name, zone=zone)
        return f"TPU {name} {words} ({node.state})"
    if node.health not in _WELL:
        why = f": {node.health_words}" if node.health_words else ""
        return f"TPU {name} is READY, but its health is {node.health}{why}"
    return None

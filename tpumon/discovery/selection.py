"""The workers that the user chose, and the discovery that finds them. Shared by all commands that talk to workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing

from msgspec import Struct, field
from msgspec.structs import replace

from tpumon.discovery.finder import Discovery, Fixed
from tpumon.discovery.host.runtime_ports import WithRuntime
from tpumon.discovery.identity import Identified, names
from tpumon.discovery.server_metrics import WithServerMetrics
from tpumon.errors import NoTargetError
from tpumon.model import JobKindName, Target
from tpumon.simulator.simulator_settings import SimulatorSettings


class Selection(Struct, frozen=True, kw_only=True):
    """The workers that the user chose; without any choice, those of this host.

    Attributes:
        addresses: of the workers, given by the user.
        port: where to look on this host or on a named TPU; None: at the usual ports.
        simulate: start this simulated TPU and watch it.
        tpus: names of TPUs.
        zone, project: of those TPUs; None: this machine's.
        targets_file: file in Prometheus' file_sd format.
        waits: whether to wait for that file if it is missing or wrong at the start.
        runtime_addresses: runtime metric service of each worker, in the order of the workers; empty: at the usual
            port.
        server_metrics: pages of their servers' metrics, by worker; by "" that of the only one.
        job, slice: of all of them, unless the targets file says otherwise; None: found.
        job_kind: of all of them; None: found.
    """

    addresses: Sequence[str] = ()
    port: int | None = None
    simulate: SimulatorSettings | None = None
    tpus: Sequence[str] = ()
    zone: str | None = None
    project: str | None = None
    targets_file: str | None = None
    waits: bool = False
    runtime_addresses: Sequence[str] = ()
    server_metrics: Mapping[str, str] = field(default_factory=dict)
    job: str | None = None
    slice: str | None = None
    job_kind: JobKindName | None = None


async def open_discovery(selection: Selection, stack: AsyncExitStack, *, profilers_only: bool = False) -> Discovery:
    """Opens the discovery for a selection.

    Args:
        selection: the workers to find.
        stack: takes what the discovery needs to run; to be closed when the command ends.
        profilers_only: leave out workers that offer only runtime metrics.

    Raises:
        TpumonError: the simulated TPU cannot start.
    """
    discovery = await _open(selection, stack, profilers_only=profilers_only)
    if selection.server_metrics:
        discovery = WithServerMetrics(discovery, selection.server_metrics)
    given = names(selection.job, selection.slice)
    return Identified(discovery, given, job_kind=selection.job_kind, by_labels=selection.targets_file is not None)


async def _open(selection: Selection, stack: AsyncExitStack, *, profilers_only: bool) -> Discovery:
    if selection.simulate is not None:
        from tpumon.simulator.simulated_fleet import SimulatedFleet

        fleet = await stack.enter_async_context(SimulatedFleet(selection.simulate))
        runtime, pages = fleet.runtime_addresses, fleet.server_metrics
        return Fixed(
            [
                replace(
                    target,
                    slice=selection.simulate.topology,
                    runtime_addresses=runtime[index : index + 1],
                    server_metrics=pages[index] if pages else None,
                )
                for index, target in enumerate(fleet.targets)
            ]
        )
    from tpumon.discovery.host.last_job import WithLastJob

    discovery = _named(selection, runtime_only=not profilers_only)
    if discovery is None:
        from tpumon.discovery.host.port_survey import Elsewhere
        from tpumon.discovery.host.servers import LocalDiscovery
        from tpumon.discovery.pods import WithPods

        local = LocalDiscovery(selection.port, runtime_only=not profilers_only, elsewhere=Elsewhere())
        discovery = WithLastJob(local, selection.port, notes=not profilers_only)
        if not profilers_only:  # a profile does not wait for the kubelet
            discovery = WithPods(discovery)
        if not selection.runtime_addresses:
            return discovery
    elif not profilers_only:
        from tpumon.discovery.host.own_processes import WithProcesses

        discovery = WithLastJob(WithProcesses(discovery), tells_of_gone=False)
    return WithRuntime(discovery, selection.runtime_addresses)


def _named(selection: Selection, *, runtime_only: bool) -> Discovery | None:
    """The discovery of workers that the user named in some way; None if none were named."""
    if selection.tpus:
        from tpumon.discovery.tpu_api import NamedTpus

        return NamedTpus(
            selection.tpus,
            zone=selection.zone,
            project=selection.project,
            port=selection.port,
            runtime_only=runtime_only,
        )
    if selection.targets_file is not None:
        from tpumon.discovery.target_file import TargetFile

        return TargetFile(selection.targets_file, port=selection.port, waits=selection.waits)
    if selection.addresses:
        from tpumon.discovery.dns import DnsNames

        return DnsNames(selection.addresses)
    return None


async def find_now(selection: Selection, stack: AsyncExitStack) -> Sequence[Target]:
    """Finds the workers that are present now.

    Raises:
        NoTargetError: there are none; the message says where it looked.
    """
    discovery = await open_discovery(selection, stack, profilers_only=True)
    async with aclosing(discovery.watch(lambda: False)) as changes:
        workers = await anext(changes)
    if not workers.targets:
        raise NoTargetError(workers.waiting or "there is no worker")
    return workers.targets

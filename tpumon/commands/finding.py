"""What the options say about where workers are -> the finder of them. Shared by all commands that talk to workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace

from tpumon.errors import NoTargetError
from tpumon.model import Target
from tpumon.simulator.settings import SimulatorSettings
from tpumon.targets.base import Discovery, Fixed
from tpumon.targets.runtime import WithRuntime


@dataclass(frozen=True, slots=True, kw_only=True)
class WhereSettings:
    """Attributes:
    addresses: workers that are named; none, and nothing else given: this host's.
    port: where to look on this host, or on a named TPU's; None: where people have them.
    simulate: a simulated TPU instead.
    tpus: names of TPUs.
    zone, project: of those; None: this machine's.
    targets_file: file in Prometheus' file_sd form.
    runtime_addresses: of the workers' runtime metric services, in their order; none: where they usually are.
    """

    addresses: Sequence[str] = ()
    port: int | None = None
    simulate: SimulatorSettings | None = None
    tpus: Sequence[str] = ()
    zone: str | None = None
    project: str | None = None
    targets_file: str | None = None
    runtime_addresses: Sequence[str] = ()


async def open_discovery(
    where: WhereSettings, stack: AsyncExitStack, say: Callable[[str], None], *, profilers_only: bool = False
) -> Discovery:
    """The finder that was asked for. What it needs to run is put on the stack.

    Args:
        where: what was asked for.
        stack: closed when the command ends.
        say: takes lines about trouble that does not end the command.
        profilers_only: leave out workers of which only runtime metrics are to be had.

    Raises:
        TpumonError: a simulated TPU cannot be had.
    """
    if where.simulate is not None:
        from tpumon.simulator.server import SimulatedFleet

        fleet = await stack.enter_async_context(SimulatedFleet(where.simulate))
        runtime = fleet.runtime_addresses or ("",) * len(fleet.targets)
        return Fixed(
            [
                replace(target, slice=where.simulate.topology, runtime_addresses=(address,) if address else ())
                for target, address in zip(fleet.targets, runtime, strict=True)
            ]
        )
    finder = _named(where, say, runtime_only=not profilers_only)
    if finder is None:
        from tpumon.targets.local import LocalDiscovery

        finder = LocalDiscovery(where.port, say=say, runtime_only=not profilers_only)
        if not where.runtime_addresses:
            return finder
    return WithRuntime(finder, where.runtime_addresses)


def _named(where: WhereSettings, say: Callable[[str], None], *, runtime_only: bool) -> Discovery | None:
    """The finder of workers that somebody named, in whatever way; None where nobody did."""
    if where.tpus:
        from tpumon.targets.tpu_api import NamedTpus

        return NamedTpus(
            where.tpus, zone=where.zone, project=where.project, port=where.port, say=say, runtime_only=runtime_only
        )
    if where.targets_file is not None:
        from tpumon.targets.target_file import TargetFile

        return TargetFile(where.targets_file, port=where.port, say=say)
    if where.addresses:
        from tpumon.targets.dns import DnsNames

        return DnsNames(where.addresses)
    return None


async def find_now(where: WhereSettings, stack: AsyncExitStack, say: Callable[[str], None]) -> Sequence[Target]:
    """The workers that are there now.

    Raises:
        NoTargetError: there are none; says where was looked.
    """
    finder = await open_discovery(where, stack, say, profilers_only=True)
    async with aclosing(finder.watch(lambda: False)) as changes:
        found = await anext(changes)
    if not found.targets:
        raise NoTargetError(found.waiting or "there is no worker")
    return found.targets

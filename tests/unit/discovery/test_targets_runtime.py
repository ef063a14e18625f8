"""Where runtime metrics of named workers are looked for."""

from __future__ import annotations

import asyncio

import pytest

from tpumon.discovery.finder import Fixed
from tpumon.discovery.host.runtime_ports import WithRuntime, parse_runtime_addresses
from tpumon.errors import UsageError
from tpumon.model import Target


def looked_for(*targets):
    async def first():
        return [workers async for workers in WithRuntime(Fixed(targets)).watch(lambda: False)]

    (workers,) = asyncio.run(first())
    return [target.runtime_addresses for target in workers.targets]


def test_beside_a_worker_that_has_its_host_to_itself():
    """At libtpu's usual port; IPv6 keeps its brackets; one that is known already stays."""
    assert looked_for(
        Target(worker="a", address="10.0.0.2:9999"),
        Target(worker="b", address="[fd00::2]:9999"),
        Target(worker="c", address="c:9999", runtime_addresses=("c:1",)),
    ) == [("10.0.0.2:8431",), ("[fd00::2]:8431",), ("c:1",)]


def test_not_where_a_host_has_several_workers():
    """Each would claim the first one's devices."""
    assert looked_for(Target(worker="a", address="h:1"), Target(worker="b", address="h:2")) == [(), ()]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_where_somebody_said(workers):
    """One address per worker, in their order; the others keep what is known."""
    targets = [Target(worker=name, address=f"{name}:1", runtime_addresses=("known:1",)) for name in "abc"[:workers]]

    async def first():
        discovery = WithRuntime(Fixed(targets), ("unix:/run/tpu.sock", "h:8432"))
        return [workers async for workers in discovery.watch(lambda: False)]

    (yielded,) = asyncio.run(first())
    expected = [("unix:/run/tpu.sock",), ("h:8432",), ("known:1",)]
    assert [target.runtime_addresses for target in yielded.targets] == expected[:workers]


def test_addresses_as_people_write_them():
    """The port is libtpu's unless given; a path is a whole one."""
    assert parse_runtime_addresses(["h, unix:/run/a", "i:8432"]) == ("h:8431", "unix:/run/a", "i:8432")
    assert parse_runtime_addresses(["h:8470"]) == ("h:8470",), "of a profiler that would be a TPU node's master"
    for bad in ("unix:run/a", "unix:/run/a\x1b[2J"):
        with pytest.raises(UsageError, match="whole path"):
            parse_runtime_addresses([bad])

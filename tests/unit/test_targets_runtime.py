"""Where runtime metrics of named workers are looked for."""

from __future__ import annotations

import asyncio

from tpumon.model import Target
from tpumon.targets.base import Fixed
from tpumon.targets.runtime import WithUsualRuntime


def looked_for(*targets):
    async def first():
        return [found async for found in WithUsualRuntime(Fixed(targets)).watch(lambda: False)]

    (found,) = asyncio.run(first())
    return [target.runtime_addresses for target in found.targets]


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

"""Simulated traces that overflow, and how tpumon makes them lighter."""

from __future__ import annotations

import asyncio

import pytest

from support.simulated import fleet_of
from tpumon.collection.sources import Client, SourceOptions
from tpumon.collection.sources.traces.source import TraceSource
from tpumon.errors import SourceError
from tpumon.model import Query


def results(scenario, queries):
    """Of each query: "whole", "truncated", or the reason why it failed."""

    async def main():
        async with fleet_of("v5e-8", scenario=scenario) as fleet:
            (target,) = fleet.targets
            async with Client(target.address) as client:
                source = TraceSource(client, target, SourceOptions())
                kinds = []
                for _ in range(queries):
                    try:
                        sample = await source.fetch(Query(level=2))
                    except SourceError as error:
                        kinds.append(error.reason)
                    else:
                        kinds.append("truncated" if sample.truncated else "whole")
                return kinds

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("overflow", ["truncated", "truncated", "whole", "whole"]),
        ("overflow-refused", ["truncated"] * 4),
        ("overflow-nothing", ["truncated", "truncated", "empty-trace", "truncated"]),
    ],
)
def test_traces_that_overflow(scenario, expected):
    assert results(scenario, 4) == expected

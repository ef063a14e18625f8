"""Distributions of libtpu's runtime metric service: what a histogram is made of, and what is none."""

from __future__ import annotations

import asyncio
import math

import pytest

from fakes.runtime_node import COUNTS, LATENCIES, RuntimeNode, between_slices, counter, distribution, metrics_of
from support.exporter import found, sample
from support.simulated import Clock, fleet_of
from tpumon.analysis import Analysis
from tpumon.collection.sources import Client
from tpumon.collection.sources.runtime_metrics import RuntimeMetrics
from tpumon.model import RUNTIME_COUNTS, RUNTIME_LATENCIES, Target
from tpumon_exporters.exposition import Exposition

pytestmark = pytest.mark.usefixtures("quiet")

TRANSFER, *_ = LATENCIES
SENT, *_ = COUNTS


def source(address):
    return RuntimeMetrics(Target(worker="w", address="w:1", runtime_addresses=(address,)), Client)


def reading_of(told):
    async def main(address):
        service = source(address)
        try:
            return await service.read()
        finally:
            await service.close()

    with RuntimeNode(metrics_of("v6e") | told) as node:
        return asyncio.run(main(node.address))


def transfer(*rows):
    """The distribution of transfers, and what is said."""
    reading = reading_of({TRANSFER: list(rows)})
    said = [warning.message for warning in reading.warnings]
    return reading.figures.runtime_latencies.get("dcn_transfer"), said


def test_every_distribution_and_count_is_read_under_a_name_of_ours():
    """In seconds, all sizes of buffers and all peers together."""
    figures = reading_of(between_slices()).figures

    assert set(figures.runtime_latencies) == set(RUNTIME_LATENCIES)
    for one in figures.runtime_latencies.values():
        assert one.bounds == (1e-6, 2e-6, 4e-6, 8e-6, 1.6e-5, 3.2e-5)
        assert one.counts == (0, 1, 5, 3, 0, 1, 0)
        assert one.total == pytest.approx((9 * 10.0 + 1.5) / 1e6)
    assert figures.runtime_counts == dict.fromkeys(RUNTIME_COUNTS, 3000.0)


def test_they_are_histograms_on_the_page():
    """With the bounds of the server."""
    fleet = Analysis()
    fleet.add(found("w"))
    read = reading_of(between_slices()).figures
    known = {"runtime_latencies": read.runtime_latencies, "runtime_counts": read.runtime_counts}
    fleet.add(sample(time_unix_s=0, **known))
    lines = Exposition("prometheus").render(fleet.status(1.0)).splitlines()

    assert 'tpu_runtime_megascale_dcn_transfer_seconds_bucket{worker="w",le="2e-06"} 1.0' in lines
    assert 'tpu_runtime_megascale_dcn_transfer_seconds_bucket{worker="w",le="8e-06"} 9.0' in lines
    assert 'tpu_runtime_megascale_dcn_transfer_seconds_count{worker="w"} 10.0' in lines
    assert 'tpu_runtime_megascale_tcp_sent_bytes_total{worker="w"} 3000.0' in lines
    assert "# TYPE tpu_runtime_megascale_tcp_sent_bytes_total counter" in lines


def test_of_many_buckets_neighbours_are_counted_together():
    """Bounds are left out; what is counted up to each of the others stays as it was."""
    whole = [place % 7 for place in range(150)]
    bounds = [float(place) for place in range(1, 150)]
    thin, said = transfer(distribution(whole, bounds=bounds, mean=5.0))
    upto = dict(
        zip([f"{bound / 1e6:.6g}" for bound in bounds], (sum(whole[: at + 1]) for at in range(149)), strict=True)
    )

    assert said == []
    assert 10 <= len(thin.bounds) <= 16
    assert sum(thin.counts) == sum(whole)
    assert [(bound, count) for bound, count in thin.buckets()[:-1] if upto[f"{bound:.6g}"] != count] == []


def test_of_libtpus_usual_buckets_every_other_one_is_shown():
    """Four times apart; whatever is counted, the same ones from the first with a value on, and one below."""
    usual = tuple(2.0**place / 1e6 for place in range(27))
    for counts in ([0] * 12 + [5] + [0] * 15, [0] * 12 + [5, 7] + [0] * 12 + [1, 2]):
        thin, _ = transfer(distribution(counts))
        assert thin.bounds == pytest.approx(usual[::2], rel=1e-5)
        assert next(count for _, count in thin.buckets()) == 0
        assert [bound for bound, _ in thin.buckets()] == pytest.approx([*usual[10::2], math.inf], rel=1e-5)


def test_empty_buckets_at_the_end_need_not_be_sent():
    """The rest is 0."""
    one, _ = transfer(distribution([0, 4], finite=5, mean=1.5))

    assert one.counts == (0, 4, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "row",
    [
        distribution([1, 2, 3], bounds=[2.0, 1.0]),
        distribution([1, 2, 3], bounds=[-1.0, 1.0]),
        distribution([1, 2], bounds=[float("nan")]),
        distribution([1, 2, 3, 4], bounds=[1.0, 2.0]),
        distribution([1, 2, 3], mean=float("inf")),
        distribution([1, 2, 3], mean=-1.0),
        distribution([1, (1 << 64) - 5, 3], bounds=[1.0, 2.0]),
        distribution([1, 2, 3], growth=1.0),
        distribution([1, 2, 3], growth=1e300),
        distribution([1], finite=2_000_000_000),
        distribution([], bounds=[]),
        counter(5),
    ],
)
def test_what_makes_no_histogram_is_absent_and_said(row):
    """Nothing is guessed, and nothing else is lost."""
    one, said = transfer(row)

    assert one is None
    assert said == [f"the runtime metric service reports buckets that make no histogram ({TRANSFER}): ignored"]


def test_rows_of_other_buckets_are_not_added_up():
    """They cannot be, without guessing."""
    one, said = transfer(distribution([1, 2, 3], bounds=[1.0, 2.0]), distribution([1, 2, 3], bounds=[1.0, 3.0]))

    assert one is None
    assert len(said) == 1


def test_a_count_with_an_impossible_row_is_absent():
    """Also one with a distribution for a number."""
    told = reading_of({SENT: [counter(5), counter(-1.0)], COUNTS[1]: [distribution([1, 2, 3])]})

    assert told.figures.runtime_counts == {}


def test_the_simulator_has_them_as_of_one_slice_of_several():
    """Of more than one host; they grow."""
    clock = Clock()

    async def read(topology):
        async with fleet_of(topology, clock=clock) as fleet:
            clock.now += 60
            service = source(fleet.runtime_addresses[0])
            first = await service.read()
            clock.now += 60
            readings = [first, await service.read()]
            await service.close()
        return [reading.figures for reading in readings]

    before, after = asyncio.run(read("v5e-16"))
    assert set(before.runtime_latencies) == set(RUNTIME_LATENCIES)
    assert set(before.runtime_counts) == set(RUNTIME_COUNTS)
    assert [sum(of.runtime_latencies["collective"].counts) for of in (before, after)] == pytest.approx(
        [600, 1200], abs=5
    )
    assert after.runtime_counts["tcp_sent_bytes"] == 2 * before.runtime_counts["tcp_sent_bytes"]
    assert all(figures.runtime_latencies == {} for figures in asyncio.run(read("v5e-8")))

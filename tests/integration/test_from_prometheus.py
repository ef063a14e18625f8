"""A live view of what a real Prometheus has: one tpumon per host, and one server that scrapes them all."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from functools import cache

import pytest

from fakes.run import tpumon
from support.exported import scraped
from support.prometheus import running_prometheus
from support.scenes import BEGIN_UNIX_S, Scene
from tpumon.fleet import Fleet
from tpumon.prometheus import PrometheusReader, PrometheusServer
from tpumon.prometheus.queries import COLLECTIVE, HBM_TOTAL, HBM_USED, TARGET_INFO, WORKER_INFO, Queries, name_of

pytestmark = pytest.mark.real

INTERVAL_S = 60.0
ROUNDS = 30
SLOW_FROM = 10  # round
KINDS = "collective", "matmul"
SLOW = "sim-v6e-16-w2"


@cache
def newest():
    """When the newest round was: shortly before the first test runs, not when tests are collected."""
    return time.time() // 60 * 60 - 30


def moment(number):
    return newest() - (ROUNDS - 1 - number) * INTERVAL_S


def job(scenario, *, slice_name="s", gone_from=None):
    """Rounds of samples; the last worker's exporter is gone from a round on."""
    scene = Scene(scenario, interval_s=INTERVAL_S, computed=True)
    for number in range(ROUNDS):
        samples = [
            replace(one, time_unix_s=one.time_unix_s - BEGIN_UNIX_S + moment(0) - INTERVAL_S, slice=slice_name)
            for one in scene.round(number)
        ]
        yield moment(number), samples[: -1 if gone_from is not None and number >= gone_from else None]


def labelled(namespace):
    return lambda worker: f'job="tpumon",instance="{worker}.{namespace}:10466",namespace="{namespace}"'


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    began_s = SLOW_FROM * INTERVAL_S
    slow = f"straggler@{began_s:.0f}:worker=2"
    lines = [
        *scraped(job(slow), labelled("a")),
        *scraped(job("steady", gone_from=ROUNDS - 8), labelled("b")),
        *scraped(job("steady"), lambda worker: f'job="other",instance="{worker}:10466"'),
        *(f'tpu_op_time_ratio{{kind="{kind}",worker="w",job="other"}} 0.2 {newest()}\n' for kind in KINDS),
    ]
    with running_prometheus(tmp_path_factory.mktemp("p"), [], history="".join(lines) + "# EOF\n") as server:
        yield server


def asked(prometheus, *command, selector, expect=0):
    done = tpumon(*command, "--from", prometheus.url, "--selector", selector, "--output", "json").ended(expect)
    return json.loads(done.out)


def test_the_straggler_of_workers_with_exporters_of_their_own(prometheus):
    """No exporter can compare its worker; the reader does, and asks Prometheus since when."""
    answer = asked(prometheus, "why", selector='{namespace="a"}')
    found = answer["findings"][0]
    assert (answer["verdict"], found["workers"], found["slice"]) == ("straggler", [SLOW], "s")
    assert abs(found["since_unix_s"] - moment(SLOW_FROM)) < 3 * INTERVAL_S
    assert answer["workers"] == 4


def test_namespaces_with_equal_names(prometheus):
    """Each worker has a name of its own, and is compared with its own slice only."""
    page = asked(prometheus, "once", selector='{job="tpumon"}')
    workers = {one["worker"]: one for one in page["workers"]}
    assert set(workers) == {f"a/sim-v6e-16-w{n}" for n in range(4)} | {f"b/sim-v6e-16-w{n}" for n in range(3)}
    assert {one["slice"] for one in page["workers"]} == {"a/s", "b/s"}
    marked = {name for name, one in workers.items() if one["severity"] != "ok"}
    assert marked == {f"a/{SLOW}"}


def test_a_figure_is_what_the_exporter_measured(prometheus):
    page = asked(prometheus, "once", selector='{namespace="b"}')
    values = prometheus.values('tpu_idle_ratio{namespace="b"}')
    assert {one["worker"]: one["idle_ratio"] for one in page["workers"]} == pytest.approx(values)
    assert {one["source"] for one in page["workers"]} == {"trace"}


@pytest.mark.parametrize("by", [("worker",), ("worker", "namespace")])
def test_several_names_at_once_find_the_same(prometheus, by):
    """A server that takes only exact names tells no less."""
    expressions = [Queries("{}", by, exactly=exactly) for exactly in (False, True)]
    assert {row["metric"]["__name__"] for row in prometheus.query(expressions[0].names)} == {TARGET_INFO, WORKER_INFO}

    labels = *by, "device"

    def found(expression):
        return sorted(
            (
                name_of(row["metric"]),
                [row["metric"].get(label, "") for label in labels],
                float(row["value"][1]),
            )
            for row in prometheus.query(expression)
        )

    numbers, exact = (found(each.numbers) for each in expressions)
    assert numbers == exact
    assert [name for name, *_ in numbers].count(COLLECTIVE) == 1
    devices, exact = (found(each.devices(sizes=True)) for each in expressions)
    assert devices == exact
    assert {name for name, *_ in devices} == {HBM_USED, HBM_TOTAL}
    compared, exact = (found(each.compared) for each in expressions)
    assert compared == exact != []


def test_a_selector_that_matches_nothing(prometheus):
    done = tpumon("once", "--from", prometheus.url, "--selector", '{job="nobody"}').ended(3)
    assert 'no series tpumon_target_info{job="nobody"}; check --selector' in done.err


def test_graphs_begin_with_what_prometheus_has(prometheus):
    """The first picture's graphs show when the slow worker became slow, before the view was there."""
    fleet = Fleet(remember=True)
    reader = PrometheusReader(PrometheusServer(prometheus.url), '{namespace="a"}')
    asyncio.run(reader._refresh(fleet.take))
    end_unix_s = time.time()
    begin_unix_s = end_unix_s - 3600
    points = fleet.histories.get(SLOW).tiers.series("step", begin_unix_s, end_unix_s)
    before = [one.median for one in points if one.start_unix_s < moment(SLOW_FROM) - 1]
    since = [one.median for one in points if one.start_unix_s > moment(SLOW_FROM) + 2 * INTERVAL_S]
    assert min(len(before), len(since)) >= 8
    assert min(since) > max(before)  # all wait for it
    values = [
        float(value)
        for row in prometheus.query_range(
            'avg(tpu_idle_ratio{namespace="a"})', begin_unix_s, end_unix_s - INTERVAL_S, INTERVAL_S
        )
        for _, value in row["values"]
    ]
    average = [one.median for one in fleet.average.series("idle", begin_unix_s, end_unix_s - INTERVAL_S)]
    assert (min(average), max(average)) == pytest.approx((min(values), max(values)), rel=1e-3)
    assert points[0].start_unix_s == pytest.approx(moment(0), abs=2 * INTERVAL_S)

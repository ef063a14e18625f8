"""Every query of every dashboard on a real Prometheus: 1, 16 and 1,000 workers, equal names, all paused, nobody.

Made-up workers with all figures and some findings, in a history that Prometheus is started with: pages of the exporter
of three moments. What a dashboard fetches at 1,000 workers is counted.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict

import pytest
from msgspec.structs import replace

from grafana.preview import interpolated
from support.dashboards import DASHBOARDS, panels, targets
from support.made_up import healthy
from support.prometheus import running_prometheus
from support.samples import failed_sample
from tpumon.analysis import Analysis
from tpumon.model import Cause, Target, Workers
from tpumon_exporters.exposition import Exposition

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.usefixtures("quiet")]

SCRAPE_S = 15
MOMENTS = 3
RANGE_S = SCRAPE_S * MOMENTS
NOW = time.time() // 60 * 60 - 600
FINDINGS = ("straggler", "input-bound", "hang", "compute-bound")
SEVERITIES = ("info", "warning", "critical")

MOST_OF_A_PANEL = 2_000
MOST_OF_A_DASHBOARD = {"tpumon-fleet": 2_900, "tpumon-worker": 2_000, "tpumon-steps": 400, "tpumon-servers": 150}
"""Series at 1,000 workers, all selected."""

ALSO_WHILE_PAUSED = {
    *("tpumon-fleet: Workers: A", "tpumon-fleet: Workers: B", "tpumon-fleet: Workers: C", "tpumon-fleet: Workers: D"),
    *("tpumon-fleet: Workers, down first: A", "tpumon-fleet: Workers by state: D", "tpumon-fleet: Exporters: A"),
    *("tpumon-fleet: Findings: A", "tpumon-fleet: Workers, down first: B", "tpumon-worker: Findings: A"),
    *("tpumon-fleet: Workers with current figures: A", "tpumon-worker: State: A", "tpumon-worker: Interval: A"),
}

every_target = pytest.mark.parametrize("target", targets(), ids=str)


def causes_of(worker):
    """What is wrong with a worker: a quarter of them has each finding, of each severity."""
    return tuple(
        Cause(words="", finding=finding, severity=SEVERITIES[number % 3], since_unix_s=NOW - 60)
        for number, finding in enumerate(FINDINGS, int(worker[1:]))
        if number % 4 == 0
    )


def judged(worker):
    """The worker with its made-up findings."""
    return replace(worker, judged=FINDINGS, verdict=replace(worker.verdict, causes=causes_of(worker.name)))


def page(followed, moment_s, labels, tpu_job):
    """The exporter's page with a scrape's labels, and with alerts and what Prometheus adds; and its time."""
    status = followed.status(moment_s)
    status = replace(status, workers={name: judged(worker) for name, worker in status.workers.items()})
    text = Exposition("prometheus").render(status)
    text += 'up{} 1\nscrape_duration_seconds{} 0.1\ntpumon_discovery_up{finder="dns"} 1\n'
    alert = f'alertname="TpuHang",severity="critical",tpu_job="{tpu_job}",tpu_slice="s0"'
    text += f'ALERTS{{{alert},alertstate="firing"}} 1\nALERTS_FOR_STATE{{{alert}}} {NOW}\n'
    for name, inside, value in re.findall(r"^([\w:]+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE):
        yield f"{name}{{{','.join(filter(None, (inside, labels)))}}} {value} {moment_s:.3f}\n"


def history_of(tpu_job, samples_at, *, instance="e:1", more=""):
    labels = f'job="{tpu_job}",instance="{instance}"{more}'
    followed = Analysis()
    for moment in range(MOMENTS):
        moment_s = NOW - (MOMENTS - 1 - moment) * SCRAPE_S
        samples = samples_at(moment_s)
        targets = (Target(worker=s.worker, address=s.address, job=tpu_job, slice=s.slice) for s in samples)
        followed.add(Workers(targets=tuple(targets)))
        for sample in samples:
            followed.add(sample)
        yield from page(followed, moment_s, labels, tpu_job)


def fleet(count):
    """Only some have figures of the network between slices: they are many, and summed up in all queries."""

    def samples_at(moment_s):
        made = [healthy(number, moment_s) for number in range(count)]
        return [truncated(made[0]), *made[1:16], *map(within_its_slice, made[16:])]

    return samples_at


def truncated(sample):
    return replace(sample, truncated="a core without ops")


def within_its_slice(sample):
    return replace(sample, figures=replace(sample.figures, runtime_latencies={}, runtime_counts={}))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Prometheus with one history for all."""

    def paused(moment_s):
        return [failed_sample(f"w{number}", "paused", time_unix_s=moment_s, interval_s=10) for number in range(16)]

    lines = [
        *history_of("one", fleet(1)),
        *history_of("sixteen", fleet(16)),
        *history_of("thousand", fleet(1000)),
        *history_of("twins", fleet(4), more=',cluster="x",namespace="n"'),
        *history_of("twins", fleet(4), more=',cluster="y",namespace="n"'),
        *history_of("paused", paused),
        *(f'up{{job="node",instance="n:9100"}} 1 {NOW - SCRAPE_S * moment:.3f}\n' for moment in range(MOMENTS)),
    ]
    directory = tmp_path_factory.mktemp("prometheus")
    with running_prometheus(directory, [], history="".join(lines) + "# EOF\n") as prometheus:
        yield prometheus


def asked(server, target, job, **chosen):
    step_s = 300 if target.panel.get("interval") == "5m" else SCRAPE_S
    expr = interpolated(target.expr, job=job, step_s=step_s, scrape_s=SCRAPE_S, range_s=RANGE_S, **chosen)
    if target.query["instant"]:
        return server.api("query", query=expr, time=f"{NOW:.3f}")["result"]
    return server.query_range(expr, NOW - RANGE_S, NOW, SCRAPE_S)


@pytest.mark.parametrize("job", ["one", "sixteen", "thousand"])
@every_target
def test_a_query_has_data_and_few_series(server, target, job):
    """Whatever there is of it; at most 2,000 series a panel, whichever workers are selected."""
    rows = asked(server, target, job)

    assert rows
    assert len(rows) * len(target.panel["targets"]) <= MOST_OF_A_PANEL


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_fetches_few_series(server, name):
    """At 1,000 workers; the panels together."""
    fetched = defaultdict(int)
    for target in targets():
        if target.dashboard == name:
            fetched[target.panel["title"]] += len(asked(server, target, "thousand"))

    assert max(fetched.values()) <= MOST_OF_A_PANEL
    assert sum(fetched.values()) <= MOST_OF_A_DASHBOARD[name], dict(fetched)


@every_target
def test_while_all_are_paused_the_dashboards_say_so(server, target):
    """Who is watched and that they are paused is there; figures are absent, and no query is an error."""
    rows = asked(server, target, "paused")

    if str(target) in ALSO_WHILE_PAUSED:
        assert rows


def test_paused_workers_keep_their_rows(server):
    """In the table of workers, as paused; none is down."""
    (state,) = (target for target in targets() if str(target) == "tpumon-fleet: Workers, down first: A")
    assert {row["metric"]["worker"]: row["value"][1] for row in asked(server, state, "paused")} == {
        f"w{number}": "3" for number in range(16)
    }
    numbers = [asked(server, target, "paused")[0]["value"][1] for target in targets()
               if target.panel["title"] == "Workers" and target.dashboard == "tpumon-fleet"]  # fmt: skip
    assert numbers == ["0", "0", "0", "16"]


@every_target
def test_where_nobody_is_no_query_is_an_error(server, target):
    """Nor is there any series, but of exporters, which are of no job."""
    assert asked(server, target, "nobody") == [] or target.panel["title"] == "Exporters"


def test_equal_names_in_two_clusters_are_two_rows(server):
    """In all columns of the table."""
    columns = [target for target in targets() if target.panel["title"].startswith("Workers, ")]
    for column in columns:
        keys = {(row["metric"]["cluster"], row["metric"]["worker"]) for row in asked(server, column, "twins")}
        assert len(keys) == 8, column.query["refId"]


def test_a_finding_has_its_severity_and_since(server):
    """In the table, the worst first; what is absent has no row."""
    severity, since = (target for target in targets() if str(target).startswith("tpumon-fleet: Findings"))
    rows = asked(server, severity, "sixteen")
    found = {(f"w{place}", cause.finding): SEVERITIES.index(cause.severity) + 1 for place in range(16)
             for cause in causes_of(f"w{place}")}  # fmt: skip

    assert {(row["metric"]["worker"], row["metric"]["finding"]): int(row["value"][1]) for row in rows} == found
    assert [row["value"][1] for row in rows] == sorted((row["value"][1] for row in rows), reverse=True)
    assert {float(row["value"][1]) for row in asked(server, since, "sixteen")} == {1000 * (NOW - 60)}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_table_s_queries_join(server, name):
    """All queries of a table have the same labels: that is what rows are joined by; its columns are among them."""
    for panel in panels(DASHBOARDS[name]):
        if panel["type"] != "table":
            continue
        found = [asked(server, target, "twins") for target in targets() if target.panel is panel]
        columns = {column for column in panel["transformations"][1]["options"]["indexByName"] if column.islower()}
        labels = [{label for row in rows for label in row["metric"]} for rows in found]
        if panel["title"] == "Alerts":
            columns -= {"worker"}  # the one here is of a slice
        assert all(columns <= of_query for of_query in labels), panel["title"]
        assert len({frozenset(of_query) for of_query in labels}) == 1, panel["title"]


def test_exporters_are_those_of_tpumon(server):
    """Not every target of the Prometheus server, though all jobs are selected."""
    columns = [target for target in targets() if target.panel["title"] == "Exporters"]
    for column in columns:
        jobs = {row["metric"]["job"] for row in asked(server, column, ".*")}
        assert jobs == {"one", "sixteen", "thousand", "twins", "paused"}, column.query["refId"]


def test_tables_of_many_workers_begin_with_the_worst(server):
    """150 rows, the same ones in each column."""
    columns = [target for target in targets() if target.panel["title"].startswith("Workers, ")]
    rows = [{row["metric"]["worker"] for row in asked(server, column, "thousand")} for column in columns]

    assert {len(workers) for workers in rows} == {150}
    assert len({frozenset(workers) for workers in rows}) == 1


def test_the_variable_for_slices_selects(server):
    """Only workers of that slice, in a query of each kind."""
    kinds = ("Workers, down first: A", "Highest infeed wait", "Failed queries", "Findings: A", "HBM usage, by device")
    for target in targets():
        if any(kind in str(target) for kind in kinds):
            text = target.expr.replace('tpu_slice=~"$tpu_slice"', 'tpu_slice=~"s1"')
            expr = interpolated(text, job="sixteen", step_s=15, scrape_s=SCRAPE_S, range_s=RANGE_S)
            rows = server.api("query", query=expr, time=f"{NOW:.3f}")["result"]
            workers = {row["metric"].get("worker", "w1") for row in rows}
            assert workers, str(target)
            assert all(int(worker[1:]) % 2 for worker in workers), str(target)


@pytest.mark.parametrize("name", DASHBOARDS)
@pytest.mark.parametrize("job", ["sixteen", "paused"])
def test_variables_offer_what_there_is(server, name, job):
    """Also while all workers are paused."""
    offered = {}
    for variable in DASHBOARDS[name]["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]).groups()
        match = interpolated(metric, job=job, step_s=1, scrape_s=SCRAPE_S, range_s=RANGE_S)
        offered[variable["name"]] = server.label_values(label, match)

    assert set(offered["worker"]) == {f"w{number}" for number in range(16)}
    assert job in offered["tpu_job"]
    assert [one for one in offered["tpu_slice"] if one] == (["s0", "s1"] if job == "sixteen" else [])


def test_annotations_are_queries(server):
    """Alerts, and when a job's runtime started."""
    for name, dashboard in DASHBOARDS.items():
        for annotation in dashboard["annotations"]["list"]:
            expr = interpolated(annotation["expr"], job="sixteen", step_s=60, scrape_s=SCRAPE_S, range_s=RANGE_S)
            rows = server.query_range(expr, NOW - 60, NOW, 60)
            assert bool(rows) is (annotation["name"] == "Alerts"), (name, annotation["name"])
    assert all(panels(dashboard) for dashboard in DASHBOARDS.values())

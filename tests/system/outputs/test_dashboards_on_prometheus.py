"""Every query of every dashboard, every variable and every rule on a real Prometheus that scrapes real exporters.

Three jobs: `one`, a simulated TPU of one worker; `sixteen`, one of sixteen; `tpumon-trouble`, forty made-up
workers with everything that a simulated one does not have, and an exporter that does not answer.
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from xml.etree import ElementTree as ET

import pytest

from fakes.run import Tpumon
from grafana.preview import Source, drawing, interpolated
from support import free_port, wait_until
from support.dashboards import (
    DASHBOARDS,
    RECORDED,
    RULE_FILES,
    panels,
    rules,
    targets,
)
from support.made_up import healthy
from support.prometheus import running_prometheus
from support.samples import failed_sample
from support.wired import Wired
from tpumon.model import Target, Workers
from tpumon_exporters.prometheus import open_prometheus

pytestmark = pytest.mark.real

SCRAPE_S = 0.5
RANGE_S = 30
MOST_LINES = 32
WORKERS = 40
TROUBLE = "tpumon-trouble"

ONLY_WITH_TROUBLE = {
    "tpumon-fleet: Alerts: A",
    "tpumon-worker: Queued programs, by device: A",
    "tpumon-worker: Runtime errors: A",
    "tpumon-worker: Runtime errors: B",
    "tpumon-steps: Time by kind of op: B",
}
"""Queries that have no result while all is well, or that ask for what the simulator's runtime does not offer."""

NOT_HERE = ("Findings", "Workers, down first: B", "Exporters: D", "Truncated samples", "Packets sent again")
"""What no exporter here has, or what must move for: see test_dashboards_at_scale.py."""


def is_expected(target, job):
    if any(name in str(target) for name in NOT_HERE):
        return False
    if re.search("tpu_(?:busy|program|server)_", target.expr):
        return job == TROUBLE  # the others train
    if re.search("megascale_(?!error)", target.expr):
        return job == "sixteen"  # of several hosts
    return job == TROUBLE or str(target) not in ONLY_WITH_TROUBLE


every_target = pytest.mark.parametrize("target", targets(), ids=str)


def failed(worker, reason, now):
    return failed_sample(worker, reason, time_unix_s=now)


def trouble(now):
    return [
        *(healthy(number, now) for number in range(WORKERS)),
        *(failed(worker, reason, now) for worker, reason in
          (("dead", "unavailable"), ("busy", "busy"), ("paused", "paused"))),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Prometheus, once it has seen enough of all three to make rates of."""
    with ExitStack() as stack:
        ports = {"one": free_port(), "sixteen": free_port()}
        for port, topology in zip(ports.values(), ("v6e-4", "v5e-64"), strict=True):
            serve = stack.enter_context(Tpumon("serve", "--simulate", topology, "--listen", f"127.0.0.1:{port}"))
            serve.wait_for(lambda serve=serve: "listening" in serve.err, timeout_s=30)
        output = Wired(lambda context: open_prometheus("127.0.0.1:0", context))
        stack.callback(output.close)
        samples = trouble(time.time())
        targets = (Target(worker=told.worker, address=told.address, slice=told.slice) for told in samples)
        output.add(Workers(targets=tuple(targets)), *samples)
        addresses = {job: [f"127.0.0.1:{port}"] for job, port in ports.items()}
        addresses[TROUBLE] = [output.address, f"127.0.0.1:{free_port()}"]
        jobs = [  # simulated workers have no job
            {
                "job_name": job,
                "static_configs": [{"targets": found}],
                "metric_relabel_configs": [{"source_labels": ["job"], "target_label": "tpu_job"}],
            }
            for job, found in addresses.items()
        ]
        directory = tmp_path_factory.mktemp("prometheus")
        files = [directory / path.name for path in RULE_FILES]
        for path, file in zip(RULE_FILES, files, strict=True):  # evaluated each second
            file.write_text(re.sub(r"^    interval: .*\n", "", path.read_text(), flags=re.MULTILINE))
        prometheus = stack.enter_context(running_prometheus(directory, jobs, rule_files=files, interval_s=SCRAPE_S))
        for job in ("one", "sixteen"):
            prometheus.wait_for(f'rate(tpu_step_duration_seconds_count{{job="{job}"}}[5s]) > 0', timeout_s=60)
        yield prometheus


def asked(server, target, job):
    """The rows that a panel gets, as Grafana asks; polled, because a simulated worker may be late with a sample."""
    step_s = 300 if target.panel.get("interval") == "5m" else 1
    expr = interpolated(target.expr, job=job, step_s=step_s, scrape_s=SCRAPE_S, range_s=RANGE_S)

    def rows():
        if target.query["instant"]:
            return server.query(expr)
        now = time.time()
        return server.query_range(expr, now - max(RANGE_S, step_s), now, step_s)

    return wait_until(rows, 15, f"{expr}: no result")


@pytest.mark.parametrize("job", ["one", "sixteen", TROUBLE])
@every_target
def test_a_panel_has_data(server, target, job):
    """For one worker, for sixteen, for forty; and the labels that its legend or table shows are there."""
    if not is_expected(target, job):
        return
    rows = asked(server, target, job)
    for label in re.findall(r"\{\{(\w+)\}\}", target.query["legendFormat"]):
        assert all(label in row["metric"] for row in rows), label
    if target.query["format"] == "heatmap":
        assert target.query["legendFormat"] == "{{le}}"
    elif target.panel["type"] not in {"heatmap", "table"}:
        assert len(rows) <= MOST_LINES


@pytest.mark.parametrize("name", DASHBOARDS)
def test_variables_offer_what_there_is(server, name):
    """Jobs, and the workers of the chosen ones, dead and paused ones too."""
    offered = {}
    for variable in DASHBOARDS[name]["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]).groups()
        match = interpolated(metric, job=f"one|{TROUBLE}", step_s=1, scrape_s=SCRAPE_S, range_s=RANGE_S)
        offered[variable["name"]] = server.label_values(label, match)

    assert offered["tpu_job"] == ["one", "sixteen", TROUBLE]
    others = {"dead", "busy", "paused"}
    assert set(offered["worker"]) == {"sim-v6e-4-w0", *others, *(f"w{number}" for number in range(WORKERS))}
    assert {"s0", "s1"} <= set(offered["tpu_slice"])


def test_what_is_gone_is_seen_as_gone(server):
    """A dead worker keeps its row, as down, and has no figures; busy and paused ones are told apart from it."""
    columns = {target.query["refId"]: target for target in targets() if target.panel["title"].startswith("Workers, ")}
    state, mxu = (
        {row["metric"]["worker"]: float(row["value"][1]) for row in asked(server, columns[column], TROUBLE)}
        for column in ("A", "D")
    )

    assert {worker: state[worker] for worker in ("dead", "busy", "paused", "w0")} == {
        "dead": 0, "busy": 2, "paused": 3, "w0": 1,
    }  # fmt: skip
    assert set(mxu) == {f"w{number}" for number in range(WORKERS)}


def test_every_rule_is_evaluated(server):
    """Of all three files, without an error."""
    wait_until(lambda: all(rule["health"] != "unknown" for rule in server.rules()), 60, "rules evaluated")

    assert len(server.rules()) == len(rules())
    assert [(rule["name"], rule.get("lastError")) for rule in server.rules() if rule["health"] != "ok"] == []


NOT_RECORDED = {
    "exporter:tpumon_target_info:down",
    "exporter:up:down",
    "job:up:down",
    "slice:tpumon_target_slice_workers:max",
    "slice:up:down",
    "worker:tpumon_target_up:lost",
}
"""No tpumon or worker that has answered is down, and nothing tells how many workers a slice is to have."""


@pytest.mark.parametrize("name", sorted(name for name in RECORDED - NOT_RECORDED if "finding" not in name))
@pytest.mark.parametrize("job", ["one", "sixteen", TROUBLE])
def test_recorded_series_are_there(server, name, job):
    """Each rule has data for each fleet; those of findings are in test_alerts.py."""
    assert server.wait_for(name if name.startswith("cluster:") else f'{name}{{tpu_job="{job}"}}')


def test_what_is_wrong_becomes_pending(server):
    """The dead exporter and the runtime's error. What is to last for minutes needs a history: see test_alerts.py."""
    expected = {("TpumonExporterDown", None), ("TpuRuntimeError", None)}

    def found():
        rows = server.query(f'ALERTS{{job="{TROUBLE}"}} or ALERTS{{tpu_job="{TROUBLE}"}}')
        return {(row["metric"]["alertname"], row["metric"].get("worker")) for row in rows}

    wait_until(lambda: found() == expected, 60, lambda: f"expected {expected}, found {found()}")


def test_gke_s_names_are_gke_s_numbers(server):
    """Percent, and the label by which GKE tells devices apart."""
    (row,) = server.wait_for(f'duty_cycle{{job="{TROUBLE}", worker="w3", device="1"}}')

    assert float(row["value"][1]) == 90
    assert row["metric"]["accelerator_id"] == "w3-1"
    assert row["metric"]["make"] == "cloud-tpu"


def test_the_preview_draws_every_panel(server):
    """Of each dashboard an SVG that is well-formed and says what it is not."""
    now = time.time()
    source = Source(url=server.url, job=TROUBLE, scrape_s=SCRAPE_S, start_s=now - RANGE_S, end_s=now)
    for dashboard in DASHBOARDS.values():
        svg = drawing(dashboard, source)
        words = [element.text for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
        assert "Not a picture of Grafana." in words[0]
        assert {panel["title"] for panel in panels(dashboard)} <= set(words)

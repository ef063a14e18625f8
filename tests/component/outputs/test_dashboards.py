"""The dashboards: as generated, by the rules of Grafana's dashboard-linter, with names that exist."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from typing import Any, get_args

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard as GrafanaDashboard

from grafana import worker_dashboard
from grafana.alerting import kubernetes_rules
from grafana.config import RUNBOOKS, Config
from grafana.generate import dashboards
from support import REPOSITORY
from support.dashboards import DASHBOARDS, EXPOSED, GRAFANA, OF_PROMETHEUS, panels, selectors, targets
from tpumon.model.figure_spec import FigureSpec, Unit
from tpumon.outputs.metrics import EXPORTER_METRICS, HISTOGRAMS, METRICS, SAMPLE_METRICS

LINTED_UNITS = {"percentunit", "s", "bytes", "Bps", "short", "none", "ops"}
"""Of the units that the linter knows, those that we use."""

HAS_UNITS = {"stat", "table", "timeseries", "gauge"}
"""Panels whose unit the linter asks for."""

CLUSTERS = 'cluster=~"$cluster"'
JOBS = f'{CLUSTERS},tpu_job=~"$tpu_job",tpu_slice=~"$tpu_slice"'

every_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS)
every_target = pytest.mark.parametrize("target", targets(), ids=str)


def excluded():
    """The exceptions that grafana/dashboards/.lint names."""
    return yaml.safe_load((GRAFANA / "dashboards" / ".lint").read_text())["exclusions"]


def variables(dashboard):
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


def test_the_dashboards_are_as_generated():
    """Nobody edits the JSON: `python -m grafana.generate` makes it."""
    files = {path.name: path.read_text() for path in (GRAFANA / "dashboards").glob("*.json")}

    assert files == dashboards(Config()), "run: python -m grafana.generate"


@pytest.mark.parametrize("unit", get_args(Unit))
def test_a_figure_of_any_unit_has_a_panel(unit, monkeypatch):
    names: dict[str, Any] = {"key": "new", "fields": ("new",), "label": "New", "about": "New.", "metric": "tpu_new"}
    row = FigureSpec(**names, origin="device", unit=unit, value=lambda _: 0.5)
    monkeypatch.setattr(worker_dashboard, "FIGURES", (row,))

    panels = [panel for part in worker_dashboard.dashboard(Config()).rows for panel in part.panels]

    assert "New" in [panel.title for panel in panels]


def test_the_manifests_have_the_rules_as_generated():
    """deploy/kubernetes, and by a link the chart."""
    made = kubernetes_rules(Config())["prometheusrule.yaml"]

    for path in ("kubernetes/prometheusrule.yaml", "helm/tpumon/prometheusrule.yaml"):
        assert (REPOSITORY / "deploy" / path).read_text() == made, "run: python -m grafana.generate"


def test_the_generator_puts_another_base_for_runbooks_everywhere(tmp_path):
    """`--runbooks URL --out DIR`: dashboards and rules with that URL for the placeholder, else the same."""
    base = "https://git.example.org/tpumon/runbooks"
    command = [sys.executable, "-m", "grafana.generate", "--runbooks", f"{base}/", "--out", tmp_path]
    subprocess.run(command, check=True, cwd=REPOSITORY, timeout=60)

    written = {
        str(path.relative_to(tmp_path)): path.read_text()
        for folder in ("dashboards", "prometheus")
        for path in (tmp_path / folder).iterdir()
    }
    kept = [*(GRAFANA / "dashboards").glob("*.json"), *(GRAFANA / "prometheus").glob("*.rules.yml")]
    for link in [json.loads(written[name])["links"][1] for name in written if name.endswith(".json")]:
        assert link["url"] == base
    rules = [path for path in kept if path.suffix == ".yml"]
    assert {str(path.relative_to(GRAFANA)): path.read_text().replace(RUNBOOKS, base) for path in rules} == {
        name: text for name, text in written.items() if name.endswith(".yml")
    }
    assert f"{base}/TpuWorkerDown.md" in written["prometheus/alerts.rules.yml"]
    assert f'"{base}"' in written["dashboards/tpumon-fleet.json"]
    assert f"{base}/TpuWorkerDown.md" in (tmp_path / "kubernetes" / "prometheusrule.yaml").read_text()
    boards = {
        name: text
        for path in (tmp_path / "kubernetes").glob("tpumon-dashboard-*.yaml")
        for name, text in yaml.safe_load(path.read_text())["data"].items()
    }
    assert boards == {path.name: path.read_text() for path in (tmp_path / "dashboards").iterdir()}


def test_the_generator_does_not_change_what_is_checked_in():
    """`--runbooks` alone is refused: the files in the repository keep the placeholder."""
    done = subprocess.run(
        [sys.executable, "-m", "grafana.generate", "--runbooks", "https://x.example"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.returncode == 2
    assert "--out" in done.stderr
    assert "Traceback" not in done.stderr


@every_dashboard
def test_a_dashboard_is_what_it_says(dashboard):
    """Fixed uid, not editable, of a known schema, in the browser's time zone, refreshed each 30 s, tagged."""
    assert re.fullmatch(r"tpumon-[a-z]+", dashboard["uid"])
    assert DASHBOARDS[dashboard["uid"]] is dashboard
    assert dashboard["id"] is None
    assert dashboard["editable"] is False  # uneditable-dashboard
    assert 39 <= dashboard["schemaVersion"] <= 41
    assert dashboard["timezone"] == "browser"
    assert dashboard["refresh"] == "30s"
    assert "tpumon" in dashboard["tags"]


@every_dashboard
def test_the_variables_are_as_the_linter_wants_them(dashboard):
    """Data source, TPU job, Worker: reloaded when the time range changes, several or all to be chosen."""
    found = variables(dashboard)

    labels = {"cluster": "Cluster", "tpu_job": "TPU job", "tpu_slice": "TPU slice", "worker": "Worker"}
    assert list(found) == ["datasource", *labels]
    source = found["datasource"]  # template-datasource-rule
    assert (source["type"], source["query"], source["label"]) == ("datasource", "prometheus", "Data source")
    for name, label in labels.items():
        variable = found[name]
        assert variable["type"] == "query"
        assert variable["label"] == label
        assert variable["datasource"]["uid"] == "${datasource}"
        assert variable["multi"]
        if name == "worker" and dashboard["uid"] == "tpumon-worker":
            # Opens on the first one: with All among the values, that would be the first.
            assert (variable["includeAll"], variable["current"]) == (False, {})
        else:
            assert variable["includeAll"]
            assert variable["current"]["value"] == ["$__all"]
            assert variable["allValue"] == (".+" if name == "worker" else ".*")  # who has no such label is empty
        assert variable["refresh"] == 2  # template-on-time-change-reload-rule
        # template-label-promql-rule
        assert re.fullmatch(r"label_values\([a-z_]+(\{[^}]+\})?, [a-z_]+\)", variable["query"])
        assert variable["definition"] == variable["query"]


@every_dashboard
def test_alerts_and_restarts_are_drawn_into_every_graph(dashboard):
    """Firing alerts of ours, of the chosen jobs, and starts of a job's runtime are annotations."""
    alerts, restarts = dashboard["annotations"]["list"]

    for one in (alerts, restarts):
        assert one["enable"]
        assert one["datasource"]["uid"] == "${datasource}"
    assert f'tpu_runtime_uptime_seconds{{{JOBS},worker=~"$worker"}} < 60' in restarts["expr"]
    assert alerts["expr"] == 'ALERTS{alertname=~"Tpu.*|Tpumon.*",alertstate="firing",' + JOBS + "}"


@every_dashboard
def test_links_lead_to_the_other_dashboards(dashboard):
    """With time range and variables; a link from a cell names a dashboard that exists."""
    others, *runbooks = dashboard["links"]
    assert [link["url"] for link in runbooks] == ([RUNBOOKS] if "://" in RUNBOOKS else [])

    assert others["type"] == "dashboards"
    assert others["tags"] == ["tpumon"]
    assert others["keepTime"]
    assert others["includeVars"]
    assert set(re.findall(r'"/d/([a-z-]+)', json.dumps(dashboard))) <= set(DASHBOARDS)


def test_a_worker_s_name_leads_to_that_worker():
    """A link to it on the worker dashboard, time kept, with the job and slice of its row; a job's to that job alone."""
    job, worker = sorted({json.loads(f'"{url}"') for url in
                          re.findall(r'"(/d/(?:[^"\\]|\\.)+)"', json.dumps(DASHBOARDS["tpumon-fleet"]))})  # fmt: skip

    assert job.startswith("/d/tpumon-fleet?")
    assert "var-tpu_job=${__value.text:percentencode}" in job
    assert worker.startswith("/d/tpumon-worker?")
    for part in (
        "${datasource:queryparam}",
        "${cluster:queryparam}",
        'var-tpu_job=${__data.fields["TPU job"]:percentencode}',
        'var-tpu_slice=${__data.fields["TPU slice"]:percentencode}',
        "var-worker=${__value.text",
        "${__url_time_range}",
    ):
        assert part in worker
    columns = {panel["title"]: panel["transformations"][1]["options"]["renameByName"]
               for panel in panels(DASHBOARDS["tpumon-fleet"]) if "var-worker" in json.dumps(panel)}  # fmt: skip
    assert columns.keys() == {"Findings", "Workers, down first"}
    assert all({"TPU job", "TPU slice"} <= set(names.values()) for names in columns.values())


@every_dashboard
def test_panels_say_what_they_show(dashboard):
    """Title, description, data source and queries everywhere; ids and titles unique; nothing overlaps."""
    found = panels(dashboard)
    taken = set()
    for panel in found:
        assert panel["title"]  # panel-title-description-rule
        assert len(panel["description"]) > 40, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]  # panel-no-targets-rule
        for part in (panel, *panel["targets"]):  # panel-datasource-rule
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert len({panel["title"] for panel in found}) == len(found)


@every_dashboard
def test_panels_have_units(dashboard):
    """Ratios are drawn from 0 to 1 as percent; what is absent says n/a and is no 0."""
    for panel in panels(dashboard):
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] in HAS_UNITS:  # panel-units-rule
            assert defaults["unit"] in LINTED_UNITS, panel["title"]
        if defaults["unit"] == "percentunit" and panel["type"] != "table":
            assert defaults["min"] == 0, panel["title"]
            # Where a few percent matter, to 20 %, or as far as they go.
            assert defaults.get("max") == 1 or defaults["custom"]["axisSoftMax"] == 0.2, panel["title"]
        assert defaults["noValue"] == "n/a"
        assert not defaults["custom"].get("spanNulls"), panel["title"]


@every_target
def test_one_number_is_of_this_moment(target):
    """A panel that shows one value asks for it now: of a range it would show the last value of what is long gone."""
    instant = target.panel["type"] in {"stat", "bargauge", "table"}

    assert target.query["instant"] is instant
    assert target.query["range"] is not instant


@every_target
def test_a_query_asks_for_metrics_that_exist(target):
    """Every name is one that the exporter shows, or Prometheus itself; none is recorded."""
    names = {name for name, _ in selectors(target.expr)}

    assert names
    assert names <= EXPOSED | OF_PROMETHEUS


@every_target
def test_a_query_asks_for_the_chosen_job_and_worker(target):
    """Where the linter has `job` and `instance`; but for what is not of a worker."""
    of_no_worker = OF_PROMETHEUS | {metric.name for metric in EXPORTER_METRICS}
    for name, matchers in selectors(target.expr):
        assert (CLUSTERS if name in of_no_worker else f'{JOBS},worker=~"$worker"') in matchers, name


@every_target
def test_counters_are_shown_as_rates(target):
    """target-counter-agg-rule and target-rate-interval-rule: rate or increase, over $__rate_interval."""
    counters = {metric.name for metric in METRICS if metric.kind == "counter"} | {"tpu_step_duration_seconds_bucket"}
    for name, _ in selectors(target.expr):
        if name in counters:
            assert re.search(rf"(rate|increase)\({name}\{{[^}}]*\}}\[\$__rate_interval\]\)", target.expr), target.expr
    ranges = set(re.findall(r"\b(?:rate|irate|increase)\([^\[]*\[([^\]]*)\]", target.expr))
    assert ranges <= {"$__rate_interval"} or target.panel["title"] in rate_interval_exceptions()


def rate_interval_exceptions():
    return {entry["panel"] for entry in excluded()["target-rate-interval-rule"]["entries"]}


def test_exceptions_from_the_linter_are_named_and_needed():
    """grafana/dashboards/.lint: rules that exist, each with a reason; and none is left that nothing needs."""
    assert set(excluded()) == {
        *("template-job-rule", "target-job-rule", "template-instance-rule", "target-instance-rule"),
        "target-rate-interval-rule",
    }
    assert all(len(rule["reason"]) > 20 for rule in excluded().values())
    titles = {
        target.panel["title"] for target in targets() if re.search(r"(rate|increase)\([^\[]*\[\$__range\]", target.expr)
    }
    assert rate_interval_exceptions() == titles


@every_target
def test_lines_are_few_however_many_workers_there_are(target):
    """What draws a line or bar a series is aggregated or bounded by topk or bottomk; only heatmaps take all."""
    if target.panel["type"] in {"heatmap", "table"}:
        return
    aggregated = re.search(
        r"\b(sum|avg|min|max|count|quantile|histogram_quantile|count_values)\b(?! by \(cluster)", target.expr
    )

    bounded = re.search(r"\b(topk|bottomk)\((10|25|32|5),", target.expr)
    # Over a range, topk alone chooses anew at each moment; what is drawn then is everybody who ever was among them.
    of_the_range = target.query["instant"] or "[$__range] @ end())" in target.expr
    assert aggregated or (bounded and of_the_range)


def test_every_figure_is_drawn_somewhere():
    """No metric of a sample is left out of the dashboards."""
    drawn = {name for target in targets() for name, _ in selectors(target.expr)}

    # One is for joins in one's own queries; the other no server tells so far.
    assert {metric.name for metric in SAMPLE_METRICS} - drawn == {"tpu_core_info", "tpu_server_kv_pool_hbm_ratio"}
    assert {f"{metric.name}_bucket" for metric in HISTOGRAMS} <= drawn
    assert {"tpumon_target_up", "tpumon_traced_seconds_total", "tpumon_waiting", "tpumon_discovery_up"} <= drawn


UNKNOWN_TO_THE_SDK = {
    "id": "null: Grafana gives a number",
    "definition": "what Grafana's editor of variables shows",
    **dict.fromkeys(
        ("tagKeys", "textFormat", "titleFormat", "step"), "annotations of Prometheus, which it has no type for"
    ),
    "spanNulls": "of state timelines, with the value that is the default",
    "mode": "of tooltips of heatmaps",
}
"""Keys that Grafana knows and its SDK does not, and why they are there."""


def lost(ours, theirs, path=""):
    """The keys and values of ours that are not in theirs."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours:
            yield from lost(ours[key], theirs[key], f"{path}.{key}") if key in theirs else [f"{path}.{key}"]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for mine, other in zip(ours, theirs, strict=True):
            yield from lost(mine, other, path)
    elif ours != theirs:
        yield f"{path}: {ours!r} became {theirs!r}"


@every_dashboard
def test_grafana_s_own_types_hold_all_of_a_dashboard(dashboard):
    """Read into the types of Grafana's Foundation SDK and written again, nothing is lost: no key is misspelt."""
    register_default_plugins()
    theirs = json.loads(JSONEncoder().encode(GrafanaDashboard.from_json(copy.deepcopy(dashboard))))

    unknown = {name for name in lost(dashboard, theirs) if name.rpartition(".")[2] not in UNKNOWN_TO_THE_SDK}
    assert unknown == set()


def test_the_check_against_grafana_s_types_is_strict():
    """A misspelt key would be found, in a panel's options and in its fields."""
    register_default_plugins()
    wrong = copy.deepcopy(DASHBOARDS["tpumon-fleet"])
    panel = next(panel for panel in wrong["panels"] if panel["type"] == "timeseries")
    panel["fieldConfig"]["defaults"]["custom"]["lineWidht"] = 1
    panel["options"]["legend"]["plaecment"] = "bottom"
    theirs = json.loads(JSONEncoder().encode(GrafanaDashboard.from_json(copy.deepcopy(wrong))))

    assert {".panels.fieldConfig.defaults.custom.lineWidht", ".panels.options.legend.plaecment"} <= set(
        lost(wrong, theirs)
    )


@every_dashboard
def test_runbooks_that_panels_speak_of_exist(dashboard):
    """`the runbook NAME` in a description is a file."""
    for name in re.findall(r"runbooks? (\w+)", json.dumps([panel["description"] for panel in panels(dashboard)])):
        assert (GRAFANA / "runbooks" / f"{name}.md").exists(), name

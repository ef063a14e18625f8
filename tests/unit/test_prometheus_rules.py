"""Recording rules, alerts and runbooks: what promtool thinks of them, and that each has the others that it needs."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from grafana import alerting
from grafana.config import RUNBOOKS, Config, ConfigError, read
from grafana.filling import slice_labels
from grafana.generate import for_kubernetes
from support import REPOSITORY
from support.dashboards import EXPOSED, GRAFANA, OF_PROMETHEUS, RECORDED, RULE_FILES, rules, selectors
from support.prometheus import promtool

ALERTS = [rule for rule in rules() if "alert" in rule]
NAMES = sorted({alert["alert"] for alert in ALERTS})
OTHER_NAMES = {"duty_cycle", "memory_used", "memory_total", "tpu_hbm_memory_used_bytes"}

every_alert = pytest.mark.parametrize(
    "alert", ALERTS, ids=lambda alert: f"{alert['alert']}-{alert['labels']['severity']}"
)


@pytest.mark.real
def test_promtool_finds_no_fault():
    """`promtool check rules`, all files."""
    assert "FAILED" not in promtool("check", "rules", *map(str, RULE_FILES))


def test_every_alert_has_a_case_in_which_it_fires():
    """tests/unit/test_alerts.py; of every severity that it has."""
    cases = (REPOSITORY / "tests" / "unit" / "test_alerts.py").read_text()

    assert [name for name in NAMES if not re.search(rf'"{name}[ "]', cases)] == []


def test_the_rules_are_as_generated():
    """Nobody edits them: `python -m grafana.generate` makes them from grafana/rules/."""
    files = {path.name: path.read_text() for path in RULE_FILES}

    assert files == alerting.rules(Config()), "run: python -m grafana.generate"


@pytest.mark.parametrize("name", ["prometheusrule.yaml", "google-rules.yaml", "google-clusterrules.yaml"])
def test_the_same_rules_are_objects_of_kubernetes(name):
    """Of Prometheus' operator and of Google's, which wants an interval for each group."""
    made = yaml.safe_load(for_kubernetes(Config())[name])
    plain = [group for path in RULE_FILES if "other-names" not in path.name
             for group in yaml.safe_load(path.read_text())["groups"]]  # fmt: skip

    groups = made["spec"]["groups"]
    assert {group.pop("interval", None) for group in groups} == {"30s" if "google" in name else None}
    assert sorted(groups, key=str) == sorted(plain, key=str)


def test_settings_reach_every_rule():
    """The labels that tell clusters apart, the selector, thresholds and the runbooks."""
    config = Config(cluster_labels=("region", "env"), selector='team="a"', lasting_s=1200, runbooks="https://x.example")
    text = "".join(alerting.rules(config).values())

    assert "cluster" not in text
    assert "by (region, env, tpu_job, tpu_slice, worker, finding)" in text
    assert 'tpumon_finding_severity{team="a"}[5m]' in text
    assert text.count(":min > time() - 1200") == 11
    assert text.count(":min > time() - 1800") == 1
    assert "region=%q,env=%q,tpu_job=%q,tpu_slice=%q} and" in text
    assert '"$labels.' not in text
    assert "https://x.example/TpuIdle.md" in text
    assert RUNBOOKS not in text


def test_nothing_is_judged_or_compared():
    """tpumon does that: of figures of the job rules ask for none but what libtpu itself calls an error."""
    asked = {name for path in RULE_FILES if "other-names" not in path.name
             for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]
             for name, _ in selectors(rule["expr"])}  # fmt: skip

    assert {name for name in asked if name.startswith("tpu_")} == {
        "tpu_runtime_megascale_error", "tpu_runtime_slice_error", "tpu_worker_info",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("infeed = 0.3", "no such setting: infeed"),
        ("traced_ratio = 'much'", "traced_ratio: must be a number"),
        ("cluster_labels = 'region'", "cluster_labels: must be a list of texts"),
        ("runbooks = [", "Unclosed array|Invalid value|Expected"),
    ],
)
def test_a_wrong_setting_is_said_in_one_line(tmp_path, given, fault):
    """With the file's name."""
    (tmp_path / "mixin.toml").write_text(given)
    with pytest.raises(ConfigError, match=fault) as refused:
        read(tmp_path / "mixin.toml")
    assert str(refused.value).startswith(str(tmp_path))
    assert "\n" not in str(refused.value)


@every_alert
def test_an_alert_says_how_bad_it_is_and_what_to_do(alert):
    """Severity, a time for which it must last, summary, description, and a runbook that exists."""
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert re.fullmatch(r"\d+m", alert["for"])
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert len(re.sub(r"\{\{.*?\}\}", "", alert["annotations"]["summary"])) < 80
    assert alert["annotations"]["runbook_url"] == f"{RUNBOOKS}/{alert['alert']}.md"
    assert alert["alert"].startswith(("Tpu", "Tpumon"))


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_a_runbook(name):
    """Its title is the alert; it says what to do."""
    text = (GRAFANA / "runbooks" / f"{name}.md").read_text()

    assert text.startswith(f"# {name}\n")
    assert "\n## Do\n" in text or "| do |" in text


def test_every_runbook_is_of_an_alert_and_links_to_others_that_exist():
    """None is left of an alert that is gone."""
    books = {path.stem: path.read_text() for path in (GRAFANA / "runbooks").glob("*.md")}

    assert sorted(books) == NAMES
    for text in books.values():
        assert set(re.findall(r"\]\((\w+)\.md\)", text)) <= set(books)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("record") or rule["alert"])
def test_rules_ask_for_names_that_exist(rule):
    """The exporter's metrics, Prometheus' own, and what other rules record."""
    names = {name for name, _ in selectors(rule["expr"])}

    assert names
    assert names <= EXPOSED | RECORDED | OF_PROMETHEUS


def test_recorded_names_say_level_metric_and_operation():
    """level:metric:operation, of a metric that exists; only names of others are bare."""
    for name in RECORDED - OTHER_NAMES:
        level, metric, operation = name.split(":")
        assert level in {"worker", "slice", "exporter"}
        assert operation
        assert metric in EXPOSED | {"up", "tpumon_traced_seconds"}, name


def test_alerts_need_only_two_files():
    """What alerts ask for is recorded in recording.rules.yml, not among the names of others."""
    asked = {name for alert in ALERTS for name, _ in selectors(alert["expr"])}

    assert not asked & OTHER_NAMES


def test_the_example_for_alertmanager_names_alerts_and_labels_that_exist():
    """Else what it inhibits would be nothing; groups are by the labels of a slice."""
    told = yaml.safe_load((GRAFANA / "prometheus" / "alertmanager.yml").read_text())
    of_slice = list(slice_labels(Config()))
    matched = [matcher for rule in told["inhibit_rules"] for kind in ("source", "target") for matcher in
               rule[f"{kind}_matchers"]]  # fmt: skip
    names = {name for matcher in matched for name in re.findall(r"Tpu\w+", matcher)}

    assert all(re.fullmatch(r'(alertname=~?|severity=|tpu_job!=)"[\w|]*"', matcher) for matcher in matched)
    for rule in told["inhibit_rules"]:  # of two jobs without names, one silences none of the other
        assert 'tpu_job!=""' in rule["source_matchers"]
        assert any('severity="' in matcher for matcher in (*rule["source_matchers"], *rule["target_matchers"]))
    assert names <= set(NAMES)
    assert told["route"]["group_by"] == ["alertname", *of_slice]
    assert all(set(rule["equal"]) <= set(of_slice) for rule in told["inhibit_rules"])


def test_provisioning_names_what_there_is():
    """The data source is Prometheus, dashboards are read from files."""
    (source,) = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "tpumon.yml").read_text())["providers"]

    assert source["type"] == "prometheus"
    assert "uid" not in json.dumps(source)
    assert provider["type"] == "file"
    assert provider["options"]["path"] in (GRAFANA / "README.md").read_text()

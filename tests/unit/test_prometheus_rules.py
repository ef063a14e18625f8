"""Recording rules, alerts and runbooks: what promtool thinks of them, and that each has the others that it needs."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from grafana.generate import RUNBOOKS
from support.dashboards import EXPOSED, GRAFANA, OF_PROMETHEUS, RECORDED, RULE_FILES, rules, selectors
from support.prometheus import promtool

ALERTS = [rule for rule in rules() if "alert" in rule]
NAMES = sorted({alert["alert"] for alert in ALERTS})
CASES = yaml.safe_load((GRAFANA / "prometheus" / "alerts_test.yml").read_text())["tests"]
OTHER_NAMES = {"duty_cycle", "memory_used", "memory_total", "tpu_hbm_memory_used_bytes"}

every_alert = pytest.mark.parametrize(
    "alert", ALERTS, ids=lambda alert: f"{alert['alert']}-{alert['labels']['severity']}"
)


@pytest.mark.real
def test_promtool_finds_no_fault():
    """`promtool check rules`, all files."""
    assert "FAILED" not in promtool("check", "rules", *map(str, RULE_FILES))


@pytest.mark.real
def test_alerts_fire_when_they_should_and_only_then():
    """`promtool test rules`: grafana/prometheus/alerts_test.yml."""
    assert "SUCCESS" in promtool("test", "rules", str(GRAFANA / "prometheus" / "alerts_test.yml"))


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_cases_for_firing_and_for_not_firing(name):
    """At some moment it fires, of every severity that it has, and at another it does not."""
    cases = [case for test in CASES for case in test["alert_rule_test"] if case["alertname"] == name]
    fired = {alert["exp_labels"]["severity"] for case in cases for alert in case["exp_alerts"]}

    assert fired == {alert["labels"]["severity"] for alert in ALERTS if alert["alert"] == name}
    assert any(not case["exp_alerts"] for case in cases)


@every_alert
def test_an_alert_says_how_bad_it_is_and_what_to_do(alert):
    """Severity, a time for which it must last, summary, description, and a runbook that exists."""
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert re.fullmatch(r"\d+m", alert["for"])
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert len(alert["annotations"]["summary"]) < 120
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
        assert level in {"worker", "slice"}
        assert operation
        assert metric in EXPOSED | {"tpu_hbm_usage_ratio", "tpumon_traced_seconds"}, name


def test_alerts_need_only_two_files():
    """What alerts ask for is recorded in recording.rules.yml, not among the names of others."""
    asked = {name for alert in ALERTS for name, _ in selectors(alert["expr"])}

    assert not asked & OTHER_NAMES


def test_provisioning_names_what_there_is():
    """The data source is Prometheus, dashboards are read from files."""
    (source,) = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "tpumon.yml").read_text())["providers"]

    assert source["type"] == "prometheus"
    assert "uid" not in json.dumps(source)
    assert provider["type"] == "file"
    assert provider["options"]["path"] in (GRAFANA / "README.md").read_text()

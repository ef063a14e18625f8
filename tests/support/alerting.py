"""Alerts on invented series, as promtool evaluates them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from support.dashboards import OWN_RULE_FILES, rules
from support.prometheus import promtool

_SHOWN = "alertname, severity, cluster, job, tpu_job, tpu_slice, worker, instance, finding, finder"


Series = Mapping[str, str]
"""Values by series: `{'up{job="t"}': "1x10 0x5"}`, one value a minute."""


def check_alerts(directory: Path, series: Series, expected: Mapping[int, Sequence[str]]) -> None:
    """Asserts which alerts fire, and no others, at some minutes.

    Args:
        directory: for promtool's file.
        series: what Prometheus scrapes.
        expected: by minute, alerts such as `TpuIdle tpu_job=t tpu_slice=0 severity=warning`; labels that are left out
            may have any value.
    """
    got = firing(directory, series, list(expected))
    for minute, alerts in expected.items():
        left = list(got[minute])
        for alert in alerts:
            name, *labels = alert.split()
            wanted = {"alertname": name, **dict(label.split("=", 1) for label in labels)}
            fitting = [one for one in left if all(one.get(label, "") == value for label, value in wanted.items())]
            assert fitting, f"minute {minute}: no {alert} in {got[minute]}"
            left.remove(fitting[0])
        assert not left, f"minute {minute}: also {left}"


def firing(directory: Path, series: Series, minutes: Sequence[int]) -> Mapping[int, list[dict[str, str]]]:
    """The labels of the alerts that fire, by minute."""
    alerts = f'count by ({_SHOWN}) (ALERTS{{alertstate="firing",severity!="none"}})'
    told = evaluated(directory, series, [(alerts, minute) for minute in minutes])
    return {minute: [labels for labels, _ in rows] for minute, rows in zip(minutes, told, strict=True)}


Row = tuple[dict[str, str], float]
"""Labels and value of a series."""


def evaluated(directory: Path, series: Series, queries: Sequence[tuple[str, int]]) -> list[list[Row]]:
    """The rows that each query has at its minute, with the rules loaded."""
    asked = [
        {"expr": f'({expr}) or label_replace(vector(-1), "no", "rows", "", "")',  # never nothing
         "eval_time": f"{minute}m", "exp_samples": []}
        for expr, minute in queries
    ]  # fmt: skip
    said = _tested(directory, series, {"promql_expr_test": asked})
    told = re.findall(r"got: (.*)$", said, flags=re.MULTILINE)
    assert len(told) == len(queries), said[-2000:]
    return [
        [
            (labels, float(value))
            for inside, value in re.findall(r"\{([^}]*)\} ([-+.\dEeInfNa]+)", line)
            if "no" not in (labels := dict(re.findall(r'(\w+)="([^"]*)"', inside)))
        ]
        for line in told
    ]


def _tested(directory: Path, series: Series, asked: Mapping[str, Any]) -> str:
    """What promtool says of expectations that are all wrong."""
    given = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": given, **asked}
    files = [str(path) for path in OWN_RULE_FILES]
    document = {"rule_files": files, "evaluation_interval": "1m", "group_eval_order": _order(), "tests": [test]}
    path = directory / "test.yml"
    path.write_text(yaml.safe_dump(document))
    return promtool("test", "rules", str(path), expect=1, timeout_s=240)


@cache
def _order() -> list[str]:
    """The groups of rules, alerts last: otherwise it is another order each time, and alerts are a minute late."""
    groups = [group for file in OWN_RULE_FILES for group in yaml.safe_load(file.read_text())["groups"]]
    return [group["name"] for group in sorted(groups, key=lambda group: any("alert" in one for one in group["rules"]))]


def described(directory: Path, series: Series, minute: int) -> Mapping[str, Mapping[str, str]]:
    """Summary and description of each alert that fires at a minute, by the alert's name."""
    return dict(annotated(directory, series, minute))


def annotated(directory: Path, series: Series, minute: int) -> list[tuple[str, Mapping[str, str]]]:
    """Names of the alerts that fire at a minute, each with summary and description."""
    names = sorted({rule["alert"] for rule in rules(OWN_RULE_FILES) if "alert" in rule} - {"TpumonWatchdog"})
    asked = [{"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []} for name in names]
    told = _tested(directory, series, {"alert_rule_test": asked})
    parts = re.findall(r"alertname: (\w+),.*?got:(.*?)(?=alertname: |$)", told, flags=re.DOTALL)
    return [
        (name, dict(re.findall(r'(summary|description)="([^"]*)"', texts)))
        for name, part in parts
        for texts in re.findall(r"Annotations:\{(.*)\}", part)
    ]

"""Reading the dashboards and rules of grafana/."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from support import REPOSITORY
from tpumon.outputs.metrics import METRICS

GRAFANA = REPOSITORY / "grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))}
RULE_FILES = tuple(sorted((GRAFANA / "prometheus").glob("*.rules.yml")))
OWN_RULE_FILES = tuple(path for path in RULE_FILES if "other-names" not in path.name)
"""Without the series under others' names."""

OF_PROMETHEUS = {"up", "scrape_duration_seconds", "ALERTS", "ALERTS_FOR_STATE", "node_textfile_mtime_seconds"}
EXPOSED = {name for metric in METRICS for name in metric.series_names}
"""Names of series, not of families."""

_GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_WORDS = {"and", "or", "unless", "bool", "offset", "end", "start", "inf", "nan"}


@dataclass(frozen=True)
class Target:
    """One query of one panel."""

    dashboard: str
    panel: dict[str, Any]
    query: dict[str, Any]

    @property
    def expr(self) -> str:
        return self.query["expr"]

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel['title']}: {self.query['refId']}"


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """All but the headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets() -> list[Target]:
    """Every query of every dashboard."""
    return [
        Target(name, panel, query)
        for name, dashboard in DASHBOARDS.items()
        for panel in panels(dashboard)
        for query in panel["targets"]
    ]


@cache
def rules(files: tuple[Path, ...] = RULE_FILES) -> list[dict[str, Any]]:
    """All rules of some files."""
    return [rule for path in files for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


RECORDED = {rule["record"] for rule in rules() if "record" in rule}


def selectors(expr: str) -> Iterator[tuple[str, str]]:
    """Metric names in a PromQL expression, and the matchers that stand at each."""
    rest = re.sub(r"\[[^\]]*\]", "", _GROUPING.sub(" ", expr))
    for found in re.finditer(r'"[^"]*"|(?<![\w.])([a-zA-Z_:][\w:]*)\s*(\(|\{[^}]*\})?', rest):
        name, after = found[1], found[2] or ""
        if name and after != "(" and name.lower() not in _WORDS:
            yield name, after

"""A Grafana dashboard: rows of panels, variables, annotations and links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grafana.config import Config
from grafana.filling import filled, slice_labels, values
from grafana.panels import BAD, DATASOURCE, Json, Panel
from grafana.queries import CHOSEN

SCHEMA_VERSION = 39
_WIDTH = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A heading, and the panels below it from left to right."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard.

    Attributes:
        config: what identifies a job, and where the runbooks are.
        uid: stable identifier; part of its URL.
        one_worker: open on one worker, not on all.
    """

    config: Config
    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    one_worker: bool = False

    def to_json(self) -> Json:
        """Returns the dashboard as Grafana stores it."""
        made: Json = filled(self._template(), values(self.config))
        return made

    def _template(self) -> Json:
        return {
            "annotations": {"list": [_alerts(), _restarts()]},
            "description": self.description,
            "editable": False,
            "fiscalYearStartMonth": 0,
            "graphTooltip": 1,
            "id": None,
            "links": [_to_dashboards(), *_to_runbooks(self.config.runbooks)],
            "panels": list(_placed(self.rows)),
            "refresh": "30s",
            "schemaVersion": SCHEMA_VERSION,
            "tags": ["tpu", "tpumon"],
            "templating": {"list": _variables(self.config, one_worker=self.one_worker)},
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "title": self.title,
            "uid": self.uid,
            "version": 1,
        }


def _placed(rows: Sequence[Row]) -> Iterable[Json]:
    number, y = 1, 0
    for row in rows:
        place = {"h": 1, "w": _WIDTH, "x": 0, "y": y}
        yield {"collapsed": False, "gridPos": place, "id": number, "panels": [], "title": row.title, "type": "row"}
        number, x, y, tallest = number + 1, 0, y + 1, 0
        for panel in row.panels:
            width, height = panel.size
            if x + width > _WIDTH:
                x, y, tallest = 0, y + tallest, 0
            yield panel.to_json(number, x, y)
            number, x, tallest = number + 1, x + width, max(tallest, height)
        y += tallest


def _variables(config: Config, *, one_worker: bool) -> list[Json]:
    source = {"label": "Data source", "name": "datasource", "query": "prometheus", "refresh": 1, "type": "datasource"}
    found = [source | {"current": {}, "hide": 0, "includeAll": False, "multi": False, "options": [], "regex": ""}]
    chosen = config.selector
    for name in (*slice_labels(config), "worker"):
        # Of all series about workers, one that is there also while they are paused or down.
        series = f"tpumon_target_info{{{chosen}}}" if chosen else "tpumon_target_info"
        found.append(_variable(name, f"label_values({series}, {name})", all_too=not (one_worker and name == "worker")))
        chosen += f'{"," if chosen else ""}{name}=~"${name}"'
    return found


def _variable(name: str, query: str, *, all_too: bool) -> Json:
    """Without `all_too`, Grafana opens the dashboard on the first value."""
    every: Json = {"allValue": ".+" if name == "worker" else ".*"} if all_too else {}  # who has no label is empty
    return every | {
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if all_too else {},
        "datasource": DATASOURCE,
        "definition": query,
        "hide": 0,
        "includeAll": all_too,
        "label": name.capitalize().replace("Tpu_", "TPU "),
        "multi": True,
        "name": name,
        "options": [],
        "query": query,
        "refresh": 2,
        "regex": "",
        "sort": 7,
        "type": "query",
    }


def _alerts() -> Json:
    return {
        "datasource": DATASOURCE,
        "enable": True,
        "expr": 'ALERTS{alertname=~"Tpu.*|Tpumon.*",alertstate="firing",@{chosen}}',
        "iconColor": BAD,
        "name": "Alerts",
        "step": "60s",
        "tagKeys": "severity,worker",
        "textFormat": "{{tpu_job}} {{tpu_slice}} {{worker}}",
        "titleFormat": "{{alertname}}",
    }


def _restarts() -> Json:
    """Starts of a job's runtime, by number of workers. Only with runtime metrics."""
    return {
        "datasource": DATASOURCE,
        "enable": True,
        "expr": f"count by (@{{slice}}) (tpu_runtime_uptime_seconds{{{CHOSEN}}} < 60)",
        "iconColor": "#808080",
        "name": "Restarts",
        "step": "60s",
        "tagKeys": "tpu_job",
        "textFormat": "{{tpu_job}} {{tpu_slice}}",
        "titleFormat": "Job started",
    }


def _to_dashboards() -> Json:
    return {
        "asDropdown": False,
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "tags": ["tpumon"],
        "targetBlank": False,
        "title": "tpumon",
        "type": "dashboards",
        "url": "",
    }


def _to_runbooks(base: str) -> list[Json]:
    """A link to the runbooks, once they have an address."""
    if "://" not in base:
        return []
    return [
        {
            "icon": "doc",
            "includeVars": False,
            "keepTime": False,
            "tags": [],
            "targetBlank": True,
            "title": "Runbooks",
            "tooltip": "What to do about each alert",
            "type": "link",
            "url": base,
        }
    ]

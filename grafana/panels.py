"""The panels of a Grafana dashboard as plain dictionaries.

Panels that show a single number query the current time and not the last value of a range, so that figures disappear
when their series end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}

# Okabe and Ito's colors, which people who see colors differently can tell apart; texts say the same.
_GOOD, _CAUTION, BAD, _OTHER, _GREY = "#0072B2", "#E69F00", "#D55E00", "#56B4E9", "#808080"

ABSENT = "n/a"
"""Shown for absent values, which are not 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of a panel.

    Attributes:
        expr: PromQL.
        legend: Grafana template for a series' name; in tables, the column's name.
        unit: unit of a table's column, if it differs from the panel's.
    """

    expr: str
    legend: str = ""
    unit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel.

    Attributes:
        kind: Grafana's name of the panel type.
        description: what the figure means and what to do.
        unit: Grafana's name of the unit: percentunit (axis from 0 to 1 unless `small`), s, bytes, short.
        size: width in columns of 24, and height in rows.
        interval: minimum step between points, if a shorter one would show nothing.
        custom, options: settings of the panel type.
        limits: values from which the panel is yellow and red.
        instant: query the current time only.
        more: additional keys of the panel.
        defaults: additional keys of the field defaults.
        overrides: field overrides.
    """

    kind: str
    title: str
    description: str
    queries: Sequence[Query]
    unit: str
    size: tuple[int, int]
    interval: str | None = None
    custom: Json = field(default_factory=dict)
    options: Json = field(default_factory=dict)
    limits: tuple[float, float] | None = None
    instant: bool = False
    format: str = "time_series"
    more: Json = field(default_factory=dict)
    defaults: Json = field(default_factory=dict)
    overrides: list[Json] = field(default_factory=list)

    def to_json(self, number: int, x: int, y: int) -> Json:
        """Returns the panel at a position of the grid."""
        width, height = self.size
        defaults: Json = {
            "color": {"mode": "thresholds" if self.limits else "palette-classic"},
            "custom": self.custom,
            "mappings": [],
            "noValue": ABSENT,
            "thresholds": _thresholds(self.limits),
            "unit": self.unit,
        }
        if self.unit == "percentunit" and self.kind != "table":  # a table's columns have different units
            defaults |= {"min": 0} | ({} if "axisSoftMax" in self.custom else {"max": 1})
        panel: Json = {
            "datasource": DATASOURCE,
            "description": self.description,
            "fieldConfig": {"defaults": defaults | self.defaults, "overrides": self.overrides},
            "gridPos": {"h": height, "w": width, "x": x, "y": y},
            "id": number,
            "options": self.options,
            "targets": [self._target(place, query) for place, query in enumerate(self.queries)],
            "title": self.title,
            "type": self.kind,
        }
        return panel | ({"interval": self.interval} if self.interval else {}) | self.more

    def _target(self, place: int, query: Query) -> Json:
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": query.expr,
            "format": self.format,
            "instant": self.instant,
            "legendFormat": query.legend if self.format != "table" else "",
            "range": not self.instant,
            "refId": chr(ord("A") + place),
        }


def _thresholds(limits: tuple[float, float] | None) -> Json:
    steps: list[Json] = [{"color": _GOOD, "value": None}]
    if limits:
        steps += [{"color": _CAUTION, "value": limits[0]}, {"color": BAD, "value": limits[1]}]
    return {"mode": "absolute", "steps": steps}


def lines(
    title: str,
    description: str,
    *queries: Query,
    unit: str,
    size: tuple[int, int] = (12, 8),
    stacked: bool = False,
    interval: str | None = None,
    small: bool = False,
) -> Panel:
    """A graph over time; absent values are gaps.

    `small` is for ratios where a few percent matter: the axis ends at 20 % unless a value is higher.
    """
    return Panel(
        kind="timeseries",
        title=title,
        description=description,
        queries=queries,
        unit=unit,
        size=size,
        interval=interval,
        custom={
            "drawStyle": "line",
            "fillOpacity": 60 if stacked else 0,
            "lineWidth": 1,
            "showPoints": "auto",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
        }
        | ({"axisSoftMax": 0.2} if small else {}),
        options={
            "legend": {"calcs": ["min", "mean", "max"], "displayMode": "table", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    )


def number(
    title: str,
    description: str,
    *queries: Query,
    unit: str,
    size: tuple[int, int] = (4, 4),
    limits: tuple[float, float] | None = None,
) -> Panel:
    """The current value."""
    return Panel(
        kind="stat",
        title=title,
        description=description,
        queries=queries,
        unit=unit,
        size=size,
        limits=limits,
        instant=True,
        options={
            "colorMode": "value" if limits else "none",
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "auto" if len(queries) == 1 else "value_and_name",
        },
    )


def bars(
    title: str,
    description: str,
    query: Query,
    *,
    unit: str,
    size: tuple[int, int] = (8, 8),
    limits: tuple[float, float] | None = None,
) -> Panel:
    """One bar per series with its current value; the query determines number and order."""
    return Panel(
        kind="bargauge",
        title=title,
        description=description,
        queries=[query],
        unit=unit,
        size=size,
        limits=limits,
        instant=True,
        options={
            "displayMode": "basic",
            "orientation": "horizontal",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "showUnfilled": True,
            "valueMode": "color",
        },
    )


def table(
    title: str,
    description: str,
    *queries: Query,
    unit: str,
    labels: Mapping[str, str],
    sort: str,
    descending: bool = True,
    size: tuple[int, int] = (24, 10),
    links: Mapping[str, Json] | None = None,
    mappings: Mapping[str, list[Json]] | None = None,
) -> Panel:
    """Current values, one row per set of labels; a query's legend is its column's name.

    `labels` maps labels, which all queries must have, to column names; `sort` names the column that orders the rows;
    `links` and `mappings` (values to texts and colors) are by column.
    """
    # Grafana names the column of a single query `Value`, and those of several `Value #A` and so on.
    columns = [f"Value #{chr(ord('A') + place)}" if len(queries) > 1 else "Value" for place in range(len(queries))]
    names = dict(labels) | {column: query.legend for column, query in zip(columns, queries, strict=True)}
    overrides = [_override(query.legend, "unit", query.unit) for query in queries if query.unit]
    overrides += [_override(column, "links", [link]) for column, link in (links or {}).items()]
    for column, mapped in (mappings or {}).items():
        overrides += [_override(column, "mappings", mapped), _override(column, "custom.cellOptions", _COLORED)]
    organize = {
        "excludeByName": {"Time": True},
        "indexByName": {name: place for place, name in enumerate(names)},
        "renameByName": names,
    }
    return Panel(
        kind="table",
        title=title,
        description=description,
        queries=queries,
        unit=unit,
        size=size,
        instant=True,
        format="table",
        custom={"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True},
        options={"cellHeight": "sm", "showHeader": True, "sortBy": [{"desc": descending, "displayName": sort}]},
        overrides=overrides,
        more={"transformations": [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]},
    )


WHOSE = {"worker": "Worker", "tpu_job": "TPU job", "tpu_slice": "TPU slice"}
"""Columns of tables of workers, by label."""

_COLORED: Json = {"type": "color-text"}


def _override(column: str, what: str, value: Any) -> Json:
    return {"matcher": {"id": "byName", "options": column}, "properties": [{"id": what, "value": value}]}


def heatmap(title: str, description: str, query: Query, *, unit: str) -> Panel:
    """Counts as colors: one series per bucket of a histogram, or per value of `queries.counted`."""
    return Panel(
        kind="heatmap",
        title=title,
        description=description,
        queries=[query],
        unit=unit,
        size=(12, 8),
        interval="5m",
        format="heatmap",
        options={
            "calculate": False,
            "cellGap": 1,
            "color": {"exponent": 0.5, "mode": "scheme", "scale": "exponential", "scheme": "Oranges", "steps": 64},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "showValue": "never",
            "tooltip": {"mode": "single", "yHistogram": False},
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
        },
    )


STATES: list[Json] = [
    {
        "options": {
            "0": {"color": BAD, "index": 0, "text": "down"},
            "1": {"color": _GOOD, "index": 1, "text": "up"},
            "2": {"color": _OTHER, "index": 2, "text": "busy"},
            "3": {"color": _GREY, "index": 3, "text": "paused"},
        },
        "type": "value",
    }
]
"""Texts and colors for the values of `queries.STATE`."""


SEVERITIES: list[Json] = [
    {
        "options": {
            "0": {"color": _GOOD, "index": 0, "text": "ok"},
            "1": {"color": _OTHER, "index": 1, "text": "info"},
            "2": {"color": _CAUTION, "index": 2, "text": "warning"},
            "3": {"color": BAD, "index": 3, "text": "critical"},
        },
        "type": "value",
    }
]
"""Texts and colors for the values of `tpumon_finding_severity`."""


def states(
    title: str,
    description: str,
    query: Query,
    *,
    size: tuple[int, int] = (24, 8),
    mappings: list[Json] = STATES,
) -> Panel:
    """States over time, one band per series, with the state's text in it."""
    return Panel(
        kind="state-timeline",
        title=title,
        description=description,
        queries=[query],
        unit="short",
        size=size,
        custom={"fillOpacity": 70, "lineWidth": 0, "spanNulls": False},
        defaults={"mappings": mappings},
        options={
            "alignValue": "left",
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
            "mergeValues": True,
            "rowHeight": 0.8,
            "showValue": "auto",
            "tooltip": {"mode": "single", "sort": "none"},
        },
    )


def to_worker(dashboard: str) -> Json:
    """Links a cell with a worker's name to that worker on another dashboard; its job and slice are those of the row."""
    own = "&".join(
        f'var-{label}=${{__data.fields["{WHOSE[label]}"]:percentencode}}' for label in ("tpu_job", "tpu_slice")
    )
    return {
        "title": "This worker over time",
        "url": f"/d/{dashboard}?${{datasource:queryparam}}&@{{clusters}}{own}"
        "&var-worker=${__value.text:percentencode}&${__url_time_range}",
    }


def to_job(dashboard: str) -> Json:
    """Links a cell with a job's name to a dashboard of that job alone."""
    return {
        "title": "This job alone",
        "url": f"/d/{dashboard}?${{datasource:queryparam}}&@{{clusters}}var-tpu_job=${{__value.text:percentencode}}"
        "&${__url_time_range}",
    }

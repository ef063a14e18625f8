"""`python -m grafana.preview URL` draws the results of the dashboards' queries on the Prometheus at URL.

It writes grafana/pictures/*.svg with the panels' places, titles and results. They say that they are not pictures of
Grafana. It needs only the standard library.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from grafana.config import Config
from grafana.generate import HERE, dashboards

Json = dict[str, Any]
Row = Json
"""One series of an answer: `metric`, and `value` or `values`."""

_COLUMN, _LINE, _HEAD = 56, 30, 40
_COLORS = (
    "#3274d9",
    "#56a64b",
    "#e0b400",
    "#e02f44",
    "#8f3bb8",
    "#ff780a",
    "#37872d",
    "#1f60c4",
    "#c4162a",
    "#a352cc",
)
_POINTS = 72
_TIMEOUT_S = 30


def interpolated(expr: str, *, job: str, worker: str = ".+", step_s: float, scrape_s: float, range_s: float) -> str:
    """Replaces the variables of a query, as Grafana does.

    `$__rate_interval` is the larger of step + scrape interval and four scrape intervals.

    Raises:
        ValueError: the query has an unknown variable.
    """
    rate_s = max(step_s + scrape_s, 4 * scrape_s)
    values = {
        "__rate_interval": f"{round(rate_s * 1000)}ms",
        "__interval": f"{round(step_s * 1000)}ms",
        "__range": f"{round(range_s)}s",
        "cluster": ".*",
        "tpu_job": job,
        "tpu_slice": ".*",
        "worker": worker,
    }
    for name, value in values.items():
        expr = re.sub(rf"\${name}\b", value.replace("\\", r"\\"), expr)
    if "$" in expr:
        raise ValueError(f"unknown variable in {expr}")
    return expr


@dataclass(frozen=True, kw_only=True)
class Source:
    """A Prometheus, and the jobs, workers and times to query.

    Attributes:
        worker: a regular expression.
        start_s, end_s: the time range, in seconds since the epoch.
    """

    url: str
    job: str
    worker: str = ".+"
    scrape_s: float
    start_s: float
    end_s: float

    def ask(self, target: Json, panel: Json) -> list[Row]:
        """Runs one query; the rows of a range query have `values`."""
        least_s = 300 if panel.get("interval") == "5m" else 0
        step_s = max((self.end_s - self.start_s) / _POINTS, self.scrape_s)
        expr = interpolated(
            target["expr"],
            job=self.job,
            worker=self.worker,
            step_s=max(step_s, least_s),
            scrape_s=self.scrape_s,
            range_s=self.end_s - self.start_s,
        )
        asked = {"query": expr}
        if target["instant"]:
            return self._get("query", asked | {"time": f"{self.end_s:.3f}"})
        # Finer than in Grafana for panels with an interval of 5 minutes, because a preview has little history.
        return self._get(
            "query_range", asked | {"start": f"{self.start_s:.3f}", "end": f"{self.end_s:.3f}", "step": f"{step_s:.3f}"}
        )

    def is_simulated(self) -> bool:
        """True if all workers are simulated."""
        rows = self._get("query", {"query": f'tpu_worker_info{{tpu_job=~"{self.job}"}}'})
        return {row["metric"]["simulated"] for row in rows} == {"true"}

    def _get(self, path: str, asked: Mapping[str, str]) -> list[Row]:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - the user's own Prometheus
            rows: list[Row] = json.load(answer)["data"]["result"]
        return rows


@dataclass(frozen=True)
class Box:
    """The area of a panel's contents, in pixels."""

    x: float
    y: float
    w: float
    h: float


def amount(value: float, unit: str) -> str:
    """Formats a value approximately as Grafana does."""
    if math.isnan(value):
        return "n/a"
    match unit:
        case "percentunit":
            return f"{value * 100:.3g} %"
        case "s":
            return f"{value * 1000:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
        case "bytes":
            return f"{value / 2**30:.3g} GiB"
        case "ops":
            return f"{value:.2g}/s"
        case "Bps":
            return f"{value / 2**20:.3g} MiB/s"
        case "dateTimeFromNow":
            return f"{time.time() / 60 - value / 60_000:.0f} min ago"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def text(x: float, y: float, words: str, size: float = 11, **more: str) -> str:
    """Draws one line of text."""
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}"{extra}>{escape(words)}</text>'


def rect(box: Box, fill: str) -> str:
    """Draws a filled rectangle."""
    return f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.w:.1f}" height="{max(box.h, 0.5):.1f}" fill="{fill}"/>'


def name_of(row: Row, legend: str) -> str:
    """Names a series by its legend's template."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: row["metric"].get(match[1], ""), legend) or "value"


def points(row: Row) -> list[tuple[float, float]]:
    """Times and values of a range query's row, without NaN."""
    return [(float(at), float(value)) for at, value in row["values"] if value != "NaN"]


def _axis(box: Box, low: float, high: float, unit: str) -> Iterable[str]:
    for share in (0.0, 0.5, 1.0):
        y = box.y + box.h * (1 - share)
        yield f'<path d="M{box.x:.1f} {y:.1f}h{box.w:.1f}" stroke="#e4e4e4"/>'
        yield text(box.x - 4, y + 3, amount(low + share * (high - low), unit), 9, text_anchor="end", fill="#666")


def draw_lines(panel: Json, answers: list[list[Row]], box: Box, source: Source) -> Iterable[str]:
    """Draws lines with gaps, or stacked areas."""
    defaults = panel["fieldConfig"]["defaults"]
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    series = [
        (name_of(row, target["legendFormat"]), points(row))
        for target, rows in zip(panel["targets"], answers, strict=True)
        for row in rows
    ]
    base: dict[float, float] = {}
    drawn: list[tuple[str, list[tuple[float, float, float]]]] = []  # of each: times, from, to
    for name, values_at in series:
        drawn.append((name, [(at, base.get(at, 0.0), base.get(at, 0.0) + value) for at, value in values_at]))
        if stacked:
            base |= {at: base.get(at, 0.0) + value for at, value in values_at}
    values = [above for _, corners in drawn for _, _, above in corners]
    low = defaults.get("min", min([0.0, *values]))
    high = defaults.get("max", max([*(value * 1.05 for value in values), defaults["custom"].get("axisSoftMax", 1e-9)]))
    plot = Box(box.x + 52, box.y + 4, box.w - 60, box.h - 40)
    yield from _axis(plot, low, high, defaults["unit"])

    def place(at: float, value: float) -> str:
        x = plot.x + plot.w * (at - source.start_s) / (source.end_s - source.start_s)
        return f"{x:.1f} {plot.y + plot.h * (1 - (min(value, high) - low) / (high - low or 1)):.1f}"

    gap_s = 1.5 * max((source.end_s - source.start_s) / _POINTS, source.scrape_s)
    for number, (_, corners) in enumerate(drawn):
        color = _COLORS[number % len(_COLORS)]
        if stacked and corners:
            edge = [place(at, above) for at, _, above in corners]
            edge += [place(at, below) for at, below, _ in reversed(corners)]
            yield f'<path d="M{"L".join(edge)}Z" fill="{color}" fill-opacity="0.7"/>'
            continue
        parts = ["M" + place(corners[0][0], corners[0][2])] if corners else []
        parts += [("L" if b[0] - a[0] < gap_s else "M") + place(b[0], b[2]) for a, b in pairwise(corners)]
        yield f'<path d="{"".join(parts)}" fill="none" stroke="{color}" stroke-width="1.5"/>'
    yield from _legend([name for name, _ in drawn], Box(box.x + 8, box.y + box.h - 22, box.w - 16, 20))


def _legend(names: Sequence[str], box: Box) -> Iterable[str]:
    x = box.x
    for number, name in enumerate(names):
        width = 16 + 6.2 * len(name)
        if x + width > box.x + box.w - 60:
            yield text(x, box.y + 12, f"and {len(names) - number} more", 10, fill="#666")
            return
        yield rect(Box(x, box.y + 4, 9, 9), _COLORS[number % len(_COLORS)])
        yield text(x + 12, box.y + 12, name, 10)
        x += width + 8


def _color(value: float, defaults: Json) -> str:
    steps = [step for step in defaults["thresholds"]["steps"] if step["value"] is None or value >= step["value"]]
    return str(steps[-1]["color"]) if len(defaults["thresholds"]["steps"]) > 1 else "#3274d9"


def draw_numbers(panel: Json, answers: list[list[Row]], box: Box, _source: Source) -> Iterable[str]:
    """Draws the current values side by side."""
    defaults, width = panel["fieldConfig"]["defaults"], box.w / len(answers)
    for number, (target, rows) in enumerate(zip(panel["targets"], answers, strict=True)):
        value = float(rows[0]["value"][1]) if rows else math.nan
        shown = amount(value, defaults["unit"])
        middle = box.x + width * (number + 0.5)
        color = "#222" if math.isnan(value) or len(defaults["thresholds"]["steps"]) == 1 else _color(value, defaults)
        yield text(middle, box.y + box.h * 0.55, shown, 22, text_anchor="middle", fill=color)
        if len(answers) > 1:
            yield text(middle, box.y + box.h * 0.55 + 20, target["legendFormat"], 11, text_anchor="middle", fill="#666")


def draw_bars(panel: Json, answers: list[list[Row]], box: Box, _source: Source) -> Iterable[str]:
    """Draws one bar per row."""
    defaults, rows = panel["fieldConfig"]["defaults"], answers[0]
    height = min(22.0, box.h / max(len(rows), 1))
    high = defaults.get("max") or max([float(row["value"][1]) for row in rows] + [1e-9])
    for number, row in enumerate(rows):
        value, y = float(row["value"][1]), box.y + number * height
        yield text(box.x + 8, y + height * 0.65, name_of(row, panel["targets"][0]["legendFormat"]), 10)
        share = min(max(value / high, 0.0), 1.0)
        yield rect(Box(box.x + 130, y + 3, (box.w - 210) * share, height - 6), _color(value, defaults))
        yield text(box.x + box.w - 8, y + height * 0.65, amount(value, defaults["unit"]), 10, text_anchor="end")


def draw_table(panel: Json, answers: list[list[Row]], box: Box, _source: Source) -> Iterable[str]:
    """Draws rows joined by their labels, as many as fit."""
    organize = panel["transformations"][1]["options"]
    names, columns = organize["renameByName"], sorted(organize["indexByName"], key=organize["indexByName"].get)
    overrides = {
        (override["matcher"]["options"], property_["id"]): property_["value"]
        for override in panel["fieldConfig"]["overrides"]
        for property_ in override["properties"]
    }
    several = len(answers) > 1
    labels = [column for column in columns if not column.startswith("Value")]
    cells: dict[tuple[str, ...], dict[str, float]] = {}
    for target, rows in zip(panel["targets"], answers, strict=True):
        for row in rows:
            key = tuple(row["metric"].get(label, "") for label in labels)
            cells.setdefault(key, {})[f"Value #{target['refId']}" if several else "Value"] = float(row["value"][1])
    sort = panel["options"]["sortBy"][0]
    sorted_by = next(column for column in columns if names[column] == sort["displayName"])

    def order(item: tuple[tuple[str, ...], dict[str, float]]) -> Any:
        return item[0][labels.index(sorted_by)] if sorted_by in labels else item[1].get(sorted_by, math.inf)

    def shown(column: str, key: tuple[str, ...], values: dict[str, float]) -> str:
        if column in labels:
            return key[labels.index(column)]
        if column not in values:
            return ""
        for mapped in overrides.get((names[column], "mappings"), []):
            return str(mapped["options"][f"{values[column]:g}"]["text"])
        return amount(values[column], overrides.get((names[column], "unit"), "none"))

    width = (box.w - 110) / max(len(columns) - 1, 1)  # the first has the longest words
    left = [box.x + 8, *(box.x + 118 + place * width for place in range(len(columns) - 1))]
    for x, column in zip(left, columns, strict=True):
        yield text(x, box.y + 12, names[column], 11, font_weight="bold")
    for number, (key, values) in enumerate(sorted(cells.items(), key=order, reverse=sort["desc"])):
        y = box.y + 30 + number * 17
        if y > box.y + box.h - 14:
            yield text(box.x + 8, y, f"and {len(cells) - number} more rows", 10, fill="#666")
            return
        for x, column in zip(left, columns, strict=True):
            yield text(x, y, shown(column, key, values), 10)


def draw_heatmap(panel: Json, answers: list[list[Row]], box: Box, source: Source) -> Iterable[str]:
    """Draws counts by time and value."""
    options, unit = panel["options"], panel["options"]["yAxis"]["unit"]
    counts: dict[tuple[float, float], float] = {}
    if options["calculate"]:
        size = float(options["calculation"]["yBuckets"]["value"])
        for row in answers[0]:
            for at, value in points(row):
                cell = (at, math.floor(value / size) * size)
                counts[cell] = counts.get(cell, 0) + 1
        levels = sorted({level for _, level in counts})
    else:
        rows = sorted(answers[0], key=lambda row: float(row["metric"]["le"]))
        below: dict[float, float] = {}
        for row in rows:
            for at, value in points(row):
                counts[at, float(row["metric"]["le"])] = value - below.get(at, 0.0)
                below[at] = value
        levels = sorted({level for (_, level), count in counts.items() if count > 0.01})
    most = max([*counts.values(), 1e-9])
    plot = Box(box.x + 52, box.y + 4, box.w - 60, box.h - 20)
    width, height = plot.w / _POINTS, plot.h / max(len(levels), 1)
    for number, level in enumerate(levels):
        y = plot.y + plot.h - (number + 1) * height
        if number % max(len(levels) // 8, 1) == 0:
            label = amount(level, unit) if math.isfinite(level) else "more"
            yield text(plot.x - 4, y + height / 2 + 3, label, 9, text_anchor="end", fill="#666")
        for (at, of), count in counts.items():
            if of == level and count > 0.01:
                x = plot.x + (plot.w - width) * (at - source.start_s) / (source.end_s - source.start_s)
                shade = f"hsl(25,90%,{90 - 55 * math.sqrt(count / most):.0f}%)"
                yield rect(Box(x, y, width + 0.5, height), shade)


def draw_states(panel: Json, answers: list[list[Row]], box: Box, source: Source) -> Iterable[str]:
    """Draws one band per row, in the colors of its values."""
    mapped = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    height, width = min(22.0, box.h / max(len(answers[0]), 1)), (box.w - 140) / _POINTS
    for number, row in enumerate(answers[0]):
        y = box.y + number * height
        yield text(box.x + 8, y + height * 0.65, name_of(row, panel["targets"][0]["legendFormat"]), 10)
        for at, value in points(row):
            x = box.x + 130 + (box.w - 140 - width) * (at - source.start_s) / (source.end_s - source.start_s)
            yield rect(Box(x, y + 2, width + 0.5, height - 4), mapped[f"{value:g}"]["color"])


Draw = Callable[[Json, list[list[Row]], Box, Source], Iterable[str]]
_DRAW: Mapping[str, Draw] = {
    "timeseries": draw_lines,
    "stat": draw_numbers,
    "bargauge": draw_bars,
    "table": draw_table,
    "heatmap": draw_heatmap,
    "state-timeline": draw_states,
}


def drawing(dashboard: Json, source: Source) -> str:
    """Draws one dashboard as SVG."""
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    width, height = 24 * _COLUMN, _HEAD + bottom * _LINE
    said = f"{dashboard['title']}: drawn by grafana/preview.py from Prometheus' answers to this dashboard's queries"
    simulated = ", simulated" if source.is_simulated() else ""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="DejaVu Sans, Arial, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#f4f5f5"/>',
        text(10, 25, f"{said}. Not a picture of Grafana. Jobs: {source.job}{simulated}.", 14),
    ]
    for panel in dashboard["panels"]:
        grid = panel["gridPos"]
        x, y = grid["x"] * _COLUMN, _HEAD + grid["y"] * _LINE
        if panel["type"] == "row":
            parts.append(text(x + 8, y + 20, panel["title"], 14, font_weight="bold"))
            continue
        w, h = grid["w"] * _COLUMN - 6, grid["h"] * _LINE - 6
        parts += [rect(Box(x + 3, y + 3, w, h), "#fff"), text(x + 11, y + 20, panel["title"], 12, font_weight="bold")]
        answers = [source.ask(target, panel) for target in panel["targets"]]
        body = Box(x + 3, y + 30, w, h - 32)
        if any(answers):
            parts += _DRAW[panel["type"]](panel, answers, body, source)
        else:
            parts.append(text(x + 11, y + 44, "no data", 11, fill="#888"))
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m grafana.preview", description=__doc__)
    parser.add_argument(
        "url", help="URL of a Prometheus that scrapes simulated workers, for example http://127.0.0.1:9090"
    )
    parser.add_argument("--job", default=".*", help="TPU jobs of the workers, a regular expression")
    parser.add_argument("--worker", default=".+", metavar="REGEX", help="workers on the worker dashboard; default: all")
    parser.add_argument("--scrape", type=float, default=5, metavar="SECONDS", help="scrape interval of the job")
    parser.add_argument("--minutes", type=float, default=10, help="length of the time range, which ends now")
    parser.add_argument("--out", type=Path, default=HERE / "pictures", metavar="DIR")
    options = parser.parse_args()
    now_s = time.time()
    start_s = now_s - options.minutes * 60
    source = Source(url=options.url, job=options.job, scrape_s=options.scrape, start_s=start_s, end_s=now_s)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, dashboard in dashboards(Config()).items():
        path = options.out / f"{Path(name).stem}.svg"
        chosen = options.worker if name.startswith("tpumon-worker") else ".+"
        path.write_text(drawing(json.loads(dashboard), replace(source, worker=chosen)), encoding="utf-8")


if __name__ == "__main__":
    main()

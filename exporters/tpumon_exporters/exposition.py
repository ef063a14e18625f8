"""The metrics page: Prometheus' text format 0.0.4, OpenMetrics 1.0.0 or Prometheus' binary format.

prometheus_client writes the same, except that it sorts labels; for a fleet it takes several times as long. Tests hold
the two equal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache

from prometheus_client.utils import floatToGoString

from tpumon.analysis import FleetStatus, WorkerStatus
from tpumon.model import Distribution, Target
from tpumon.outputs import Expose
from tpumon.outputs.metrics import ExposedFamily, Metric, Series, collect
from tpumon_exporters import binary

_log = logging.getLogger(__name__)

END = "# EOF\n"
"""Ends an OpenMetrics page."""

_UNITS = ("seconds", "bytes", "ratio")
_go_number: Callable[[float], str] = floatToGoString
_bound: Callable[[float], str] = lru_cache(maxsize=4096)(floatToGoString)
_EXPONENT_FROM = 1e6  # below, Go and Python write numbers alike


class Exposition:
    """Renders the metrics of workers.

    A metric that raises for a worker is left out there; the rest of the page is rendered.

    Args:
        name: of the output, for messages.
        expose: which metrics of workers that come from exporters to show.
    """

    def __init__(self, name: str, expose: Expose = "findings") -> None:
        self._name = name
        self._expose = expose
        self._reported: set[str] = set()

    def render(
        self,
        status: FleetStatus,
        *,
        workers: Sequence[WorkerStatus] | None = None,
        openmetrics: bool = False,
        names: AbstractSet[str] | None = None,
    ) -> str:
        """The page, without OpenMetrics' end mark, so that more can follow.

        Args:
            status: of all workers.
            workers: the workers to show; None: all.
            openmetrics: use OpenMetrics instead of format 0.0.4.
            names: show only metrics with a series of one of these names; None: all.
        """
        followed = status.all() if workers is None else workers
        labels: dict[str | None, str] = {worker.name: _labels(worker.target) for worker in followed}
        lines: list[str] = []
        for family in collect(status, self._report, workers=workers, names=names, whole=self._expose == "all"):
            lines.append(_header(family.metric, openmetrics=openmetrics))
            lines += self._lines(family, labels, family.since if openmetrics else {})
        return "".join(lines)

    def render_binary(
        self,
        status: FleetStatus,
        *,
        workers: Sequence[WorkerStatus] | None = None,
        names: AbstractSet[str] | None = None,
    ) -> bytes:
        """The page in the binary format, so that more can follow; the arguments are those of `render`."""
        followed = status.all() if workers is None else workers
        labels: dict[str | None, bytes] = {each.name: binary.labels(_pairs(each.target)) for each in followed}
        families: list[bytes] = []
        for family in collect(status, self._report, workers=workers, names=names, whole=self._expose == "all"):
            try:
                families.append(binary.encoded(family, labels))
            except Exception as error:  # noqa: BLE001 - one metric's bug must not cost the page
                self._report(family.metric, error)
        return b"".join(families)

    def _lines(
        self, family: ExposedFamily, labels: Mapping[str | None, str], since: Mapping[str | None, float]
    ) -> list[str]:
        """A family's series, and since when its counts count."""
        metric, name = family.metric, family.metric.name
        if not (since or metric.labels) and family.series and family.series[0][0] is not None:  # most of a fleet's page
            return [
                f"{name}{{{labels[worker]}}} {_number(value)}\n"
                for worker, series in family.series
                for _, value in series
            ]
        lines: list[str] = []
        for worker, series in family.series:
            try:
                made = _labelled_lines(metric, labels.get(worker, ""), series)
                lines += made if worker not in since else _with_created(made, since[worker])
            except Exception as error:  # noqa: BLE001 - one metric's bug must not cost the page
                self._report(metric, error)
        for worker, values in family.histograms:
            lines += _histogram_lines(name, labels[worker], values)
            if worker in since:
                lines.append(f"{name}_created{{{labels[worker]}}} {_number(since[worker])}\n")
        return lines

    def _report(self, metric: Metric, error: Exception) -> None:
        if metric.name not in self._reported:
            self._reported.add(metric.name)
            _log.warning("%s: %s is left out of the page: %s: %s", self._name, metric.name, type(error).__name__, error)


def _pairs(target: Target) -> list[tuple[str, str]]:
    """Labels of all series of a worker: the same as on the page of the exporter that samples the worker."""
    known = [(name, value) for name, value in (("tpu_job", target.job), ("tpu_slice", target.slice)) if value]
    return [("worker", target.name or target.worker), *known]


def _labels(target: Target) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in _pairs(target))


def _labelled_lines(metric: Metric, worker: str, series: Sequence[Series]) -> list[str]:
    name = metric.name
    if worker:
        return [f"{name}{{{worker}{_own_labels(metric.labels, own)}}} {_number(value)}\n" for own, value in series]
    return [
        f"{name}{f'{{{_own_labels(metric.labels, own)[1:]}}}' if own else ''} {_number(value)}\n"
        for own, value in series
    ]


def _with_created(lines: Sequence[str], since_unix_s: float) -> list[str]:
    """The series of a counter, each followed by since when it counts."""
    since = _number(since_unix_s)
    return [f"{line}{line.replace('_total', '_created', 1).rpartition(' ')[0]} {since}\n" for line in lines]


def _histogram_lines(name: str, worker: str, values: Distribution) -> list[str]:
    buckets = values.buckets()
    return [
        *(f'{name}_bucket{{{worker},le="{_bound(bound)}"}} {_number(count)}\n' for bound, count in buckets),
        f"{name}_count{{{worker}}} {_number(buckets[-1][1])}\n",
        f"{name}_sum{{{worker}}} {_number(values.total)}\n",
    ]


def _header(metric: Metric, *, openmetrics: bool) -> str:
    about = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    if not openmetrics:
        return f"# HELP {metric.name} {about}\n# TYPE {metric.name} {metric.kind}\n"
    # In OpenMetrics a counter's family is named without the `_total` of its series.
    name = metric.name.removesuffix("_total")
    about = about.replace('"', r"\"")
    unit = next((f"# UNIT {name} {unit}\n" for unit in _UNITS if name.endswith(f"_{unit}")), "")
    return f"# HELP {name} {about}\n# TYPE {name} {metric.kind}\n{unit}"


# Every worker has the same few cores, devices, parts and reasons.
@lru_cache(maxsize=4096)
def _own_labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return "".join(f',{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))


def _number(value: float) -> str:
    value = float(value)
    return repr(value) if value < _EXPONENT_FROM else _go_number(value)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

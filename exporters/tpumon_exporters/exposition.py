"""The page of a scrape: every metric of the table, as text 0.0.4 or OpenMetrics 1.0.0.

prometheus_client renders the same but for the order of labels, which it sorts; for a fleet that takes it several times
as long. Tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import accumulate
from math import isfinite

from prometheus_client.utils import floatToGoString

from tpumon.history import STEP_BUCKETS_S, Histories, WorkerHistory
from tpumon.metrics import METRICS, ExporterMetric, HistogramMetric, Metric, SampleMetric, Series, TargetMetric

END = "# EOF\n"
"""Ends an OpenMetrics page."""

_UNITS = ("seconds", "bytes", "ratio")
_go_number: Callable[[float], str] = floatToGoString
_BOUNDS = (*map(_go_number, STEP_BUCKETS_S), "+Inf")
_EXPONENT_FROM = 1e6  # below, Go and Python write a number alike


class Exposition:
    """Renders workers' histories.

    The page never breaks: a metric that raises for a worker is left out there, a figure that is no number everywhere.

    Args:
        say: takes one line about each metric that raises, once.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: set[str] = set()

    def render(
        self,
        histories: Histories,
        now_unix_s: float,
        *,
        workers: Sequence[WorkerHistory] | None = None,
        openmetrics: bool = False,
        names: AbstractSet[str] | None = None,
    ) -> str:
        """The page, without OpenMetrics' end: more may follow.

        Args:
            histories: what is known.
            now_unix_s: decides whose sample is still the present one.
            workers: whom to show; None: everybody.
            openmetrics: the newer format.
            names: of series; only the metrics that have one of these.
        """
        named = [
            (history, f'worker="{_escaped(history.target.worker)}"')
            for history in (histories.all() if workers is None else workers)
        ]
        present = [
            (history, sample, label) for history, label in named if (sample := history.current(now_unix_s)) is not None
        ]
        lines: list[str] = []
        for metric in METRICS:
            if names is not None and names.isdisjoint(_series_names(metric)):
                continue
            lines.append(_header(metric, openmetrics=openmetrics))
            match metric:
                case SampleMetric(values=of_sample):
                    for _, sample, label in present:
                        lines += self._attempt(metric, _lines, label, of_sample, sample)
                case TargetMetric(values=of_target):
                    for history, label in named:
                        lines += self._attempt(metric, _lines, label, of_target, history, now_unix_s)
                case HistogramMetric():
                    for history, _, label in present:
                        lines += self._attempt(metric, _histogram_lines, label, history)
                case ExporterMetric():
                    lines += self._attempt(metric, _exporter_lines, histories)
        return "".join(lines)

    def _attempt(self, metric: Metric, lines: Callable[..., list[str]], *of: object) -> list[str]:
        try:
            return lines(metric, *of)
        except Exception as error:  # noqa: BLE001 - one figure's fault is not the page's
            if metric.name not in self._told:
                self._told.add(metric.name)
                self._say(f"{metric.name} is left out of the page: {type(error).__name__}: {error}")
            return []


def _lines(metric: Metric, label: str, values: Callable[..., Iterable[Series]], *of: object) -> list[str]:
    """A worker's series; of two with the same labels, which no scraper would take, the last."""
    if not metric.labels:
        return [f"{metric.name}{{{label}}} {_number(value)}\n" for _, value in values(*of) if isfinite(value)]
    return [
        f"{metric.name}{{{label}{_own_labels(metric.labels, own)}}} {_number(value)}\n"
        for own, value in dict(values(*of)).items()
        if isfinite(value)
    ]


def _exporter_lines(metric: ExporterMetric, histories: Histories) -> list[str]:
    return [
        f"{metric.name}{f'{{{_own_labels(metric.labels, own)[1:]}}}' if own else ''} {_number(value)}\n"
        for own, value in metric.values(histories)
    ]


def _histogram_lines(metric: HistogramMetric, label: str, history: WorkerHistory) -> list[str]:
    steps = metric.value(history)
    if steps is None or not isfinite(steps.sum_s):
        return []
    counts = list(accumulate(steps.counts))
    return [
        *(
            f'{metric.name}_bucket{{{label},le="{bound}"}} {_number(count)}\n'
            for bound, count in zip(_BOUNDS, counts, strict=True)
        ),
        f"{metric.name}_count{{{label}}} {_number(counts[-1])}\n",
        f"{metric.name}_sum{{{label}}} {_number(steps.sum_s)}\n",
    ]


def _header(metric: Metric, *, openmetrics: bool) -> str:
    about = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    if not openmetrics:
        return f"# HELP {metric.name} {about}\n# TYPE {metric.name} {metric.kind}\n"
    # There a counter's family is called without the `_total` of its series.
    name = metric.name.removesuffix("_total")
    about = about.replace('"', r"\"")
    unit = next((f"# UNIT {name} {unit}\n" for unit in _UNITS if name.endswith(f"_{unit}")), "")
    return f"# HELP {name} {about}\n# TYPE {name} {metric.kind}\n{unit}"


def _series_names(metric: Metric) -> tuple[str, ...]:
    if metric.kind == "histogram":
        return tuple(f"{metric.name}{suffix}" for suffix in ("_bucket", "_count", "_sum"))
    return (metric.name,)


# The same few cores, devices, parts and reasons at every worker.
@lru_cache(maxsize=4096)
def _own_labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return "".join(f',{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))


def _number(value: float) -> str:
    value = float(value)
    return repr(value) if value < _EXPONENT_FROM else _go_number(value)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

"""Writes docs/metrics.md from the table in tpumon/metrics.py: `.venv/bin/python scripts/metrics_doc.py`."""

from __future__ import annotations

from pathlib import Path

from tpumon.history import STEP_BUCKETS_S
from tpumon.metrics import EXPORTER_METRICS, METRICS, SAMPLE_METRICS, STEPS, TARGET_METRICS, Metric

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"

_BEGIN = """# Metrics

Made by `scripts/metrics_doc.py` from the table in `tpumon/metrics.py`. What `--listen`, `tpumon serve` and
`--export textfile=PATH.prom` show. Ratios are 0-1, times seconds, sizes bytes. Every metric is declared even without
series; a value that is not to be had is no series, never 0. `worker` is a label of all about workers; `job` and
`instance` are Prometheus' own.

Besides, a scrape of `/metrics` shows the exporter's own `process_*` metrics as prometheus_client has them.
"""

_OF_SAMPLES = """
## Of a worker's present sample

They vanish at the next scrape once the worker's last query failed, or is older than 2.5 effective intervals plus a
window.
"""

_OF_TARGETS = """
## About watching a worker

There as long as the worker is followed, whether it answers or not. Counters begin at 0 with each start of tpumon.
"""

_OF_EXPORTER = """
## About the exporter

There whoever is followed.
"""


def page() -> str:
    """The whole file."""
    bounds = ", ".join(f"{bound:g}" for bound in STEP_BUCKETS_S)
    return "".join(
        (
            _BEGIN,
            _OF_SAMPLES,
            _table((*SAMPLE_METRICS, STEPS)),
            f"\n`{STEPS.name}` has the buckets {bounds}.\n",
            _OF_TARGETS,
            _table(TARGET_METRICS),
            _OF_EXPORTER,
            _table(EXPORTER_METRICS),
        )
    )


def _table(metrics: tuple[Metric, ...]) -> str:
    rows = "".join(
        f"| `{metric.name}` | {metric.kind} | {' '.join(f'`{label}`' for label in metric.labels)} | "
        f"{metric.help.replace('|', chr(92) + '|')} |\n"
        for metric in metrics
    )
    return f"\n| name | type | labels | |\n| --- | --- | --- | --- |\n{rows}"


assert len(METRICS) == len((*SAMPLE_METRICS, STEPS, *TARGET_METRICS, *EXPORTER_METRICS)), (
    "a kind of metric that is on no table"
)

if __name__ == "__main__":
    PAGE.write_text(page())

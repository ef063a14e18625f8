"""The metrics of a server of models that are not one number of one row of the table of figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tpumon.model import Sample
from tpumon.model.figures import FamilyFigures
from tpumon.model.server_figures import BUSY, PROGRAM, families_of
from tpumon.outputs.metrics.metric_types import SampleMetric, SampleValues, Series, single


def _of_families(get: Callable[[FamilyFigures], float | None]) -> SampleValues:
    def values(sample: Sample) -> Iterator[Series]:
        for each in families_of(sample.figures):
            value = get(each)
            if value is not None:
                yield (each.family,), value

    return values


_FAMILIES = "programs that prefill, decode, do both in a step, sample, move the cache, or other ones"
_FROM = f"Only from {PROGRAM.source}."

SERVER_METRICS: tuple[SampleMetric, ...] = (
    SampleMetric(
        name="tpu_busy_ratio",
        help=BUSY.help,
        values=single(lambda sample: None if sample.figures.server is None else sample.figures.server.busy_ratio),
    ),
    SampleMetric(
        name="tpu_program_executions_per_second",
        help=f"Runs of a server's programs per second of traced time, by family: {_FAMILIES}. {_FROM}",
        labels=("family",),
        values=_of_families(lambda family: family.executions_per_s),
    ),
    SampleMetric(
        name="tpu_program_duration_p50_seconds",
        help=f"Median duration of a run of a server's programs, by family. {_FROM}",
        labels=("family",),
        values=_of_families(lambda family: None if family.duration_s is None else family.duration_s.p50),
    ),
    SampleMetric(
        name="tpu_program_duration_p95_seconds",
        help=f"95th percentile of the duration of a run of a server's programs, by family. {_FROM}",
        labels=("family",),
        values=_of_families(lambda family: None if family.duration_s is None else family.duration_s.p95),
    ),
    SampleMetric(
        name="tpu_program_time_ratio",
        help=f"Share of a family in the time of all of a server's programs. {_FROM}",
        labels=("family",),
        values=_of_families(lambda family: family.time_ratio),
    ),
)

"""What a Prometheus has of a fleet that it scraped for a while, made of samples: no servers, no waiting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tpumon.analysis import Analysis
from tpumon.model import Sample, Target, Workers
from tpumon.outputs.metrics import METRICS
from tpumon_exporters.exposition import Exposition

Round = tuple[float, Sequence[Sample]]
"""When all exporters are scraped, and the samples since the scrape before."""


def scraped(
    rounds: Iterable[Round],
    labels_of: Callable[[str], str],
    *,
    together: bool = False,
    names: frozenset[str] | None = None,
) -> Iterator[str]:
    """Lines of OpenMetrics about workers, without its end mark.

    Args:
        rounds: in order of time. A worker without a sample in a round is not scraped then.
        labels_of: what Prometheus adds to a worker's series, such as `job="tpumon",instance="w0:10466"`.
        together: one exporter follows all workers; otherwise each one is followed by one of its own.
        names: only these metrics; None: all.
    """
    fleets: dict[str, Analysis] = {}
    exposition = Exposition("prometheus")
    names = names or frozenset(name for metric in METRICS for name in metric.series_names)
    for time_unix_s, samples in rounds:
        groups: Mapping[str, Sequence[Sample]] = (
            {"": samples} if together else {sample.worker: [sample] for sample in samples}
        )
        for name, group in groups.items():
            fleet = fleets.setdefault(name, Analysis(monotonic_s=lambda: 0.0))
            fleet.add(Workers(targets=tuple(
                Target(worker=one.worker, address=one.address, slice=one.slice) for one in group
            )))  # fmt: skip
            for sample in group:
                fleet.add(sample)
            text = exposition.render(fleet.status(time_unix_s), names=names)
            for metric, inside, value in re.findall(r"^([\w:]+)\{(.*)\} (\S+)$", text, re.MULTILINE):
                found = re.search(r'worker="([^"]*)"', inside)
                if found:
                    yield f"{metric}{{{inside},{labels_of(found[1])}}} {value} {time_unix_s:.3f}\n"

"""Judges a saved profile: its hosts are one sample each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tpumon.analysis import Analysis, FleetStatus
from tpumon.analysis.findings import Thresholds
from tpumon.model import Sample, Target, Workers


def judge_capture(samples: Sequence[Sample], thresholds: Thresholds) -> FleetStatus:
    """The status of the hosts of one profile when it began, from one sample of each."""
    begin_unix_s = max(sample.time_unix_s for sample in samples)
    names: dict[str, None] = {}
    for number, sample in enumerate(samples):
        names[f"{sample.worker}#{number}" if sample.worker in names else sample.worker] = None
    named = [
        replace(sample, worker=name, time_unix_s=begin_unix_s) for name, sample in zip(names, samples, strict=True)
    ]
    fleet = Analysis(replace(thresholds, sustained=1))
    fleet.take(Workers(targets=tuple(Target(worker=sample.worker, address=sample.address) for sample in named)))
    fleet.take_together(named)
    return fleet.status(begin_unix_s)

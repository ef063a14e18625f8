"""What is wrong in a saved profile: its hosts judged as one sample each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tpumon.fleet import Fleet, Thresholds
from tpumon.model import Sample, Target, Workers


def judge_capture(samples: Sequence[Sample], thresholds: Thresholds) -> tuple[Fleet, float]:
    """Judges the hosts of one profile, one sample of each; returns also the time at which they began."""
    begin_unix_s = max(sample.time_unix_s for sample in samples)
    names: dict[str, None] = {}
    fleet = Fleet(replace(thresholds, sustained=1))
    for number, sample in enumerate(samples):
        names[f"{sample.worker}#{number}" if sample.worker in names else sample.worker] = None
    targets = [Target(worker=name, address=sample.address) for name, sample in zip(names, samples, strict=True)]
    fleet.follow(Workers(targets=tuple(targets)))
    for name, sample in zip(names, samples, strict=True):
        fleet.add(replace(sample, worker=name, time_unix_s=begin_unix_s))
    return fleet, begin_unix_s

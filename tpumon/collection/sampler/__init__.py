"""Sampling: which workers to ask, when, and for how much of a job's time."""

from tpumon.collection.sampler.pace import Pace, pause_after_failures
from tpumon.collection.sampler.sampler import Sampler

__all__ = ["Pace", "Sampler", "pause_after_failures"]

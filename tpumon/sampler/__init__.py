"""Sampling: whom to ask, when, and for how much of a job's time."""

from tpumon.sampler.sampler import Pace, Sampler

__all__ = ["Pace", "Sampler"]

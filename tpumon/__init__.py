"""tpumon: a headless, continuous monitor for TPU jobs."""

__version__ = "0.1.0"

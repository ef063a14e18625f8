"""Where figures come from: one file a source, and `rpc`, the one file that talks to the wire."""

from tpumon.sources.base import FINAL_REASONS, Source
from tpumon.sources.monitor import MonitorSource
from tpumon.sources.rpc import Client

SOURCES: tuple[Source, ...] = (MonitorSource(),)
"""In the order in which they are tried on a worker."""

__all__ = ["FINAL_REASONS", "SOURCES", "Client", "Source"]

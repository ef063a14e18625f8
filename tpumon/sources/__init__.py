"""Where figures come from: one file a source, and `rpc`, the one file that talks to the wire."""

from tpumon.sources.base import FINAL_REASONS, Source, SourceFactory, SourceOptions
from tpumon.sources.monitor import MonitorSource
from tpumon.sources.rpc import Client
from tpumon.sources.trace import TraceSource

SOURCES: tuple[SourceFactory, ...] = (MonitorSource, TraceSource)
"""In the order in which they are tried on a worker."""

__all__ = ["FINAL_REASONS", "SOURCES", "Client", "Source", "SourceFactory", "SourceOptions"]

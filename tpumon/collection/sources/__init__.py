"""Sources of figures: one file for each, and `rpc`, the one file that talks to the wire."""

from tpumon.collection.sources.base import ProfilerFactory, ProfilerSource, SourceOptions
from tpumon.collection.sources.connecting import Connecting
from tpumon.collection.sources.extra_source import ExtraSource, OpenClient, Reading
from tpumon.collection.sources.monitor_rpc import MonitorSource
from tpumon.collection.sources.rpc import Client
from tpumon.collection.sources.runtime_metrics import RuntimeMetrics
from tpumon.collection.sources.server_metrics import ServerMetrics
from tpumon.collection.sources.traces.source import TraceSource

PROFILERS: tuple[ProfilerFactory, ...] = (MonitorSource, TraceSource)
"""Tried in this order on a worker: the first that it offers gives the figures."""

EXTRA_SOURCES: tuple[type[ExtraSource], ...] = (RuntimeMetrics, ServerMetrics)
"""Read beside the profiler: their figures are merged into its sample, those of the first ones first."""


def titles() -> dict[str, str]:
    """Titles of sources in the live view, by their names in `Sample.source`."""
    profilers = [make for make in PROFILERS if isinstance(make, type) and issubclass(make, ProfilerSource)]
    named = [(profiler.name, profiler.title) for profiler in profilers]
    named += [(extra_source.alone or extra_source.name, extra_source.title) for extra_source in EXTRA_SOURCES]
    return {name: title or name for name, title in named}


__all__ = [
    "EXTRA_SOURCES",
    "PROFILERS",
    "Client",
    "Connecting",
    "ExtraSource",
    "OpenClient",
    "ProfilerFactory",
    "ProfilerSource",
    "Reading",
    "RuntimeMetrics",
    "ServerMetrics",
    "SourceOptions",
    "titles",
]

"""Reads the samples of running exporters (`tpumon serve`, `--listen`) for `--from`."""

from tpumon.collection.remote.exporter import RemoteExporter
from tpumon.collection.remote.exporter_list import lists_exporters, shown, sources_of
from tpumon.collection.remote.fleet import RemoteFleet
from tpumon.collection.remote.server import RemoteServer, TroubleError

__all__ = ["RemoteExporter", "RemoteFleet", "RemoteServer", "TroubleError", "lists_exporters", "shown", "sources_of"]

"""Reads the samples of running exporters (`tpumon serve`, `--listen`) for `--from`."""

from tpumon.remote.exporter import RemoteExporter
from tpumon.remote.fleet import RemoteFleet
from tpumon.remote.places import lists_exporters, shown, sources_of
from tpumon.remote.server import Server, TroubleError

__all__ = ["RemoteExporter", "RemoteFleet", "Server", "TroubleError", "lists_exporters", "shown", "sources_of"]

"""Reads the samples of running exporters (`tpumon serve`, `--listen`) for `--from`."""

from tpumon.collection.remote.exporter import RemoteExporter
from tpumon.collection.remote.exporter_client import ExchangeError, ExporterClient
from tpumon.collection.remote.exporter_list import lists_exporters, shown, sources_of
from tpumon.collection.remote.fleet import RemoteFleet

__all__ = ["ExchangeError", "ExporterClient", "RemoteExporter", "RemoteFleet", "lists_exporters", "shown", "sources_of"]

"""The events that sources give to the analysis."""

from tpumon.model.sample import Sample
from tpumon.model.state import Handover
from tpumon.model.target import Workers

SourceEvent = Workers | Sample | Handover
"""A list of workers, the sample of one query, or what a running exporter hands on."""

"""Outputs: what shows samples or hands them on, and the base class of all of them."""

from tpumon.outputs.base import (
    Context,
    Export,
    Exporter,
    Expose,
    GuardedOutput,
    Output,
    OutputOptions,
    QueuedOutput,
    not_to_stdout,
    open_output,
    output_names,
    parse_export,
    parse_output,
    reason,
    stdout_names,
    takes,
)

__all__ = [
    "Context",
    "Export",
    "Exporter",
    "Expose",
    "GuardedOutput",
    "Output",
    "OutputOptions",
    "QueuedOutput",
    "not_to_stdout",
    "open_output",
    "output_names",
    "parse_export",
    "parse_output",
    "reason",
    "stdout_names",
    "takes",
]

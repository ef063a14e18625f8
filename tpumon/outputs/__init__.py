"""Outputs, which show samples or hand them on, and their base class."""

from tpumon.outputs.output import (
    Context,
    Export,
    Expose,
    FactoryWithOptions,
    GuardedOutput,
    Output,
    OutputSettings,
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
    "Expose",
    "FactoryWithOptions",
    "GuardedOutput",
    "Output",
    "OutputSettings",
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

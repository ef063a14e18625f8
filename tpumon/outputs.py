"""What an output is, and how one is found by its name."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol, cast

from tpumon.errors import UsageError

if TYPE_CHECKING:
    from tpumon.model import Sample

_GROUP = "tpumon.exporters"


class Output(Protocol):
    """Takes every sample of a run, answered or not, in the main thread."""

    def write(self, sample: Sample) -> None:
        """Raises OSError where it cannot; the run goes on."""

    def close(self) -> None:
        """Called once, at the end."""


def open_output(name: str, where: str) -> Output:
    """An output of the entry-point group `tpumon.exporters`.

    Args:
        name: of the entry point, which is a function from `where` to an Output.
        where: a file, an address, `-`; each output says what.

    Raises:
        UsageError: there is none of this name.
    """
    found = entry_points(group=_GROUP, name=name)
    if not found:
        known = ", ".join(sorted(entry_points(group=_GROUP).names)) or "none: is tpumon installed?"
        raise UsageError(f"there is no output {name!r}; there is: {known}")
    return cast("Output", next(iter(found)).load()(where))

"""Attaches the process that imports it: its framework gets a profiler server, and its own traces wait for samples.

Needs only the standard library, Python 3.9 or newer. Imports no framework: it waits until the program does.
`TPUMON_ATTACH=0` switches it off.
"""

from __future__ import annotations

from tpumon_attach import attachment

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself would be a third of what each Python takes longer to start
    from tpumon_attach.marks import step, steps

__all__ = ["step", "steps"]


def __getattr__(name: str) -> object:
    """Imports what marks steps when it is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tpumon_attach import marks

    return getattr(marks, name)


attachment.attach()

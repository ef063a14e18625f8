"""Attaches the process that imports it: its framework gets a profiler server, and its own traces wait for samples.

Needs only the standard library, Python 3.9 or newer. Imports no framework: it waits until the program does.
`TPUMON_RUN=0` switches it off.
"""

from __future__ import annotations

from tpumon_attach import attachment
from tpumon_attach.marks import step, steps

__all__ = ["step", "steps"]

attachment.attach()

"""Traces: bytes in, figures out. Pure: no files, no network, no clock.

NumPy is imported when a name of this package is first used, not with it.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpumon.xspace.summary import TraceFigures, figures
    from tpumon.xspace.trace import Trace, read_trace

__all__ = ["Trace", "TraceFigures", "figures", "read_trace"]

_HOMES = {"TraceFigures": "summary", "figures": "summary", "Trace": "trace", "read_trace": "trace"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # NumPy would start a thread a core, and their buffers, for matrices that nobody multiplies here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return getattr(importlib.import_module(f"tpumon.xspace.{_HOMES[name]}"), name)

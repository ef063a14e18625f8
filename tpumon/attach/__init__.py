"""`import tpumon.attach` in a program: its framework gets a profiler server, and its own traces wait for samples.

The same as `tpumon run`, for one program. See docs/run.md.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HOOK = Path(__file__).parent / "pythonpath"
"""The directory for PYTHONPATH. It stands alone: only the standard library, Python 3.9 or newer."""

if "tpumon_attach" not in sys.modules:  # there already under `tpumon run`
    sys.path.append(str(HOOK))
    try:
        importlib.import_module("tpumon_attach")
    finally:
        sys.path.remove(str(HOOK))

_attach = sys.modules["tpumon_attach"]
step = _attach.step
steps = _attach.steps

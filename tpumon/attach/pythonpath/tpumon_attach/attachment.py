"""Attaches this process, once."""

from __future__ import annotations

import os

from tpumon_attach import imports
from tpumon_attach.harmless import harmless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


@harmless("it runs as without tpumon")
def attach() -> None:
    """Acts on the frameworks as soon as the program imports them; `TPUMON_ATTACH=0` switches it off."""
    if os.environ.get("TPUMON_ATTACH") == "0":
        return
    imports.after_import(
        {
            "jax._src.xla_bridge": _jax_bridge,
            "jax._src.profiler": _jax_profiler,
            "tensorflow.python.eager.context": _tensorflow_context,
            "tensorflow.python.profiler.profiler_v2": _tensorflow_profiler,
            "torch_xla.runtime": _torch_runtime,
            "torch_xla.debug.profiler": _torch_profiler,
        }
    )


# What each needs is imported when it is needed: most Pythons that a job starts use no framework.


def _jax_bridge(module: ModuleType) -> None:
    from tpumon_attach import jax_side

    jax_side.attach_bridge(module)


def _jax_profiler(module: ModuleType) -> None:
    from tpumon_attach import jax_side

    jax_side.attach_profiler(module)


def _tensorflow_context(module: ModuleType) -> None:
    from tpumon_attach import tensorflow_side

    tensorflow_side.attach_context(module)


def _tensorflow_profiler(module: ModuleType) -> None:
    from tpumon_attach import tensorflow_side

    tensorflow_side.attach_profiler(module)


def _torch_runtime(module: ModuleType) -> None:
    from tpumon_attach import torch_side

    torch_side.attach_runtime(module)


def _torch_profiler(module: ModuleType) -> None:
    from tpumon_attach import torch_side

    torch_side.attach_profiler(module)

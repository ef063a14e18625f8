"""Attaches this process, once."""

from __future__ import annotations

import os

from tpumon_attach import imports
from tpumon_attach.harmless import harmless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


@harmless("it runs as without tpumon")
def attach() -> None:
    """Acts on the frameworks as soon as the program imports them; `TPUMON_ATTACH=0` switches it off."""
    if os.environ.get("TPUMON_ATTACH") == "0":
        return
    imports.after_import(
        {
            "jax._src.xla_bridge": _later("jax_side", "attach_bridge"),
            "jax._src.profiler": _later("jax_side", "attach_profiler"),
            "tensorflow.python.eager.context": _later("tensorflow_side", "attach_context"),
            "tensorflow.python.profiler.profiler_v2": _later("tensorflow_side", "attach_profiler"),
            "torch_xla.runtime": _later("torch_side", "attach_runtime"),
            "torch_xla.debug.profiler": _later("torch_side", "attach_profiler"),
        }
    )


def _later(side: str, function: str) -> Callable[[ModuleType], None]:
    """A function of ours, imported when it is needed: most Pythons that a job starts use no framework."""

    def act(module: ModuleType) -> None:
        ours = __import__(f"tpumon_attach.{side}", fromlist=[function])
        getattr(ours, function)(module)

    return act

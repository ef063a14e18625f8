"""PyTorch/XLA: its server, and traces of its own that meet no sample. Known to fit torch_xla 2.9."""

from __future__ import annotations

from typing import Any

from tpumon_attach.messages import say
from tpumon_attach.profiler_sessions import Sessions, healing
from tpumon_attach.server import Server


def attach_runtime(module: Any) -> None:
    """Takes torch_xla.runtime: starts the server once the program has made the runtime start its devices."""
    native = module.torch_xla._XLAC
    is_ready: Any = getattr(native, "_xla_runtime_is_initialized", None)
    profiler: Any = getattr(native, "profiler", None)
    if not callable(is_ready) or not callable(getattr(profiler, "start_server", None)):
        say("this PyTorch/XLA is not known: it gets no profiler server")
        return
    server = Server("PyTorch/XLA", profiler.start_server)
    profiler.start_server = server.of_program(profiler.start_server, lambda ours: ours)
    server.start_when(is_ready)


def attach_profiler(module: Any) -> None:
    """Takes torch_xla.debug.profiler: keeps traces and samples apart, where this version can trace itself."""
    state: Any = getattr(module, "_profile_state", None)
    if state is None or not hasattr(module, "stop_trace"):
        return
    native = module.torch_xla._XLAC.profiler
    begin = native.TslProfilerSessionWrapper
    is_enabled = native.TraceMe.is_enabled
    native.TslProfilerSessionWrapper = Sessions(begin, lambda: bool(is_enabled(1))).begin

    def forget(*_args: Any) -> None:
        with state.lock:
            state.reset()

    module.stop_trace = healing(module.stop_trace, forget)

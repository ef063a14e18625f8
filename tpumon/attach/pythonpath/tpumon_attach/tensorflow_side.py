"""TensorFlow: its server, and traces of its own that meet no sample. Known to fit TensorFlow 2.21."""

from __future__ import annotations

import sys
import time
from typing import Any

from tpumon_attach.harmless import harmless
from tpumon_attach.messages import say
from tpumon_attach.profiler_sessions import LOOK_S, PATIENCE_S
from tpumon_attach.server import Server
from tpumon_attach.stand_in import StandIn

server: Server | None = None


def attach_profiler(module: Any) -> None:
    """Takes tensorflow.python.profiler.profiler_v2: prepares the server, and keeps traces and samples apart."""
    global server
    native: Any = getattr(module, "_pywrap_profiler", None)
    known = hasattr(native, "ProfilerSession") and hasattr(module.errors, "AlreadyExistsError")
    if not known or not callable(getattr(native, "start_server", None)):
        say("this TensorFlow is not known: it gets no profiler server, and its traces are not kept apart from samples")
        return

    def start(port: int) -> Any:
        native.start_server(port)
        return native  # nothing can end it

    server = Server("TensorFlow", start)
    module.start_server = server.of_program(module.start_server, lambda _ours: None)
    module._pywrap_profiler = StandIn(native, ProfilerSession=lambda: _Session(module, native.ProfilerSession))
    _start_if_ready()


def attach_context(module: Any) -> None:
    """Takes tensorflow.python.eager.context: learns when the program has made it start its devices."""
    context_class = module.Context
    initialize = context_class.ensure_initialized

    def ensure_initialized(context: Any) -> None:
        initialize(context)
        context_class.ensure_initialized = initialize  # it is called for every operation
        _start_if_ready()

    context_class.ensure_initialized = ensure_initialized
    _start_if_ready()


@harmless("its profiler server cannot be started")
def _start_if_ready() -> None:
    if server is not None and _is_ready():
        server.start_when(_is_ready)


def _is_ready() -> bool:
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    return bool(getattr(context, "_initialized", False))


class _Session:
    """TensorFlow's profiling session, begun while no other one is active.

    Args:
        module: the one that holds the session in `_profiler`.
        make: makes TensorFlow's own.
    """

    def __init__(self, module: Any, make: Any) -> None:
        self._module = module
        self._make = make
        self._session = make()

    def start(self, *args: Any, **kwargs: Any) -> None:
        """Begins as soon as it can; after 20 s raises what TensorFlow raises."""
        end_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._session.start(*args, **kwargs)  # type: ignore[no-any-return]
            except self._module.errors.AlreadyExistsError:
                if time.monotonic() > end_s:
                    self._module._profiler = None  # or the next start would fail, too
                    raise
            time.sleep(LOOK_S)
            self._session = self._make()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

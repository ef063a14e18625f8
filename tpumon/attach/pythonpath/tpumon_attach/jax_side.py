"""JAX: its server, and traces of its own that meet no sample. Known to fit jax 0.4.38 to 0.12.0."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tpumon_attach.messages import say
from tpumon_attach.profiler_sessions import Sessions, healing
from tpumon_attach.server import Server
from tpumon_attach.stand_in import StandIn

server: Server | None = None
_backends: Callable[[], bool] = lambda: False  # noqa: E731 - until JAX's bridge is imported


def attach_profiler(module: Any) -> None:
    """Takes jax._src.profiler: prepares the server, and keeps traces and samples apart."""
    global server
    native = _native(module)
    if native is None or not callable(getattr(native, "start_server", None)):
        say(f"{_version()} is not known: it gets no profiler server, and its traces are not kept apart from samples")
        return
    server = Server("JAX", native.start_server)

    def adopt(ours: Any) -> Any:
        module._profiler_server = ours
        return ours

    _replace(module, "start_server", server.of_program(module.start_server, adopt))
    if module._profiler_server is not None:  # attached late
        server.leave_to_program()
    _keep_peace(module, native)
    if _backends():
        _start()


def attach_bridge(module: Any) -> None:
    """Takes jax._src.xla_bridge: learns when the program has made it start a backend."""
    global _backends
    if not all(hasattr(module, name) for name in ("_backends", "_backend_lock", "_init_backend")):
        say(f"{_version()} is not known: it gets no profiler server")
        return

    # Read without taking the lock: a fork meanwhile would leave it taken in the child for good.
    _backends = lambda: bool(module._backends) and not module._backend_lock.locked()  # noqa: E731
    initialize = module._init_backend

    def init_backend(*args: Any, **kwargs: Any) -> Any:
        backend = initialize(*args, **kwargs)
        _start()
        return backend

    module._init_backend = init_backend
    if _backends():
        _start()


def _start() -> None:
    if server is not None:
        server.start_when(_backends)


def _keep_peace(module: Any, native: Any) -> None:
    """Has traces of the program wait for samples, and heals what a lost one leaves behind."""
    state: Any = getattr(module, "_profile_state", None)
    known = hasattr(state, "lock") and callable(getattr(state, "reset", None))
    if not known or not hasattr(native, "ProfilerSession") or not hasattr(native.TraceMe, "is_enabled"):
        say(f"the profiler of {_version()} is not known: its traces are not kept apart from samples")
        return
    begin = Sessions(native.ProfilerSession, native.TraceMe.is_enabled).begin
    if hasattr(module, "_profiler"):
        module._profiler = StandIn(native, ProfilerSession=begin)
    else:
        module.xla_client = StandIn(module.xla_client, profiler=StandIn(native, ProfilerSession=begin))

    def forget(session: Any = None) -> None:
        with state.lock:
            state.reset()
            if session is not None:
                session._is_running, session._raw_session = False, None

    own_class = getattr(module, "ProfileSession", None)  # from jax 0.12 on, it does what stop_trace did
    if own_class is not None:
        own_class.stop = healing(own_class.stop, forget)
    for name in ("stop_trace", "stop_and_get_fdo_profile"):
        if own_class is None and hasattr(module, name):
            _replace(module, name, healing(getattr(module, name), forget))


def _native(module: Any) -> Any:
    """The compiled module with the profiler."""
    native = getattr(module, "_profiler", None)
    return native if native is not None else getattr(getattr(module, "xla_client", None), "profiler", None)


def _replace(module: Any, name: str, new: Any) -> None:
    """Replaces a function here, and in jax.profiler if that is imported already."""
    old = getattr(module, name)
    for place in (module, sys.modules.get("jax.profiler")):
        if place is not None and getattr(place, name, None) is old:
            setattr(place, name, new)


def _version() -> str:
    return f"jax {getattr(sys.modules.get('jax.version'), '__version__', '')}".strip()

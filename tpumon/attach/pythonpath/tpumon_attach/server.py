"""The profiler server of a framework in this process: ours, or the one that the program starts."""

from __future__ import annotations

import _thread
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from tpumon_attach import announcement, ports, resource_limits
from tpumon_attach.harmless import harmless
from tpumon_attach.messages import say

RANKS = ("PyTorch/XLA", "JAX", "TensorFlow")
"""A PyTorch/XLA program may use JAX for its kernels, a JAX program TensorFlow for its input: the first one counts."""

_OTHER_S = 10.0  # how long one of these waits for those before it to be used, if they are imported
_SHORTEST_CHECK_S, _LONGEST_LOOK_S, _LOOK_RATIO = 0.01, 0.5, 0.05

_servers: list[Server] = []
_started: list[Any] = []  # what keeps servers alive: ours, unless the program has made it its own

_keep_for_good = ctypes.pythonapi["Py_IncRef"]
_keep_for_good.argtypes, _keep_for_good.restype = (ctypes.py_object,), None


class Server:
    """Starts a framework's profiler server once, unless the program does.

    Args:
        framework: its name, one of RANKS.
        start: starts the server on a port; returns what keeps it alive.
    """

    def __init__(self, framework: str, start: Callable[[int], Any]) -> None:
        self._framework = framework
        self._start = start
        self._lock = threading.Lock()
        self._of_program = False
        self._ours: Any = None
        self._port: int | None = None
        self._thread_pid: int | None = None
        _servers.append(self)

    @harmless("its profiler server cannot be started")
    def start_when(self, ready: Callable[[], bool]) -> None:
        """Starts it in a thread, once the backend is ready."""
        if self._thread_pid is not None or sys.is_finalizing():
            return
        self._thread_pid = os.getpid()
        if not self._has_resources():
            return

        @harmless("its profiler server cannot be started")
        def wait() -> None:
            _wait_until(ready)
            _wait_until(self._is_first, _OTHER_S)
            self._start_once()

        # Not one of `threading`: the program may wait for all of those, and have them traced.
        _thread.start_new_thread(wait, ())

    def leave_to_program(self) -> None:
        """Notes that the program has started a server itself."""
        self._of_program = True

    def of_program(self, start: Callable[..., Any], adopt: Callable[[Any], Any]) -> Callable[..., Any]:
        """Wraps the program's own call that starts a server; it finds its port free, or our server there.

        Args:
            start: the framework's function; takes the port first.
            adopt: makes our server the program's; returns what the function would return.
        """

        @wraps(start)
        def start_server(*args: Any, **kwargs: Any) -> Any:
            port = args[0] if args else kwargs.get("port")
            ours = self._hand_over(port)
            if ours is not None:
                return adopt(ours)
            server = start(*args, **kwargs)
            self._note_programs(port)
            return server

        return start_server

    @harmless("the program's own profiler server may find its port taken")
    def _hand_over(self, port: object) -> Any:
        """Returns our server if it is at the port that the program wants. From now on there is none of ours to start.

        To end one at another port would wait for a sample, with the interpreter held.
        """
        with self._lock:
            ours, self._ours, self._of_program = self._ours, None, True
        if ours is None or port != self._port:
            return None
        _started.remove(ours)
        return ours

    @harmless("the program's own profiler server is not announced")
    def _note_programs(self, port: object) -> None:
        if isinstance(port, int) and ports.listens_here(port):
            self._note(port)

    def _is_first(self) -> bool:
        """True if no framework that counts more may still be used; if one has a server, there is none to start."""
        before = RANKS[: RANKS.index(self._framework)]
        others = [server for server in _servers if server._framework in before]
        if any(server._port is not None for server in others):
            self._of_program = True
        return self._of_program or not others

    def _start_once(self) -> None:
        with self._lock, announcement.turn():
            if self._of_program or self._port is not None or not self._has_resources():
                return
            for port in ports.candidates():
                ours = self._start(port)
                if ports.listens_here(port):
                    _started.append(ours)
                    self._ours = ours
                    self._note(port)
                    return
                del ours  # another process was faster
            say(f"no free port for {self._framework}'s profiler server; TPUMON_ATTACH_PORT names the first to try")

    def _has_resources(self) -> bool:
        lacking = resource_limits.lacking()
        if lacking is not None:
            say(f"{lacking}: {self._framework} gets no profiler server")
        return lacking is None

    def _note(self, port: int) -> None:
        self._port = port
        try:
            announcement.announce(port, self._framework)
        except OSError as error:
            say(f"the profiler server on port {port} cannot be announced: {error.filename}: {error.strerror}")

    def _leave_to_parent(self) -> None:
        """In a child: the parent's server is not its own, nor is the thread that may have held the lock."""
        self._lock = threading.Lock()
        self._ours = self._port = None
        if self._thread_pid is not None:  # the parent owns the devices
            self._of_program = True


@harmless("a process that it forked is not")
def _after_fork() -> None:
    """Runs in a forked child: never ends the parent's servers, not even when the interpreter exits.

    To end a server is to wait for its threads. There are none in a child, so it would wait for ever.
    """
    for ours in _started:
        _keep_for_good(ours)
    announcement.leave_turn()
    for server in _servers:
        server._leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


def _wait_until(holds: Callable[[], bool], timeout_s: float = float("inf")) -> None:
    """Looks often at first, twice a second at last."""
    start_s = time.monotonic()
    while not holds() and (elapsed_s := time.monotonic() - start_s) < timeout_s:
        time.sleep(min(max(_SHORTEST_CHECK_S, elapsed_s * _LOOK_RATIO), _LONGEST_LOOK_S))

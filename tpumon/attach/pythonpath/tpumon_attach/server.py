"""The profiler server of a framework in this process: ours, or the one that the program starts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from tpumon_attach import announcement, ports
from tpumon_attach.messages import explain, say

RANKS = ("PyTorch/XLA", "JAX", "TensorFlow")
"""A PyTorch/XLA program may use JAX for its kernels, a JAX program TensorFlow for its input: the first one counts."""

_OTHER_S = 10.0  # how long one of these waits for those before it to be used, if they are imported
_SHORTEST_LOOK_S, _LONGEST_LOOK_S, _LOOK_RATIO = 0.01, 0.5, 0.05

_servers: list[Server] = []
_never_ended: list[Any] = []


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
        os.register_at_fork(after_in_child=self._after_fork)

    def start_when(self, ready: Callable[[], bool]) -> None:
        """Starts it in a thread, once the backend is ready."""
        if self._thread_pid is not None:
            return
        self._thread_pid = os.getpid()

        def wait() -> None:
            try:
                _wait_until(ready)
                _wait_until(self._is_first, _OTHER_S)
                self._start_once()
            except Exception as error:  # whatever it is, the program runs on
                say(f"{self._framework}'s profiler server cannot be started: {explain(error)}")

        threading.Thread(target=wait, name="tpumon-attach", daemon=True).start()

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
            with self._lock:
                ours, self._ours, self._of_program = self._ours, None, True
            if ours is not None and port == self._port:
                return adopt(ours)
            if ours is not None:
                _never_ended.append(ours)  # to end it would wait for a sample, with the interpreter held
            server = start(*args, **kwargs)
            if isinstance(port, int) and ports.listens_here(port):
                self._note(port)
            return server

        return start_server

    def _is_first(self) -> bool:
        """Whether no framework that counts more may still be used; if one has a server, there is none to start."""
        before = RANKS[: RANKS.index(self._framework)]
        others = [server for server in _servers if server._framework in before]
        if any(server._port is not None for server in others):
            self._of_program = True
        return self._of_program or not others

    def _start_once(self) -> None:
        with self._lock, announcement.turn():
            if self._of_program or self._port is not None:
                return
            for port in ports.candidates():
                self._ours = self._start(port)
                if ports.listens_here(port):
                    self._note(port)
                    return
                self._ours = None  # another process was faster
            say(f"no free port for {self._framework}'s profiler server; TPUMON_ATTACH_PORT names the first to try")

    def _note(self, port: int) -> None:
        self._port = port
        try:
            announcement.announce(port, self._framework)
        except OSError as error:
            say(f"the profiler server on port {port} cannot be announced: {error.filename}: {error.strerror}")

    def _after_fork(self) -> None:
        """In a child: the parent's server is not its own, nor is the thread that may have held the lock."""
        self._lock = threading.Lock()
        self._ours = self._port = None
        if self._thread_pid is not None:  # the parent owns the devices
            self._of_program = True


def _wait_until(holds: Callable[[], bool], timeout_s: float = float("inf")) -> None:
    """Looks often at first, twice a second at last."""
    start_s = time.monotonic()
    while not holds() and (elapsed_s := time.monotonic() - start_s) < timeout_s:
        time.sleep(min(max(_SHORTEST_LOOK_S, elapsed_s * _LOOK_RATIO), _LONGEST_LOOK_S))

"""A Cloud TPU node's profiler service that says what it is told to, and other servers one may meet by mistake.

    with TpuNode(monitor=Answer(text=LEVEL_2)) as node:
        ...  # node.address, node.calls

Each RPC follows its script step by step and stays at the last one.
By hand: `PYTHONPATH=tests python -m fakes.tpu_node PORT`.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import grpc

from fakes.protobuf import decode, plane, xspace
from fakes.protobuf import field as encode

EMPTY_RESULT, UTIL_ONLY, UTIL_IDLE, UTIL_IDLE_STEP = range(4)
BUSY = "Another profiling session active."

# What the closed server prints, as capture_tpu_profile last showed it ...
LEVEL_2 = """\
Timestamp: 20:47:16
TPU type: TPU v2
Number of TPU cores: 8 (Replica count = 8, num cores per replica = 1)
TPU idle time (lower is better): 0.091%
Utilization of TPU Matrix Units (higher is better): 10.7%
Step time: 90.8ms (avg), 89.8ms (min), 92.2ms (max)
Infeed percentage: 87.5% (avg), 87.2% (min), 87.8% (max)
"""
# ... and as older documentation spells it.
OLDER_LEVEL_2 = """\
Timestamp: 20:47:16
TPU type: TPU v3
Number of TPU Cores: 32 (Replica count = 32, num cores per replica = 1)
Per-core batch size: 32
TPU idle time (lower is better): 36.9%
Utilization of TPU Matrix Units is (higher is better): 12.5%
Step time: 1.95 kms (avg), 1.90kms (min), 2.01 kms (max)
Infeed percentage: 0.000% (avg), 0.000% (min), 0.000% (max)
"""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a node measures: percent and milliseconds, as it sends them."""

    idle: float = 8.1236
    mxu: float = 42.53125
    step: tuple[float, float, float] = (90.8125, 89.77, 92.24)
    infeed: tuple[float, float, float] = (15.5, 15.26, 16.0)

    def result(self, response_type: int) -> bytes:
        """A ProfilerServiceMonitorResult that carries the figures its type promises."""
        out = encode(1, response_type)
        if response_type >= UTIL_IDLE:
            out += encode(2, float(self.idle))
        if response_type >= UTIL_ONLY:
            out += encode(3, float(self.mxu))
        if response_type >= UTIL_IDLE_STEP:
            for number, value in enumerate((*self.step, *self.infeed), 4):
                out += encode(number, float(value))
        return out


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Monitor answers: with text, with figures, with both.

    `response_type` None is what the level asks for: UTIL_ONLY at 1, UTIL_IDLE_STEP at 2.
    It answers `after_s`; None: after the window. With `when` it waits for that as well.
    """

    figures: Figures | None = None
    text: str | bytes | None = None
    response_type: int | None = None
    after_s: float | None = None
    when: threading.Event | None = None

    def reply(self, level: int) -> bytes:
        """A MonitorResponse."""
        out = encode(1, self.text) if self.text is not None else b""
        if self.figures is not None:
            default = UTIL_ONLY if level == 1 else UTIL_IDLE_STEP
            out += encode(10, self.figures.result(default if self.response_type is None else self.response_type))
        return out


@dataclass(frozen=True, kw_only=True)
class Fail:
    """The RPC ends with this status."""

    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    details: str = "the node is being repaired"
    after_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Raw:
    """The RPC is answered with these bytes, whatever they mean."""

    reply: bytes
    after_s: float = 0.0


@dataclass(frozen=True)
class Hang:
    """The RPC is never answered."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Profile records for the window; `xspace` replaces what the request would have brought."""

    xspace: bytes | None = None
    empty: bool = False
    writes: bool = True  # old servers: whether the file appears


Step = Answer | Fail | Raw | Hang | Trace

GARBAGE = Raw(reply=b"\x0a\xff\xff\xff\x7f not a message")
NO_MONITOR = Fail(code=grpc.StatusCode.UNIMPLEMENTED, details="unimplemented.")
BUSY_STEP = Fail(code=grpc.StatusCode.INTERNAL, details=BUSY)


@dataclass(kw_only=True)
class Call:
    """One RPC as the server saw it; times are monotonic seconds."""

    method: str
    fields: dict[str, Any]
    time_remaining: float | None
    peer: str
    metadata: dict[str, str]
    at: float
    ended: float | None = None


@dataclass
class _Session:
    id: str
    over: threading.Event = field(default_factory=threading.Event)


class TpuNode:
    """A profiler server on a port of its own.

    Generations of servers, as Profile and GetSnapshot tell them apart:
        new: returns traces, GetSnapshot says NOT_FOUND. 2025: returns traces, knows no GetSnapshot.
        old: writes traces to the disk, knows no GetSnapshot.

    Attributes:
        calls: every RPC so far.
        device: whether the traces hold a TPU's planes; "unrestricted": only those that ask for no type of device;
            "late": all but those of a millisecond.
        continuous: whether a continuous session runs.
        overflow: its traces are truncated unless options ask for fewer SparseCores, which it accepts, refuses, or
            accepts and then collects nothing.
    """

    def __init__(
        self,
        monitor: Step | Sequence[Step] = NO_MONITOR,
        *,
        captures: Step | Sequence[Step] = (Trace(),),
        generation: Literal["new", "2025", "old"] = "new",
        device: bool | Literal["unrestricted", "late"] = False,
        continuous: bool = False,
        overflow: Literal["accepted", "refused", "nothing"] | None = None,
        profiler: bool = True,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.calls: list[Call] = []
        self.device = device
        self._generation = generation
        self.continuous = continuous
        self._overflow = overflow
        self._scripts = {"Monitor": _steps(monitor), "Profile": _steps(captures)}
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._session: _Session | None = None
        self._terminated: set[str] = set()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(16),
            handlers=[_Handler(self._serve)] if profiler else [],
            options=[("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)],
        )
        self.port = self._server.add_insecure_port(f"{host}:{port}")
        self.address = f"{host}:{self.port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """The node is gone: its port is closed, what was running is cut off."""
        self._closing.set()
        self._server.stop(None).wait()

    def answers(self, monitor: Step) -> None:
        """Monitor goes on with this."""
        with self._changed:
            self._scripts["Monitor"] = [monitor]

    def of(self, method: str) -> list[Call]:
        """The calls of one RPC."""
        with self._changed:
            return [call for call in self.calls if call.method == method]

    @property
    def captures(self) -> list[Call]:
        """The calls of Profile that are not the 1 ms probe."""
        return [call for call in self.of("Profile") if call.fields["opts"]["duration_ms"] > 1]

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 60) -> None:
        """Returns once the condition holds after some call; fails the test if that takes too long."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            with self._changed:
                self._changed.wait(0.05)
            assert time.monotonic() < deadline, f"waited in vain; calls so far: {self.calls}"

    def _serve(self, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        call = Call(
            method=method,
            fields=_READERS[method](decode(request)),
            time_remaining=context.time_remaining(),
            peer=context.peer(),
            metadata={str(key): str(value) for key, value in context.invocation_metadata()},
            at=time.monotonic(),
        )
        with self._changed:
            self.calls.append(call)
            self._changed.notify_all()
        try:
            return getattr(self, f"_{method.lower()}")(call.fields, context)
        finally:
            with self._changed:
                call.ended = time.monotonic()
                self._changed.notify_all()

    def _next(self, method: str) -> Step:
        script = self._scripts[method]
        with self._changed:
            return script.pop(0) if len(script) > 1 else script[0]

    def _monitor(self, request: dict[str, Any], context: grpc.ServicerContext) -> bytes:
        step = self._next("Monitor")
        if isinstance(step, Answer):
            self._closing.wait(request["duration_ms"] / 1000 if step.after_s is None else step.after_s)
            while step.when is not None and not step.when.wait(0.05) and not self._closing.is_set():
                pass
            return step.reply(request["monitoring_level"])
        return self._other(step, context)

    def _other(self, step: Step, context: grpc.ServicerContext) -> bytes:
        match step:
            case Fail(code=code, details=details, after_s=after_s):
                self._closing.wait(after_s)
                context.abort(code, details)
            case Raw(reply=reply, after_s=after_s):
                self._closing.wait(after_s)
                return reply
            case Hang():
                while context.is_active() and not self._closing.wait(0.05):
                    pass
        return b""

    def _profile(self, request: dict[str, Any], context: grpc.ServicerContext) -> bytes:
        opts = request["opts"]
        root = request["repository_root"]
        returns = request["emit_xspace"] and self._generation != "old"
        if root == "/dev/null" and not returns:
            context.abort(grpc.StatusCode.INTERNAL, "/dev/null is not a directory")
        probe = opts["duration_ms"] <= 1
        step = Trace() if probe else self._next("Profile")
        if not isinstance(step, Trace):
            return self._other(step, context)
        if opts["advanced"] and self._overflow == "refused":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Unrecognized option in advanced_configuration")
        session = _Session(request["session_id"])
        with self._changed:
            busy = self._session is not None or self.continuous
            if not busy:
                self._session = session
        if busy:
            context.abort(grpc.StatusCode.INTERNAL, BUSY)
        try:
            self._watch(session, opts, context)
        finally:
            with self._changed:
                self._session = None
        trace, empty = self._trace(step, opts)
        if returns:
            return encode(7, empty) + encode(8, trace)
        if step.writes and root:  # with no root a real one writes where its job runs
            path = Path(root, request["session_id"], request["host_name"].replace(":", "_") + ".xplane.pb")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(trace)
        return encode(7, empty)

    def _watch(self, session: _Session, opts: dict[str, Any], context: grpc.ServicerContext) -> None:
        """The window, cut short by Terminate, by the caller's leaving and by this server's end."""
        until = max(time.time(), opts["start_timestamp_ns"] / 1e9) + opts["duration_ms"] / 1000
        with self._changed:
            if session.id in self._terminated:
                self._terminated.remove(session.id)
                session.over.set()
        while (left := until - time.time()) > 0 and context.is_active() and not self._closing.is_set():
            if session.over.wait(min(left, 0.02)):
                break

    def _trace(self, step: Trace, opts: dict[str, Any]) -> tuple[bytes, bool]:
        host_events = 0 if step.empty else 4 * min(opts["host_tracer_level"], 2)
        window_ps = opts["duration_ms"] * 10**9
        every = window_ps // 10
        planes = [
            plane("/host:CPU", [("python", [(f"train {i}", i * every, every) for i in range(host_events)])]),
            plane("Task Environment"),
        ]
        empty = not host_events
        if self._shows_device(opts):
            nothing = step.empty or (opts["advanced"] and self._overflow == "nothing")
            busy = [] if nothing or opts["duration_ms"] <= 1 or not opts["device_tracer_level"] else range(10)
            events = [("jit_train", i * every, every * 9 // 10) for i in busy]
            planes.insert(0, plane("/device:TPU:0", [("Steps", events), ("XLA Modules", events), ("XLA Ops", events)]))
            empty = empty and not events
        trace = xspace(*planes) if step.xspace is None else step.xspace
        if self._overflow and not opts["advanced"] and opts["duration_ms"] > 1:
            trace += encode(3, "Trace buffers are full: events were dropped")
        return trace, empty

    def _shows_device(self, opts: dict[str, Any]) -> bool:
        match self.device:
            case "unrestricted":
                return not opts["device_type"]
            case "late":
                return bool(opts["duration_ms"] > 1)
        return bool(self.device)

    def _terminate(self, request: dict[str, Any], context: grpc.ServicerContext) -> bytes:
        del context
        with self._changed:
            if self._session is not None and self._session.id == request["session_id"]:
                self._session.over.set()
            else:  # waits for the next session of that name
                self._terminated.add(request["session_id"])
        return b""

    def _getsnapshot(self, request: dict[str, Any], context: grpc.ServicerContext) -> bytes:
        del request
        if self._generation != "new":
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
        if not self.continuous:
            context.abort(grpc.StatusCode.NOT_FOUND, "No continuous profiling session found.")
        return encode(8, xspace(plane("/host:CPU", [("python", [("train", 0, 1000)])])))


class _Handler(grpc.GenericRpcHandler):
    """Hands the four methods to the node as bytes; anything else is what grpc says of an unknown method."""

    def __init__(self, serve: Callable[[str, bytes, grpc.ServicerContext], bytes]) -> None:
        self._serve = serve

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        service, _, method = details.method.removeprefix("/").partition("/")
        if service != "tensorflow.ProfilerService" or method not in _READERS:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, context: self._serve(method, request, context))


def _steps(script: Step | Sequence[Step]) -> list[Step]:
    return list(script) if isinstance(script, Sequence) else [script]


def _text(values: list[Any]) -> str:
    return bytes(values[-1]).decode()


def _read_monitor(m: dict[int, list[Any]]) -> dict[str, Any]:
    return {
        "duration_ms": m.get(1, [0])[-1],
        "monitoring_level": m.get(2, [0])[-1],
        "timestamp": bool(m.get(3, [0])[-1]),
    }


def _read_profile(m: dict[int, list[Any]]) -> dict[str, Any]:
    opts = decode(m.get(4, [b""])[-1])
    return {
        "duration_ms": m.get(1, [0])[-1],
        "repository_root": _text(m.get(5, [b""])),
        "session_id": _text(m.get(6, [b""])),
        "host_name": _text(m.get(7, [b""])),
        "emit_xspace": bool(m.get(9, [0])[-1]),
        "opts": {
            "host_tracer_level": opts.get(2, [0])[-1],
            "device_tracer_level": opts.get(3, [0])[-1],
            "python_tracer_level": opts.get(4, [0])[-1],
            "version": opts.get(5, [0])[-1],
            "device_type": opts.get(6, [0])[-1],
            "enable_hlo_proto": bool(opts.get(7, [0])[-1]),
            "start_timestamp_ns": opts.get(8, [0])[-1],
            "duration_ms": opts.get(9, [0])[-1],
            "advanced": dict(map(_read_option, opts.get(12, []))),
        },
    }


def _read_option(entry: bytes) -> tuple[str, int]:
    fields = decode(entry)
    return _text(fields[1]), decode(fields[2][-1])[3][-1]


def _read_session(m: dict[int, list[Any]]) -> dict[str, Any]:
    return {"session_id": _text(m.get(1, [b""]))}


_READERS: dict[str, Callable[[dict[int, list[Any]]], dict[str, Any]]] = {
    "Monitor": _read_monitor,
    "Profile": _read_profile,
    "Terminate": _read_session,
    "GetSnapshot": _read_session,
}


class WrongServer:
    """Something on a port that is no gRPC server: it speaks `HTTP`, sends an `SSH` banner, is `silent` or closes."""

    def __init__(self, kind: Literal["HTTP", "SSH", "silent", "close"], port: int = 0) -> None:
        self.connections = 0
        self.received = b""
        self._kind = kind
        self._socket = socket.create_server(("127.0.0.1", port))
        self.address = "127.0.0.1:{1}".format(*self._socket.getsockname())
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            if self._kind == "close":
                connection.close()
                continue
            self._open.append(connection)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        try:
            if self._kind == "SSH":
                connection.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")
            while data := connection.recv(65536):
                self.received += data
                if self._kind == "HTTP":
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    connection.close()
                    return
        except OSError:
            return


def closed_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return int(unused.getsockname()[1])


def free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether one may listen on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def main() -> None:
    """Serves a TPU node that answers both RPCs until it is interrupted."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    with TpuNode(Answer(text=LEVEL_2, figures=Figures()), device=True, port=port) as node:
        print(node.address, os.getpid(), flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()

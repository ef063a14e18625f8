"""gRPC servers made of coroutines from bytes to bytes; the only module of the simulator that imports gRPC."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

# gRPC's core writes to stderr otherwise. It reads these once, when grpc is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
import grpc.aio

from tpumon.errors import TpumonError

Method = Callable[[bytes], Awaitable[bytes]]
Code = grpc.StatusCode

_OPTIONS = [
    # With SO_REUSEPORT two servers can share a port and take turns answering.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.max_send_message_length", -1),
]


class Abort(Exception):  # noqa: N818 - not an error of the simulator: it is a reply
    """Ends a call with an error status.

    Attributes:
        code: gRPC status code.
        details: text of the status.
    """

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class PortServer:
    """A gRPC server that can be stopped and started again on the same port.

    Args:
        methods: the methods, by path.
        host: address to bind, IPv6 without brackets.
        port: 0 for any free port; it is kept for later starts.
    """

    def __init__(self, methods: Mapping[str, Method], *, host: str, port: int) -> None:
        self._handlers = _Handlers(methods)
        self._host = f"[{host}]" if ":" in host else host
        self._port = port
        self._server: Any = None

    @property
    def address(self) -> str:
        """`host:port`; with port 0, valid only after the first start."""
        return f"{self._host}:{self._port}"

    @property
    def running(self) -> bool:
        return self._server is not None

    async def start(self) -> None:
        """Opens the port.

        Raises:
            TpumonError: the port is taken, or the address does not belong to this machine.
        """
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((self._handlers,))
        try:
            port = server.add_insecure_port(self.address)
        except RuntimeError:
            port = 0
        if not port:
            raise TpumonError(
                f"cannot listen on {self.address}: the port is taken, or the address is not one of this machine; "
                "choose another port with --port"
            )
        await server.start()
        self._port = port
        self._server = server

    async def stop(self) -> None:
        """Closes the port immediately; calls in progress end with UNAVAILABLE."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc ships no types
    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._by_path = {path: _handler(method) for path, method in methods.items()}
        self._unknown = _handler(_unknown)

    def service(self, handler_call_details: Any) -> Any:
        """Returns the handler of a call. C++ servers reply to unknown methods without a text, unlike grpcio."""
        return self._by_path.get(handler_call_details.method, self._unknown)


def _handler(method: Method) -> Any:
    async def answer(request: bytes, context: Any) -> bytes:
        try:
            return await method(request)
        except Abort as abort:
            return bytes(await context.abort(abort.code, abort.details) or b"")

    return grpc.unary_unary_rpc_method_handler(answer)


async def _unknown(_request: bytes) -> bytes:
    raise Abort(Code.UNIMPLEMENTED, "")

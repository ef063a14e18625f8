"""A gRPC server that answers by a function, in bytes: what no proper profiler server would."""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from typing import Any, Self

import grpc

Answer = Callable[[bytes, Any], bytes]
"""Makes an answer of the bytes of a request and gRPC's context."""


def unimplemented(_request: bytes, context: Any) -> bytes:
    """As Monitor on TPU VMs."""
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "unimplemented.")
    return b""


class Answering:
    """The server; a context manager that starts and stops it.

    Args:
        answer: to every call but Monitor's.
        monitor: to Monitor.
        threads: how many calls it answers at a time.
        host: the address to listen on.

    Attributes:
        port: where it listens.
        address: that port of this host.
    """

    def __init__(
        self, answer: Answer, *, monitor: Answer = unimplemented, threads: int = 8, host: str = "127.0.0.1"
    ) -> None:
        class Handler(grpc.GenericRpcHandler):
            def service(self, details: Any) -> Any:
                return grpc.unary_unary_rpc_method_handler(monitor if details.method.endswith("Monitor") else answer)

        self._server = grpc.server(
            futures.ThreadPoolExecutor(threads), handlers=[Handler()], options=[("grpc.max_send_message_length", -1)]
        )
        self.port = self._server.add_insecure_port(f"{host}:0")
        self.address = f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.stop(None).wait()

"""A kubelet's pod-resources service on a Unix socket; its answers are put together by hand, field by field."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from fakes.protobuf import field
from tpumon.model import Pod


def devices(resource: str, *ids: str) -> bytes:
    """Devices of one resource that a container holds."""
    topology = field(3, field(1, b"\x08\x01"))
    return field(2, field(1, resource) + b"".join(field(2, one) for one in ids) + topology)


def pod(namespace: str, name: str, container: str, *held: bytes) -> bytes:
    """A pod of one container with what it holds."""
    cpus = field(3, b"\x02\x03")
    return field(1, field(1, name) + field(2, namespace) + field(3, field(1, container) + b"".join(held) + cpus))


def holder(of: Pod, *ids: str) -> bytes:
    """A pod that holds TPUs."""
    return pod(of.namespace, of.name, of.container, devices("google.com/tpu", *(ids or ("0", "1"))))


OTHERS = pod("kube-system", "gpus", "c", devices("nvidia.com/gpu", "GPU-1")) + pod("x", "none", "c")
"""Pods without TPUs."""


@contextmanager
def kubelet(answer: Callable[[], bytes], asked: list[bytes] | None = None) -> Iterator[Path]:
    """Yields its socket; `answer` returns the bytes of each answer, `asked` gets each request."""

    class Lister(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
            if details.method != "/v1.PodResourcesLister/List":
                return None
            return grpc.unary_unary_rpc_method_handler(lambda request, _context: listed(request))

    def listed(request: bytes) -> bytes:
        if asked is not None:
            asked.append(request)
        return answer()

    with tempfile.TemporaryDirectory() as directory:  # pytest's are too long for a socket
        socket = Path(directory) / "kubelet.sock"
        server = grpc.server(ThreadPoolExecutor(1), handlers=[Lister()])
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield socket
        finally:
            server.stop(None).wait()

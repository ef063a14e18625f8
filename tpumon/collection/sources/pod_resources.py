"""Pods that hold the TPUs of this node, from the kubelet's pod-resources service on a Unix socket."""

from __future__ import annotations

from tpumon.collection.sources.rpc import Client
from tpumon.model import Pod
from tpumon.proto import LIST_POD_RESOURCES
from tpumon.proto.pod_resources_pb2 import PodResourcesAnswer, PodResourcesRequest
from tpumon.untrusted_text import one_line

_RESOURCE = "google.com/tpu"
_LONGEST_NAME = 253  # of a pod, in Kubernetes
_MOST_BYTES = 4 << 20


async def pods_with_tpus(path: str, *, timeout_s: float) -> frozenset[Pod]:
    """The containers of this node that hold a TPU.

    Args:
        path: of the kubelet's socket.
        timeout_s: deadline.

    Raises:
        SourceError: the kubelet does not answer, or not with such a list.
    """
    async with Client(f"unix:{path}", max_bytes=_MOST_BYTES) as client:
        answer = await client.call(LIST_POD_RESOURCES, PodResourcesRequest(), PodResourcesAnswer, timeout_s=timeout_s)
    return frozenset(
        Pod(
            namespace=one_line(pod.namespace, limit=_LONGEST_NAME),
            name=one_line(pod.name, limit=_LONGEST_NAME),
            container=one_line(container.name, limit=_LONGEST_NAME),
        )
        for pod in answer.pods
        for container in pod.containers
        if any(devices.resource_name == _RESOURCE and devices.device_ids for devices in container.devices)
    )

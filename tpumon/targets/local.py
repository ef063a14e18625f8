"""Profiler servers on this host, at the ports that people use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tpumon.sources import Client
from tpumon.sources.monitor import is_profiler

if TYPE_CHECKING:
    from collections.abc import Sequence

USUAL_PORTS = (8466, 9999, 9012, 6000, 6009)
"""TPU nodes, JAX's, PyTorch/XLA's and TensorFlow's documentation (two)."""

LINE_FOR_A_JOB = "server = jax.profiler.start_server(9999)"
"""What a job needs to be seen; assigned, or the server may be collected."""

_ANSWER_S = 2.0


async def find_local(ports: Sequence[int] = USUAL_PORTS) -> tuple[str, ...]:
    """Addresses on loopback where a profiler server answers.

    Each port gets one call, the harmless one: a Monitor of 1 ms. Whatever else listens there sees one bad request.
    """
    addresses = [f"127.0.0.1:{port}" for port in ports]
    answers = await asyncio.gather(*(_knock(address) for address in addresses))
    return tuple(address for address, yes in zip(addresses, answers, strict=True) if yes)


async def _knock(address: str) -> bool:
    async with Client(address) as client:
        return await is_profiler(client, timeout_s=_ANSWER_S)

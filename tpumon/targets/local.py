"""Profiler servers on this host, at the ports that people use."""

from __future__ import annotations

import asyncio

from tpumon.sources import Client
from tpumon.sources.monitor import is_profiler

USUAL_PORTS = (8466, 9999, 9012, 6000, 6009)
"""TPU nodes, JAX's, PyTorch/XLA's and TensorFlow's documentation (two)."""

LINE_FOR_A_JOB = "server = jax.profiler.start_server(9999)"
"""What a job needs to be seen; assigned, or the server may be collected."""

_ANSWER_S = 2.0


async def find_local(port: int | None = None) -> tuple[str, ...]:
    """Addresses on loopback where a profiler server answers.

    Each port gets one call, the harmless one: a Monitor of 1 ms. Whatever else listens there sees one bad request.

    Args:
        port: where to look; None: at the usual ones.
    """
    addresses = [f"127.0.0.1:{number}" for number in (USUAL_PORTS if port is None else (port,))]
    answers = await asyncio.gather(*(_knock(address) for address in addresses))
    return tuple(address for address, yes in zip(addresses, answers, strict=True) if yes)


def nobody_here(port: int | None = None) -> str:
    """What to say when `find_local` found nothing: where it looked, and what to do."""
    where = f"usual ports ({', '.join(map(str, USUAL_PORTS))})" if port is None else f"port {port}"
    return (
        f"no profiler server on this host's {where}; add `{LINE_FOR_A_JOB}` to the job, or give --service-addr "
        "HOST:PORT; to look around: tpumon --simulate v5e-8"
    )


async def _knock(address: str) -> bool:
    async with Client(address) as client:
        return await is_profiler(client, timeout_s=_ANSWER_S)

"""The one call that a port gets before it is known what listens there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpumon.collection.sources import Client
from tpumon.collection.sources.monitor_rpc import why_no_profiler

if TYPE_CHECKING:
    from tpumon.errors import SourceError

ANSWER_S = 5.0
"""A profiler server answers within 30 ms, on a busy machine later."""


async def knock(address: str, *, timeout_s: float = ANSWER_S, use_proxy: bool = False) -> SourceError | None:
    """Returns None if a profiler server answers at `host:port`, otherwise why not.

    Whatever listens there sees one connection with one bad request.
    """
    async with Client(address, use_proxy=use_proxy) as client:
        answer = await why_no_profiler(client, timeout_s=timeout_s)
    return None if answer is not None and answer.reason == "busy" else answer  # only a profiler server says so

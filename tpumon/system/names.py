"""Looks up names of hosts."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence

from tpumon.system.threads import in_thread

_ANSWER_S = 5.0

Resolve = Callable[[str], Awaitable[Sequence[str]]]


async def resolve_host(host: str) -> Sequence[str]:
    """Looks up all addresses of a name with this machine's resolver.

    Raises:
        OSError: it has none, or there was no answer within 5 s.
    """
    infos = await in_thread(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM), timeout_s=_ANSWER_S)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in infos))

"""Ports of this host: which are free, and which this process listens on."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress

USUAL_PORT = 9999
_MOST_TRIED = 64
_LISTEN = b"0A"
_MOST_LINES = 10_000  # those that listen come first


def candidates() -> Iterator[int]:
    """Yields the free ports to try, in order: TPUMON_ATTACH_PORT or 9999 first, then those after it."""
    given = os.environ.get("TPUMON_ATTACH_PORT", "")
    first = int(given) if given.isascii() and given.isdigit() and 0 < int(given[:6]) < 65536 else USUAL_PORT
    return (port for port in range(first, min(first + _MOST_TRIED, 65536)) if _is_free(port))


def listens_here(port: int) -> bool:
    """True if this process listens on a port, also where that cannot be found out."""
    try:
        inodes = {inode for name in ("tcp", "tcp6") for inode in _listening(f"/proc/self/net/{name}", port)}
        for descriptor in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{descriptor}") in inodes:
                    return True
    except OSError:
        return True
    return False


def _listening(path: str, port: int) -> Iterator[str]:
    try:
        with open(path, "rb") as lines:
            for _, line in zip(range(_MOST_LINES), lines):
                fields = line.split()
                if len(fields) > 9 and fields[3] == _LISTEN and fields[1].endswith(b":%04X" % port):
                    yield f"socket:[{int(fields[9])}]"
    except FileNotFoundError:  # a host without IPv6
        return


def _is_free(port: int) -> bool:
    """True if a server can listen on all addresses. Binds for a moment; does not listen."""
    for family, everywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            trial = socket.socket(family)
        except OSError:  # a host without this kind of addresses
            continue
        with trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections do not count
            if family == socket.AF_INET6:
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                trial.bind((everywhere, port))
            except OSError:
                return False
    return True

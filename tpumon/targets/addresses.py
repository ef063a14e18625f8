"""Addresses as people write them, checked before a channel is made.

gRPC itself takes port 99999 for 34463, and no port for 443.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections import Counter
from typing import TYPE_CHECKING

from tpumon.errors import UsageError
from tpumon.model import Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PROFILER_PORT = 8466
"""Port of the profiler service on TPU nodes, taken where none is given."""

_MASTER_PORT = 8470  # a TPU node's own address; its profiler is beside it
_MAX_PORT = 65535
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?")
_HERE = {"localhost", "127.0.0.1", "[::1]"}
_GOOD_FORM = "give HOST:PORT, for example 10.0.0.2:8466, tpu-w-0:9999 or [fd00::2]:9999"


def parse_address(text: str, *, default_port: int = PROFILER_PORT) -> str:
    """One address in the form to dial.

    Args:
        text: `host`, `host:port`, `[ipv6]:port`, any of them after `grpc://`. Port 8470, a TPU node's master, becomes
            8466, its profiler.
        default_port: for an address without a port.

    Returns:
        `host:port`, IPv6 in brackets.

    Raises:
        UsageError: it is none of these; says what would be.
    """
    rest = text.strip().removeprefix("grpc://")
    if "//" in rest or "/" in rest:
        raise _bad(text, "it holds a path or another scheme")
    if rest.startswith("["):
        host, bracket, port_text = rest[1:].partition("]")
        if not bracket or (port_text and not port_text.startswith(":")):
            raise _bad(text, "its brackets do not close")
        host, port_text = f"[{_ipv6(text, host)}]", port_text[1:] if port_text else str(default_port)
    elif rest.count(":") > 1:
        raise _bad(text, "an IPv6 address needs brackets")
    else:
        host, colon, port_text = rest.partition(":")
        port_text = port_text if colon else str(default_port)
        if not _HOST.fullmatch(host):
            raise _bad(text, "its host is missing" if not host else "its host is not a name or an address")
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and 1 <= int(port_text) <= _MAX_PORT):
        raise _bad(text, f"its port is not between 1 and {_MAX_PORT}")
    port = int(port_text)
    return f"{host}:{PROFILER_PORT if port == _MASTER_PORT else port}"


def parse_addresses(texts: Iterable[str], *, default_port: int = PROFILER_PORT) -> tuple[str, ...]:
    """Addresses from options that may repeat and may hold several with commas; in order, each once.

    Raises:
        UsageError: one of them is bad, or there is none.
    """
    given = list(texts)
    parts = [part for text in given for part in text.split(",") if part.strip()]
    if given and not parts:
        raise _bad(",".join(given), "it is empty")
    return tuple(dict.fromkeys(parse_address(part, default_port=default_port) for part in parts))


def name_targets(addresses: Sequence[str]) -> tuple[Target, ...]:
    """Targets with a unique worker name each: the host's name where it is known, else the address.

    This machine's own name stands for loopback; where a host has several workers, the port is added. Spellings of one
    place are one worker, dialled as it is spelled first.
    """
    by_place: dict[tuple[str, str], str] = {}
    for address in addresses:
        by_place.setdefault(_place(address), address)
    addresses = list(by_place.values())
    hosts = [_host_name(address) for address in addresses]
    count = Counter(hosts)
    names = [
        host if host is not None and count[host] == 1 else f"{host}:{_port(address)}" if host is not None else address
        for host, address in zip(hosts, addresses, strict=True)
    ]
    repeated = {name for name, times in Counter(names).items() if times > 1}
    return tuple(
        Target(worker=address if name in repeated else name, address=address)
        for name, address in zip(names, addresses, strict=True)
    )


def _place(address: str) -> tuple[str, str]:
    """The same for every way to write an address."""
    host, _, port = address.rpartition(":")
    host = host.lower().rstrip(".")
    return "localhost" if host in _HERE else host, port


def _host_name(address: str) -> str | None:
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return socket.gethostname()
    try:
        return socket.gethostname() if ipaddress.ip_address(host).is_loopback else None
    except ValueError:
        return host


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def _ipv6(text: str, host: str) -> str:
    try:
        return str(ipaddress.IPv6Address(host))
    except ValueError:
        raise _bad(text, "what stands in its brackets is not an IPv6 address") from None


def _bad(text: str, why: str) -> UsageError:
    return UsageError(f"cannot use the address {text.strip()!r}: {why}; {_GOOD_FORM}")

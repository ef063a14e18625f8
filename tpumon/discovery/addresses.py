"""Addresses as people write them, checked before a channel is made.

gRPC itself reads port 99999 as 34463, and a missing port as 443.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from tpumon.errors import UsageError
from tpumon.model import Address, Target
from tpumon.system.first_port import noted_first_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_log = logging.getLogger(__name__)

PROFILER_PORT = 8466
"""Port of the profiler service on TPU nodes, the default."""

_MASTER_PORT = 8470  # a TPU node's own address; its profiler is beside it
_MAX_PORT = 65535
_MOST_PORTS = 1024  # of a range
_RANGE = re.compile(r"(?P<host>.+):(?P<first>\d{1,5})-(?P<last>\d{1,5})")
_HOST = re.compile(r"(?!\d+$)[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?")
_GOOD_FORM = "give HOST:PORT, for example 10.0.0.2:8466, tpu-w-0:9999 or [fd00::2]:9999"


def parse_address(text: str, *, default_port: int = PROFILER_PORT) -> str:
    """Reads one address.

    Args:
        text: `host`, `host:port`, `[ipv6]:port`, any of them after `grpc://`.
        default_port: for an address without a port.

    Returns:
        `host:port`, IPv6 in brackets.

    Raises:
        UsageError: it is none of these; shows a good one.
    """
    rest = text.strip().removeprefix("grpc://")
    if "//" in rest or "/" in rest:
        raise _bad(text, "it holds a path or another scheme")
    if rest.startswith("["):
        host, bracket, port_text = rest[1:].partition("]")
        if not bracket or (port_text and not port_text.startswith(":")):
            raise _bad(text, "its brackets do not close")
        host, port_text = _ipv6(text, host), port_text[1:] if port_text else str(default_port)
    elif rest.count(":") > 1:
        raise _bad(text, "an IPv6 address needs brackets")
    else:
        host, colon, port_text = rest.partition(":")
        port_text = port_text if colon else str(default_port)
        if not _HOST.fullmatch(host):
            raise _bad(text, "its host is missing" if not host else "its host is not a name or an address")
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and 1 <= int(port_text) <= _MAX_PORT):
        raise _bad(text, f"its port is not between 1 and {_MAX_PORT}")
    return str(Address(host, int(port_text)))


def parse_profiler_address(text: str, *, default_port: int = PROFILER_PORT) -> str:
    """As `parse_address`; port 8470, a TPU node's master, becomes 8466, its profiler."""
    address = Address.parse(parse_address(text, default_port=default_port))
    return str(address.at(PROFILER_PORT) if address.port == _MASTER_PORT else address)


def parse_addresses(texts: Iterable[str], *, default_port: int = PROFILER_PORT) -> tuple[str, ...]:
    """Reads options that may repeat and may hold several addresses with commas; in order, each once.

    `host:20000-20255` is an address for each of these ports.

    Raises:
        UsageError: an address is bad, or there is none.
    """
    given = list(texts)
    parts = [part for text in given for part in text.split(",") if part.strip()]
    if given and not parts:
        raise _bad(",".join(given), "it is empty")
    return tuple(dict.fromkeys(address for part in parts for address in _each(part, default_port, parts)))


def _each(text: str, default_port: int, all_given: Sequence[str]) -> list[str]:
    """Addresses that a text stands for: one, or one for each of a range of ports."""
    several = _RANGE.fullmatch(text.strip())
    if several is None:
        single = parse_profiler_address(text, default_port=default_port)
        if not text.strip().endswith(f":{_MASTER_PORT}"):
            return [single]
        # Nobody names a TPU node twice: beside its profiler, this is another server.
        if any(each.strip().removeprefix("grpc://") == single for each in all_given):
            return [str(Address.parse(single).at(_MASTER_PORT))]
        _log.warning("%s: port %s is a TPU node's own; its profiler is asked at %s", text, _MASTER_PORT, single)
        return [single]
    _ = parse_address(f"{several['host']}:{several['last']}")  # is one
    address = Address.parse(parse_address(f"{several['host']}:{several['first']}"))
    first, last = int(several["first"]), int(several["last"])
    if first > last:
        raise _bad(text, "its range of ports runs backwards")
    if last - first >= _MOST_PORTS:
        raise _bad(text, f"its range has more than {_MOST_PORTS} ports")
    return [str(address.at(port)) for port in range(first, last + 1)]


def name_targets(addresses: Sequence[str]) -> tuple[Target, ...]:
    """Makes targets with unique worker names: the host's name if known, otherwise the address.

    Loopback gets this machine's own name; several workers of a host get the port added, here all but the one at the
    port that was the first (`tpumon.system.first_port`). Several spellings of one place are one worker, dialled by the
    first spelling.
    """
    by_place: dict[Address, str] = {}
    for address in addresses:
        by_place.setdefault(Address.parse(address).place, address)
    texts = list(by_place.values())
    hosts = [_host_name(Address.parse(text)) for text in texts]
    count = Counter(hosts)
    here = {place.port for text in texts if (place := Address.parse(text)).is_this_host}
    first = noted_first_port(here) if here else None

    def name(host: str | None, text: str) -> str:
        address = Address.parse(text)
        if host is None:
            return text
        bare = address.port == first if address.is_this_host else count[host] == 1
        return host if bare else f"{host}:{address.port}"

    names = [name(host, text) for host, text in zip(hosts, texts, strict=True)]
    repeated = {name for name, times in Counter(names).items() if times > 1}
    return tuple(
        Target(worker=text if name in repeated else name, address=text) for name, text in zip(names, texts, strict=True)
    )


def _host_name(address: Address) -> str | None:
    if address.is_this_host:
        return socket.gethostname()
    return address.host if address.ip is None else None


def _ipv6(text: str, host: str) -> str:
    try:
        return str(ipaddress.IPv6Address(host))
    except ValueError:
        raise _bad(text, "there is no IPv6 address in its brackets") from None


def _bad(text: str, why: str) -> UsageError:
    return UsageError(f"cannot use the address {text.strip()!r}: {why}; {_GOOD_FORM}")


@lru_cache(maxsize=4096)
def server_name(address: str) -> str:
    """The one name of the server at an address: a port of this host has several addresses."""
    try:
        place = Address.parse(address).place
    except ValueError:  # a scheme that only gRPC knows
        return address
    if place.host == socket.gethostname().lower() or (place.ip is not None and place.host == _own_ip(place.ip.version)):
        return f"localhost:{place.port}"
    return str(place)


def _own_ip(version: int) -> str | None:
    """IP address by which other hosts know this one; None: it has none. Asks the routing table, sends nothing.

    A host may have more addresses, of services or containers; there the same port may belong to another server.
    """
    family, elsewhere = (socket.AF_INET6, "2001:db8::1") if version == 6 else (socket.AF_INET, "192.0.2.1")
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((elsewhere, 9))
            return str(asking.getsockname()[0])
    except OSError:
        return None

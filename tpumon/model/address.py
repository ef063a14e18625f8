"""Network addresses."""

from __future__ import annotations

import ipaddress
from typing import Self

from msgspec import Struct


class Address(Struct, frozen=True):
    """A host and a port. As text, as gRPC dials it: `host:port`, IPv6 in brackets.

    Attributes:
        host: a name or an IP address, IPv6 without brackets.
        port: TCP port.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses `host:port`, IPv6 in brackets. `tpumon.discovery.addresses` parses what users write.

        Raises:
            ValueError: the text is not of this form.
        """
        host, _, port = text.rpartition(":")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """The host as an IP address; None for a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def is_this_host(self) -> bool:
        """True if the host is `localhost` or a loopback address."""
        return self.host == "localhost" if self.ip is None else self.ip.is_loopback

    @property
    def place(self) -> Address:
        """The canonical spelling of this address, for comparisons."""
        host = self.host.lower().rstrip(".")
        return Address("localhost" if host in {"localhost", "127.0.0.1", "::1"} else host, self.port)

    def at(self, port: int) -> Address:
        """The address of another port on the same host."""
        return Address(self.host, port)

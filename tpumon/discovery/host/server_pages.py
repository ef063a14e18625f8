"""Ports at which a server of models has its page of metrics, as its command line says.

Only a known server's own port is ever asked: what listens elsewhere may not speak HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct


class _Known(Struct, frozen=True, kw_only=True):
    """A server that has such a page.

    Attributes:
        command: its program, and its script or module.
        options: those that name the port of the page.
        port: the usual one; None: it has no page unless an option says so.
        needs: the option without which it has none.
        never: beginnings of options with which the port does not speak plain HTTP.
    """

    command: re.Pattern[bytes]
    options: tuple[bytes, ...]
    port: int | None
    needs: bytes | None = None
    never: tuple[bytes, ...] = ()


_KNOWN = (
    _Known(
        command=re.compile(rb"(?i)\bvllm\b(?!.*grpc)"),
        options=(b"metrics-port", b"port"),
        port=8000,
        never=(b"--grpc", b"--ssl-", b"--ssl_", b"--uds"),
    ),
    _Known(
        command=re.compile(rb"(?i)\bjetstream\.entrypoints\.http\b"),
        options=(b"prometheus-port",),
        port=9988,
    ),
    _Known(
        command=re.compile(rb"(?i)\b(?:maxengine_server|jetstream)\b"),
        options=(b"prometheus-port",),
        port=None,
    ),
    _Known(
        command=re.compile(rb"(?i)\b(?:sgl_jax|sglang)\b"),
        options=(b"port",),
        port=30000,
        needs=b"--enable-metrics",
        never=(b"--ssl-",),
    ),
)


def page_port_of(words: Sequence[bytes], arguments: Sequence[bytes]) -> int | None:
    """The port at which a process has a page of metrics if it listens there; None: it is no server that has one.

    Args:
        words: its program, and its script or module.
        arguments: the others.
    """
    command = b" ".join(words)
    known = next((known for known in _KNOWN if known.command.search(command)), None)
    if known is None or any(argument.startswith(known.never) for argument in arguments):
        return None
    if known.needs is not None and known.needs not in arguments:
        return None
    for option in known.options:
        given = _value(option, arguments)
        if given is not None:
            return int(given) if given.isdigit() and 0 < int(given[:6]) <= 65535 else None
    return known.port


def _value(option: bytes, arguments: Sequence[bytes]) -> bytes | None:
    """The value of an option that stands last: `--NAME N`, `--NAME=N` or `NAME=N`, with hyphens or underscores."""
    last = None
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition(b"=")
        if name.lstrip(b"-").replace(b"_", b"-") != option or not (equals or name.startswith(b"-")):
            continue
        last = value if equals else b"".join(arguments[place + 1 : place + 2])
    return last

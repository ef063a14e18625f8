"""A Prometheus endpoint."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
import time
from collections.abc import Callable

from tpumon.errors import UsageError
from tpumon.model import Sample, Workers
from tpumon.outputs import OutputOptions
from tpumon.text import one_line
from tpumon_exporters.pages import Pages
from tpumon_exporters.web import Open, Security, WebServer, listen

DEFAULT_PORT = 10466

_LOOPBACK = "127.0.0.1"
_MAX_PORT = 65535


class PrometheusOutput:
    """Serves what it is told until it is closed.

    Args:
        host: without brackets; empty: all interfaces.
        port: 0 for any that is free.
        options: what the user decided.
        clock: seconds since the epoch.

    Raises:
        UsageError: it cannot listen there, or the web-config file will not do.

    Attributes:
        address: `host:port` that it listens on, to connect to from this machine.
        listening: one line that says where.
        say: takes one line about trouble, from any thread; to be replaced where stderr is not the place.
    """

    def __init__(self, host: str, port: int, options: OutputOptions, *, clock: Callable[[], float] = time.time) -> None:
        self.say: Callable[[str], None] = _say
        security: Security = Open()
        if options.web_config is not None:
            from tpumon_exporters.webconfig import WebConfig

            security = WebConfig(options.web_config, self._tell)
        self._pages = Pages(options.level, clock, self._tell)
        listener = listen(host, port)
        port = listener.getsockname()[1]
        scheme = "https" if security.context() else "http"
        everywhere = host in {"", "::", "0.0.0.0"}
        self.address = f"{_LOOPBACK if everywhere else f'[{host}]' if ':' in host else host}:{port}"
        shown = f"{socket.gethostname()}:{port}" if everywhere else self.address
        self.listening = f"listening on {scheme}://{shown}/metrics{', on all interfaces' if everywhere else ''}"
        self._server = WebServer(listener, self._pages.answer, security, self._tell)

    def follow(self, found: Workers) -> None:
        """Those that are gone vanish from the page."""
        self._pages.follow(found)

    def write(self, sample: Sample) -> None:
        """On the page from the next scrape."""
        self._pages.add(sample)

    def close(self) -> None:
        """Lets scrapes that are under way get through, for 1 s at most."""
        self._server.close()

    def _tell(self, line: str) -> None:
        self.say(f"prometheus: {line}")


def open_prometheus(where: str, options: OutputOptions) -> PrometheusOutput:
    """Args:
        where: HOST:PORT; `PORT` is on 127.0.0.1, `:PORT` on all interfaces; without a port, 10466.

    Raises:
        UsageError: it is none of these, or cannot be had.
    """
    host, port = parse_listen(where)
    return PrometheusOutput(host, port, options)


def parse_listen(where: str) -> tuple[str, int]:
    """Host without brackets, empty for all interfaces, and port; see `open_prometheus`.

    Raises:
        UsageError: it is none of these.
    """
    text = where.strip()
    if re.fullmatch(r"[0-9]+", text):
        text = f"{_LOOPBACK}:{text}"
    form = re.fullmatch(r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:/\[\]\s]*))(?::(?P<port>[0-9]{1,5}))?", text)
    if form is None or int(form["port"] or 0) > _MAX_PORT:
        raise UsageError(
            f"cannot listen on {where!r}; give HOST:PORT, for example {_LOOPBACK}:{DEFAULT_PORT}, "
            f"[::1]:{DEFAULT_PORT}, or :{DEFAULT_PORT} for all interfaces"
        )
    host = form["v6"] or form["host"]
    port = DEFAULT_PORT if form["port"] is None else int(form["port"])
    return (host or ("" if form["port"] else _LOOPBACK)), port


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"tpumon: {one_line(line)}", file=sys.stderr, flush=True)  # noqa: T201 - where nobody else says it

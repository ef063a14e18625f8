"""The Prometheus endpoint."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
import time
from collections.abc import Callable

from tpumon.errors import UsageError
from tpumon.model import Address, Handover, Sample, Workers
from tpumon.outputs import OutputOptions, not_to_stdout
from tpumon.text import one_line
from tpumon_exporters.pages import Pages
from tpumon_exporters.web import Open, Security, WebServer, listen

DEFAULT_PORT = 10466

_LOOPBACK = "127.0.0.1"
_MAX_PORT = 65535


class PrometheusOutput:
    """Serves the pages over HTTP until it is closed.

    Args:
        host: without brackets; empty for all interfaces.
        port: 0 for any free port.
        run: settings of the run.
        clock: returns seconds since the epoch.

    Raises:
        UsageError: it cannot listen there, or the web-config file is invalid.

    Attributes:
        address: `host:port` to connect to from this machine.
        listening: one line that says where it listens.
        say: takes one line about a problem, from any thread; prints to stderr unless replaced.
        heartbeat_age_s: returns the seconds since the sampling loop last ran; 0 unless replaced.
        tick_s: seconds between ticks.
    """

    tick_s = 1.0

    def __init__(self, host: str, port: int, run: OutputOptions, *, clock: Callable[[], float] = time.time) -> None:
        self.say: Callable[[str], None] = _say
        self.heartbeat_age_s: Callable[[], float] = lambda: 0.0
        security: Security = Open()
        if run.web_config is not None:
            from tpumon_exporters.webconfig import WebConfig

            security = WebConfig(run.web_config, self._report)
        self._pages = Pages(run.level, clock, self._report, self._stuck_s, run.thresholds, run.run)
        listener = listen(host, port)
        port = listener.getsockname()[1]
        scheme = "https" if security.context() else "http"
        everywhere = host in {"", "::", "0.0.0.0"}
        self.address = str(Address(_LOOPBACK if everywhere else host, port))
        shown = Address(socket.gethostname(), port) if everywhere else self.address
        self.listening = f"listening on {scheme}://{shown}/metrics{', on all interfaces' if everywhere else ''}"
        self._server = WebServer(listener, self._pages.answer, security, self._report)

    def follow(self, workers: Workers) -> None:
        """Takes the workers to follow; others disappear from the pages."""
        self._pages.follow(workers)

    def write(self, sample: Sample) -> None:
        """Adds a sample, which the next scrape shows."""
        self._pages.add(sample)

    def take_over(self, handover: Handover) -> None:
        """Takes what another exporter knows, and hands it on to readers of this one."""
        self._pages.take_over(handover)

    def tick(self, now_unix_s: float) -> None:
        """Notes which workers fell silent."""
        self._pages.tick(now_unix_s)

    def close(self) -> None:
        """Stops listening; gives running scrapes at most 1 s to complete."""
        self._server.close()

    def _stuck_s(self) -> float:
        return self.heartbeat_age_s()

    def _report(self, line: str) -> None:
        self.say(f"prometheus: {line}")


@not_to_stdout
def open_prometheus(where: str, run: OutputOptions) -> PrometheusOutput:
    """Opens the output.

    Args:
        where: HOST:PORT; `PORT` alone listens on 127.0.0.1, `:PORT` on all interfaces; the default port is 10466.
        run: the level, and the web-config file.

    Raises:
        UsageError: `where` has none of these forms, it cannot listen there, or the web-config file is invalid.
    """
    host, port = parse_listen(where)
    return PrometheusOutput(host, port, run)


def parse_listen(where: str) -> tuple[str, int]:
    """Splits `where` of `open_prometheus` into the host, without brackets and empty for all interfaces, and the port.

    Raises:
        UsageError: it has none of the forms.
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
        print(f"tpumon: {one_line(line)}", file=sys.stderr, flush=True)  # noqa: T201 - the default of `say`

"""The Prometheus endpoint."""

from __future__ import annotations

import logging
import socket

from msgspec import Struct

from tpumon.analysis import Update
from tpumon.model import Address
from tpumon.outputs import Context, Output, not_to_stdout, takes
from tpumon.system.exporter_ports import LOOPBACK, AllowedReaders, parse_listen
from tpumon_exporters.pages import Pages
from tpumon_exporters.web import WebServer, listen
from tpumon_exporters.webconfig import WebConfig

_log = logging.getLogger(__name__)


class _Options(Struct, frozen=True, kw_only=True):
    """Options of the output.

    Attributes:
        readers: `own`: only processes of this user and of root on this host get an answer.
    """

    readers: AllowedReaders = "all"


class PrometheusOutput(Output):
    """Serves the pages over HTTP until it is closed.

    Args:
        host: without brackets; empty for all interfaces.
        port: 0 for any free port.
        context: the run.
        readers: whose processes get an answer, `own` or `all`.

    Raises:
        UsageError: it cannot listen there, or the web-config file is invalid.

    Attributes:
        address: `host:port` to connect to from this machine.
    """

    remembers = True

    def __init__(self, host: str, port: int, context: Context, readers: AllowedReaders = "all") -> None:
        config = WebConfig(context.settings.web_config)
        self._pages = Pages(context)
        listener = listen(host, port)
        port = listener.getsockname()[1]
        self.open_port = port if context.settings.web_config is None else None
        scheme = "https" if config.context() else "http"
        everywhere = host in {"", "::", "0.0.0.0"}
        self.address = str(Address(LOOPBACK if everywhere else host, port))
        shown = Address(socket.gethostname(), port) if everywhere else self.address
        self.listening = f"listening on {scheme}://{shown}/metrics{', on all interfaces' if everywhere else ''}"
        self._server = WebServer(listener, self._pages.answer, config, is_private=readers == "own")
        if readers == "all":
            _log.info("%s", self.listening)

    def on_update(self, update: Update) -> None:
        """Adds a sample, which the next scrape shows."""
        self._pages.on_update(update)

    def close(self) -> None:
        """Stops listening; gives running scrapes at most 1 s to complete."""
        self._server.close()


@not_to_stdout
@takes(_Options)
def open_prometheus(where: str, context: Context, options: _Options) -> PrometheusOutput:
    """Opens the output; `where`: HOST:PORT, or `PORT` on 127.0.0.1, or `:PORT` on all interfaces; 10466 by default."""
    host, port = parse_listen(where)
    return PrometheusOutput(host, port, context, options.readers)

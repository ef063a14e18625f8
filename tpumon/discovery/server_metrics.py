"""The pages of metrics of workers' servers, where the user names them (`--server-metrics`)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec.structs import replace

from tpumon.discovery.finder import Completed, Discovery
from tpumon.errors import UsageError
from tpumon.model import Target
from tpumon.untrusted_text import one_line

_log = logging.getLogger(__name__)

_GOOD_FORM = "give http://HOST:PORT/metrics, or WORKER=http://HOST:PORT/metrics"
_URLS = ("http://", "https://")


class WithServerMetrics(Completed):
    """Another discovery's workers, with the pages that were named.

    Args:
        discovery: finds the workers.
        pages: URLs by the worker's name or address; by "" that of the only worker.
    """

    def __init__(self, discovery: Discovery, pages: Mapping[str, str]) -> None:
        super().__init__(discovery)
        self._pages = pages
        self._said = False

    def _complete(self, targets: Sequence[Target]) -> Iterator[Target]:
        alone = self._pages.get("") if len(targets) == 1 else None
        if "" in self._pages and len(targets) > 1 and not self._said:
            self._said = True
            _log.warning("--server-metrics: there are several workers; say whose server it is: WORKER=URL")
        for target in targets:
            page = self._pages.get(target.worker) or self._pages.get(target.address) or alone
            yield target if page is None else replace(target, server_metrics=page)


def parse_server_metrics(texts: Sequence[str]) -> dict[str, str]:
    """Reads the option: URLs by worker, "" for one that names no worker.

    Raises:
        UsageError: one is not of this form.
    """
    pages: dict[str, str] = {}
    for text in texts:
        worker, url = ("", text.strip()) if text.strip().startswith(_URLS) else _divided(text.strip())
        if worker in pages:
            whose = f"worker {one_line(worker)}" if worker else "the only worker"
            raise UsageError(f"--server-metrics: two pages of {whose}")
        pages[worker] = _checked(url)
    return pages


def _divided(text: str) -> tuple[str, str]:
    worker, _, url = text.partition("=")
    if not worker.strip():
        raise UsageError(f"--server-metrics: {_GOOD_FORM}")
    return worker.strip(), url.strip()


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(f"--server-metrics: not a URL; {_GOOD_FORM}") from None
    if parts.username is not None or parts.password is not None:
        raise UsageError("--server-metrics: the URL has a password, which ps would show to everyone; leave it out")
    good = url.startswith(_URLS) and parts.hostname and not parts.query and not parts.fragment and port != 0
    if not good or not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError(f"--server-metrics: not the URL of a server's metrics; {_GOOD_FORM}")
    return url if parts.path.strip("/") else f"{url.rstrip('/')}/metrics"

"""Debian's Alertmanager with the example configuration, and a receiver that counts what it sends."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from fakes.run import environment
from support import REPOSITORY, free_port, require, wait_until
from support.prometheus import is_ready

CONFIGURATION = REPOSITORY / "grafana" / "prometheus" / "alertmanager.yml"
_START_S = 20


class Alertmanager:
    """A running Alertmanager.

    Attributes:
        url: its address.
        notifications: what came, in order: `receiver`, `groupKey`, `status`, `alerts`.
    """

    def __init__(self, url: str, notifications: list[Mapping[str, Any]]) -> None:
        self.url = url
        self.notifications = notifications

    def fire(self, *alerts: Mapping[str, str]) -> None:
        """Sends alerts as Prometheus does, by their labels."""
        now = datetime.now(UTC)
        told = [{"labels": alert, "startsAt": now.isoformat(), "endsAt": (now + timedelta(hours=1)).isoformat()}
                for alert in alerts]  # fmt: skip
        request = urllib.request.Request(
            f"{self.url}/api/v2/alerts", json.dumps(told).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=10).close()

    def pages(self) -> Mapping[str, list[set[str]]]:
        """The names of the alerts that fire in each page, update by update; by the key of the page."""
        pages: dict[str, list[set[str]]] = {}
        for each in list(self.notifications):
            if each["receiver"] == "pager":
                names = {alert["labels"]["alertname"] for alert in each["alerts"] if alert["status"] == "firing"}
                pages.setdefault(each["groupKey"], []).append(names)
        return pages

    def state(self) -> Mapping[str, str]:
        """`active` or `suppressed`, by the name of the alert."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=10) as answer:
            return {one["labels"]["alertname"]: one["status"]["state"] for one in json.load(answer)}


@contextmanager
def running_alertmanager(directory: Path, wait: str = "1s") -> Iterator[Alertmanager]:
    """An Alertmanager for a while, which waits less than usual before it sends.

    Args:
        directory: for its configuration and data.
        wait: `group_wait` and `group_interval`.
    """
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    require(program is not None, "prometheus-alertmanager")
    assert program is not None
    notifications: list[Mapping[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            notifications.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = yaml.safe_load(CONFIGURATION.read_text())
    settings["route"] |= {"group_wait": wait, "group_interval": wait}
    for receiver in settings["receivers"]:
        hook = {"url": f"http://127.0.0.1:{server.server_port}/", "send_resolved": True}
        receiver["webhook_configs"] = [hook]
    (directory / "alertmanager.yml").write_text(yaml.safe_dump(settings))
    port = free_port()
    command = [program, f"--config.file={directory}/alertmanager.yml", f"--storage.path={directory}/alertmanager",
               f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]  # fmt: skip
    with (directory / "alertmanager.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment(directory))
        try:
            alertmanager = Alertmanager(f"http://127.0.0.1:{port}", notifications)
            wait_until(lambda: is_ready(alertmanager.url), _START_S, lambda: "Alertmanager is ready")
            yield alertmanager
        finally:
            process.terminate()
            process.wait(20)
            server.shutdown()
            server.server_close()


def alert(name: str, severity: str = "critical", **labels: str) -> Mapping[str, str]:
    """The labels of an alert about one slice."""
    return {"alertname": name, "severity": severity, "tpu_job": "ml/t", "tpu_slice": "s", **labels}

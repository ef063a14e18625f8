"""Debian's Prometheus as a process of its own, to scrape what a test serves and to be asked what it made of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.run import environment
from support import free_port, require, wait_until

FIRST_SAMPLE_S = 30
"""It looks for targets every 5 s, so the first scrape comes after 5 to 7 s: one server for many tests."""

_START_S = 15
_ANSWER_S = 10


class Prometheus:
    """A running server.

    Attributes:
        url: its address, as in `http://127.0.0.1:9090`.
        pid: of its process.
    """

    def __init__(self, port: int, process: subprocess.Popen[bytes], log_file: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.pid = process.pid
        self._process = process
        self._log_file = log_file

    @property
    def log(self) -> str:
        """What it has printed: errors only."""
        return self._log_file.read_text(errors="replace")

    def api(self, path: str, **parameters: str | Sequence[str]) -> Any:
        """The `data` of `/api/v1/PATH`; fails the test with the server's message where it refuses.

        A parameter such as `match[]` goes in as `**{"match[]": ["up"]}`.
        """
        query = urllib.parse.urlencode(parameters, doseq=True)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=_ANSWER_S) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                pytest.fail(f"{path} {parameters}: {error.code}: {error.read().decode(errors='replace')}")
        assert told["status"] == "success", told
        return told["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """An instant query now: rows with `metric` (labels) and `value` ([time, text])."""
        data = self.api("query", query=expression)
        return [{"metric": {}, "value": data["result"]}] if data["resultType"] == "scalar" else data["result"]

    def values(self, expression: str, label: str = "worker") -> dict[str, float]:
        """An instant query's values by one label, which must tell its rows apart."""
        rows = self.query(expression)
        values = {row["metric"].get(label, ""): float(row["value"][1]) for row in rows}
        assert len(values) == len(rows), f"{expression}: {label} does not tell these apart: {rows}"
        return values

    def query_range(self, expression: str, start_unix_s: float, end_unix_s: float, step_s: float) -> list[Any]:
        """A range query: rows with `metric` and `values`."""
        span = {"start": f"{start_unix_s:.3f}", "end": f"{end_unix_s:.3f}", "step": f"{step_s:.3f}"}
        return self.api("query_range", query=expression, **span)["result"]

    def series(self, match: str) -> list[dict[str, str]]:
        """The label sets of all series that match, whenever they were there."""
        return self.api("series", **{"match[]": match})

    def label_values(self, label: str, match: str | None = None) -> list[str]:
        """What a variable `label_values(match, label)` of a dashboard offers."""
        return self.api(f"label/{label}/values", **({"match[]": match} if match else {}))

    def targets(self, job: str | None = None) -> list[dict[str, Any]]:
        """Its active targets, with `health`, `lastError`, `labels`; of one job or all."""
        active = self.api("targets", state="active")["activeTargets"]
        return [target for target in active if job in {None, target["labels"]["job"]}]

    def rules(self) -> list[dict[str, Any]]:
        """All rules with `name`, `type`, `health`, `lastError`."""
        return [rule for group in self.api("rules")["groups"] for rule in group["rules"]]

    def wait_for(self, expression: str, timeout_s: float = FIRST_SAMPLE_S) -> list[dict[str, Any]]:
        """Polls until the query has a result, and returns it."""
        return self._wait(lambda: self.query(expression), timeout_s, f"a result of {expression}")

    def wait_until_gone(self, expression: str, timeout_s: float = FIRST_SAMPLE_S) -> None:
        """Polls until the query has no result: the series are stale."""
        self._wait(lambda: not self.query(expression), timeout_s, f"no result of {expression}")

    def _wait(self, condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
        def alive() -> Any:
            assert self._process.poll() is None, f"Prometheus ended with {self._process.returncode}\n{self.log}"
            return condition()

        return wait_until(
            alive,
            timeout_s,
            lambda: (
                f"{what}; targets: {[(t['scrapeUrl'], t['health'], t['lastError']) for t in self.targets()]}"
                f"\n{self.log}"
            ),
        )


@contextmanager
def running_prometheus(
    directory: Path,
    scrape_configs: Sequence[Mapping[str, Any]],
    *,
    rule_files: Sequence[Path] = (),
    history: str | None = None,
    interval_s: float = 0.5,
    alertmanagers: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Iterator[Prometheus]:
    """A server for a while; what it scrapes must be there first. Skips the test where Prometheus is not installed.

    Args:
        directory: empty; for its configuration and data.
        scrape_configs: as in prometheus.yml, `[{"job_name": "tpumon", "static_configs": [{"targets": [...]}]}]`.
        rule_files: recording and alerting rules to evaluate.
        history: text in OpenMetrics format with timestamps in seconds, ending in `# EOF`: samples that it has already.
        interval_s: how often it scrapes and evaluates.
        alertmanagers: where it sends alerts, `host:port`.
        options: more of its command line.
    """
    require(shutil.which("prometheus") and shutil.which("promtool"), "Prometheus and promtool")
    data = directory / "data"
    if history is not None:
        text = directory / "history.om"
        text.write_text(history)
        promtool("tsdb", "create-blocks-from", "openmetrics", str(text), str(data))
    every = f"{round(interval_s * 1000)}ms"
    config = directory / "prometheus.yml"
    # JSON is YAML.
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
                "rule_files": [str(path.resolve()) for path in rule_files],
                "scrape_configs": list(scrape_configs),
                "alerting": {"alertmanagers": [{"static_configs": [{"targets": list(alertmanagers)}]}]},
            }
        )
    )
    promtool("check", "config", str(config))
    process, server = _start(directory, config, data, options)
    try:
        yield server
    finally:
        process.terminate()
        try:
            process.wait(_START_S)
        finally:
            process.kill()
            process.wait()


def promtool(*args: str, text: str | None = None, expect: int = 0, timeout_s: float = 60) -> str:
    """Runs promtool, with `text` on its stdin; what it printed. Fails the test where it ends with another status."""
    require(shutil.which("promtool"), "promtool")
    done = subprocess.run(
        ["promtool", *args], input=text, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == expect, f"promtool {' '.join(args)} ended with {done.returncode}\n{said}"
    return said


def _start(
    directory: Path, config: Path, data: Path, options: Sequence[str]
) -> tuple[subprocess.Popen[bytes], Prometheus]:
    """Somebody may take the free port before it does, so more than one try."""
    log_file = directory / "prometheus.log"
    for _ in range(3):
        port = free_port()
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={data}",
                    f"--web.listen-address=127.0.0.1:{port}",
                    "--log.level=error",
                    *options,
                ],
                cwd=directory,
                env=environment(directory),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        server = Prometheus(port, process, log_file)
        wait_until(lambda: process.poll() is not None or is_ready(server.url), _START_S, f"Prometheus\n{server.log}")  # noqa: B023
        if process.poll() is None:
            return process, server
        if "address already in use" not in server.log:
            break
    pytest.fail(f"Prometheus ended with {process.returncode}\n{server.log}")


def is_ready(url: str) -> bool:
    """True once Prometheus or Alertmanager serves."""
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=1):
            return True
    except OSError:
        return False

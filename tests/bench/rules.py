"""Processor time that Prometheus' rules take, by the number of workers.

A real Prometheus scrapes pages of many workers, one page a host, and evaluates the recording rules and the alerts as
often; once their windows are full, it says how long each group took. Target: less than 1 s a minute for 10,000 workers.

python tests/bench/rules.py [--workers 288 1000] [--minutes 7] [--interval 30]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlparse

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.alert_days import Fleet, train
from support.dashboards import RULE_FILES
from support.prometheus import running_prometheus
from tpumon.analysis.findings import RULES

WORKERS_OF_JOB, MOST_S = 32, 1.0


def pages(workers: int) -> dict[str, str]:
    """What the tpumon of each host says, by its name; a tenth of the workers have a finding."""
    fleet, found = Fleet(1), {rule.finding: () for rule in RULES}
    for job in range(workers // WORKERS_OF_JOB):
        has = {**found, "slow-down": [(0, 1, 2.0)]} if job % 10 == 0 else found
        train(fleet, WORKERS_OF_JOB, job=f"ml/job-{job}", found=has)
    told: dict[str, list[str]] = defaultdict(list)
    for series, values in fleet.series.items():
        labels = series.replace('job="tpumon", ', "")
        told[fleet.instances[series]].append(f"{labels} {values[0]:g}" if values[0] is not None else "")
    return {name: "\n".join(sorted(lines)) + "\n" for name, lines in told.items()}


def evaluated_s(workers: int, minutes: float, interval_s: float) -> float:
    """Seconds that all groups of rules take in one evaluation."""
    said = list(pages(workers).values())

    class Host(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = said[int(urlparse(self.path).path.rsplit("/", 1)[1])].encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Host)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_port}"
    paths = [{"targets": [address], "labels": {"__metrics_path__": f"/{number}", "instance": f"host-{number}"}}
             for number in range(len(said))]  # fmt: skip
    itself = {"job_name": "prometheus", "static_configs": [{"targets": [address]}], "metrics_path": "/0"}
    scrapes = [{"job_name": "tpumon", "static_configs": paths}, itself]
    with (
        tempfile.TemporaryDirectory() as directory,
        running_prometheus(Path(directory), scrapes, rule_files=RULE_FILES, interval_s=interval_s) as prometheus,
    ):
        time.sleep(60 * minutes)
        groups = prometheus.api("rules")["groups"]
        alerts = prometheus.query('count(ALERTS{alertstate="firing"})')
    print(f"  {len(said)} pages, {sum(map(len, said)) / 1e6:.1f} MB; alerts: {alerts[0]['value'][1] if alerts else 0}")
    server.shutdown()
    return sum(group["evaluationTime"] for group in groups)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, nargs="+", default=[288, 1000])
    parser.add_argument("--minutes", type=float, default=7.0, help="until the windows of the rules are full")
    parser.add_argument("--interval", type=float, default=30.0, help="seconds between two evaluations")
    settings = parser.parse_args()
    for workers in settings.workers:
        each_s = evaluated_s(workers, settings.minutes, settings.interval)
        a_minute_s = each_s * 60 / settings.interval
        print(f"{workers} workers: {each_s:.3f} s each, {a_minute_s:.2f} s a minute; "
              f"10,000 would take {a_minute_s * 10_000 / workers:.2f} s, target {MOST_S:g} s")  # fmt: skip


if __name__ == "__main__":
    main()

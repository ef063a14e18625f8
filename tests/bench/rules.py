"""Processor time that Prometheus' rules take, by the number of workers.

Two real Prometheus scrape the same pages of many workers, one page a host; one evaluates the recording rules and the
alerts, the other has none. The difference is what the rules cost, with what they write. Target: less than 1 s a minute
for 10,000 workers.

python tests/bench/rules.py [--workers 288 1024] [--warm-up 7] [--minutes 4]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlparse

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.alert_days import Fleet, train
from support.dashboards import OWN_RULE_FILES
from support.processes import cpu_s
from support.prometheus import running_prometheus
from tpumon.analysis.findings import RULES

WORKERS_OF_JOB, SCRAPED_EVERY_S, MOST_S = 32, 30.0, 1.0


def pages(workers: int) -> dict[str, str]:
    """What the tpumon of each host says, by its name; a tenth of the workers have a finding."""
    fleet = Fleet(1)
    none: dict[str, list[tuple[float, float, float]]] = {rule.finding: [] for rule in RULES}
    for job in range(workers // WORKERS_OF_JOB):
        has = {**none, "slow-down": [(0, 1, 2.0)]} if job % 10 == 0 else none
        train(fleet, WORKERS_OF_JOB, job=f"ml/job-{job}", found=has)
    told: dict[str, list[str]] = defaultdict(list)
    for series, values in fleet.series.items():
        labels = series.replace('job="tpumon", ', "")
        told[fleet.instances[series]].append(f"{labels} {values[0]:g}" if values[0] is not None else "")
    return {name: "\n".join(sorted(lines)) + "\n" for name, lines in told.items()}


def rules_s(workers: int, warm_up_minutes: float, minutes: float) -> float:
    """Seconds of processor time a minute that the rules take."""
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
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                running_prometheus(
                    Path(stack.enter_context(tempfile.TemporaryDirectory())),
                    scrapes,
                    rule_files=files,
                    interval_s=SCRAPED_EVERY_S,
                )
            )
            for files in (OWN_RULE_FILES, ())
        ]
        time.sleep(60 * warm_up_minutes)
        before = [cpu_s(prometheus.pid) for prometheus in running]
        time.sleep(60 * minutes)
        after = [cpu_s(prometheus.pid) for prometheus in running]
        groups = running[0].api("rules")["groups"]
        alerts = running[0].query('count(ALERTS{alertstate="firing"})')
    server.shutdown()
    print(f"  {len(said)} pages, {sum(map(len, said)) / 1e6:.1f} MB; alerts: {alerts[0]['value'][1] if alerts else 0}; "
          f"evaluation: {sum(group['evaluationTime'] for group in groups):.3f} s of the wall")  # fmt: skip
    with_rules, without = ((late - early) / minutes for early, late in zip(before, after, strict=True))
    print(f"  processor, s a minute: with rules {with_rules:.2f}, without {without:.2f}")
    return with_rules - without


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, nargs="+", default=[288, 1024])
    parser.add_argument("--warm-up", type=float, default=7.0, help="minutes until the windows of the rules are full")
    parser.add_argument("--minutes", type=float, default=4.0)
    settings = parser.parse_args()
    for workers in settings.workers:
        a_minute_s = rules_s(workers, settings.warm_up, settings.minutes)
        print(f"{workers} workers: {a_minute_s:.2f} s a minute; "
              f"10,000 would take {a_minute_s * 10_000 / workers:.2f} s, target {MOST_S:g} s")  # fmt: skip


if __name__ == "__main__":
    main()

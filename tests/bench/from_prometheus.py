"""A view of 2,304 workers, each with an exporter of its own, that one Prometheus scrapes: `--from http://prometheus`.

Targets: first picture under 3 s, refresh under 1 s and at most 5 queries, the straggler named, since when right. The
Prometheus is a real one; its blocks are made by promtool of a simulated job's samples, scraped every 2 minutes. Of two
refreshes one asks for the time of the next scrape, so it finds a new sample of every worker and asks for what is asked
once a minute; one is 5 s later. Where others use the machine, CPU time tells more than the clock.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.exported import Round, scraped
from support.prometheus import running_prometheus
from support.scenes import Scene
from tpumon.fleet import Fleet
from tpumon.model import Handover, Sample, Workers
from tpumon.prometheus import PrometheusReader, PrometheusServer
from tpumon.prometheus.queries import NAMES

WORKERS = int(sys.argv[1]) if len(sys.argv) > 1 else 2304
SCRAPES, INTERVAL_S, SLOW_FROM = 16, 120.0, 5
REFRESHES = 5
RUNS = 5
SLOW = WORKERS // 2


def rounds(begin_unix_s: float) -> Iterator[Round]:
    """What the exporters have at each scrape; one worker is slow from a scrape on."""
    scenario = f"straggler@{SLOW_FROM * INTERVAL_S:.0f}:worker={SLOW % 64}"
    scene = Scene(scenario, "v6e-256", interval_s=INTERVAL_S, computed=True)
    for number in range(SCRAPES):
        samples = list(scene.round(number))
        # 64 workers are simulated; the others are copies, without the slow one.
        healthy = samples[(SLOW + 1) % 64]
        made = [
            replace(
                samples[SLOW % 64] if worker == SLOW else healthy if worker % 64 == SLOW % 64 else samples[worker % 64],
                worker=f"tpu-w-{worker}", address=f"10.0.0.1:{worker + 1}", slice="s",
                time_unix_s=begin_unix_s + number * INTERVAL_S - 1.0,
            )
            for worker in range(WORKERS)
        ]  # fmt: skip
        yield begin_unix_s + number * INTERVAL_S, made


class Then(PrometheusServer):
    """A server that is asked as if it were another time."""

    then_unix_s = 0.0

    async def _post(self, path: str, parameters: Mapping[str, str], read: Any) -> Any:
        then = {"time": f"{self.then_unix_s:.3f}"} if path == "query" else {}
        return await super()._post(path, {**parameters, **then}, read)


async def measure(url: str, pid: int, begin_unix_s: float) -> None:
    """Reads as a live view does, and prints what it took."""
    server = Then(url)
    fleet = Fleet()
    took: list[tuple[float, ...]] = []
    asked: list[int] = []
    samples = 0

    def send(event: Workers | Sample | Handover) -> None:
        nonlocal samples
        fleet.take(event)
        samples += isinstance(event, Sample)

    reader = PrometheusReader(server, '{job="tpumon"}', poll_s=0.0, clock=lambda: server.then_unix_s)
    for refresh in range(2 * (1 + REFRESHES)):
        scrape, later = divmod(refresh, 2)
        server.then_unix_s = begin_unix_s + (SCRAPES - 1 - REFRESHES + scrape) * INTERVAL_S + 15 + 5 * later
        samples, before = 0, server.queries
        began = time.monotonic(), time.process_time(), _cpu_s(pid)
        await reader._refresh(send)
        found = fleet.assess(server.then_unix_s)
        ended = time.monotonic(), time.process_time(), _cpu_s(pid)
        took.append(tuple(later - earlier for earlier, later in zip(began, ended, strict=True)))
        asked.append(server.queries - before)
        assert samples == WORKERS, samples
    stragglers = [one for one in fleet.findings(server.then_unix_s) if one.finding == "straggler"]
    named = [worker for one in stragglers for worker in one.workers]
    since_s = (
        (stragglers[0].since_unix_s or 0.0) - begin_unix_s - SLOW_FROM * INTERVAL_S if stragglers else float("nan")
    )
    print(f"workers            {WORKERS}, as judged {dict(found.counts)}")
    print(f"first picture      {asked[0]} queries; {_shown(took[:1], 3)}")
    print(f"refresh, all new   at most {max(asked[2::2])} queries; {_shown(took[2::2], 1)}")
    print(f"refresh, 5 s later at most {max(asked[1::2])} queries; {_shown(took[1::2], 1)}")
    print(f"straggler          {named}: {_met(named == [f'tpu-w-{SLOW}'])}")
    print(f"since              {since_s:+.0f} s beside when it became slow: {_met(abs(since_s) <= 2 * INTERVAL_S)}")


def _shown(took: list[tuple[float, ...]], most_s: float) -> str:
    """Medians of what it took: the time, and CPU here and in Prometheus."""
    wall_s, ours_s, its_s = (statistics.median(column) for column in zip(*took, strict=True))
    return f"{wall_s:.2f} s, CPU {ours_s:.2f} s here and {its_s:.2f} s in Prometheus: {_met(wall_s < most_s)}"


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def main() -> None:
    begin_unix_s = time.time() - 30 - (SCRAPES - 1) * INTERVAL_S
    lines = scraped(
        rounds(begin_unix_s), lambda worker: f'job="tpumon",instance="{worker}:10466"', names=frozenset(NAMES)
    )
    with tempfile.TemporaryDirectory() as directory:
        history = "".join(lines) + "# EOF\n"
        print(f"history            {history.count(chr(10))} samples", flush=True)
        with running_prometheus(Path(directory), [], history=history) as prometheus:
            for _ in range(RUNS):
                asyncio.run(measure(prometheus.url, prometheus.pid, begin_unix_s))


if __name__ == "__main__":
    main()

"""A scrape of a fleet's page: ours beside prometheus_client's own generate_latest over as many series.

Targets: not slower with 16 workers, half its time with 1,000. Each measurement is a process of its own: the same
workers, of 26 series and a histogram of steps each and of findings, in the same history; then the page again and again.
`page` is making the text, `binary` the format that has native histograms; `http` is a whole scrape of each as
Prometheus does it, from connecting to the last byte, compressed, the exporter's threads included (the library's page is
served by nobody and has nothing to compare with that).

CPU is of the process, the asking client included for `http`. RSS is the process's highest, after the first page and at
the end: what pages add to the interpreter, the libraries and the history.
"""

from __future__ import annotations

import gzip
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

WORKERS = (16, 256, 1000)
ROUNDS = {16: 200, 256: 30, 1000: 10}
PROCESSES = 3
KINDS = ("library", "page", "binary", "http", "http-binary")


def measure(kind: str, workers: int) -> dict[str, float]:
    """In this process."""
    from support.exporter import get, sample, serving
    from tpumon.analysis import Analysis
    from tpumon.model import Spread, StepTimes, Target, Workers
    from tpumon_exporters.binary import CONTENT_TYPE

    now_unix_s = time.time()
    found = Workers(targets=tuple(Target(worker=f"tpu-w-{n}", address=f"10.0.0.1:{n + 1}") for n in range(workers)))
    samples = [
        sample(
            target.worker,
            time_unix_s=now_unix_s,
            device_type="TPU v5 Lite",
            cores=4,
            mxu_utilization_ratio=0.4 + number * 1e-5,
            idle_ratio=0.1 + number * 1e-5,
            step_time_s=StepTimes(avg=0.1, min=0.09, max=0.11 + number * 1e-5),
            infeed_ratio=Spread(avg=0.1, min=0.05, max=0.2),
            step_durations_s=(0.09, 0.1, 0.11),
            devices=tuple(
                {"device": str(device), "hbm_used_bytes": 17_179_869_184 + number, "hbm_total_bytes": 34_359_738_368}
                for device in range(4)
            ),
        )
        for number, target in enumerate(found.targets)
    ]
    fleet = Analysis()
    fleet.add(found)
    for each in samples:
        fleet.add(each)

    def timed(page: Callable[[], bytes]) -> dict[str, float]:
        size = len(page())
        first_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        walls, cpus = [], []
        for _ in range(ROUNDS[workers]):
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            page()
            walls.append(time.perf_counter() - wall_s)
            cpus.append(time.process_time() - cpu_s)
        last_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {
            "wall_ms": statistics.median(walls) * 1e3,
            "cpu_ms": statistics.median(cpus) * 1e3,
            "first_mib": first_kib / 1024,
            "last_mib": last_kib / 1024,
            "kib": size / 1024,
        }

    if kind == "library":
        from prometheus_client import generate_latest

        from support.library import Library

        return timed(lambda: generate_latest(Library(fleet.status(now_unix_s))))
    if kind in {"page", "binary"}:
        from tpumon_exporters.exposition import Exposition

        exposition = Exposition("bench")
        if kind == "binary":
            return timed(lambda: exposition.render_binary(fleet.status(now_unix_s)))
        return timed(lambda: exposition.render(fleet.status(now_unix_s)).encode(errors="replace"))
    with serving() as output:
        output.add(found)
        for each in samples:
            output.add(each)
        accept = CONTENT_TYPE if kind == "http-binary" else ""
        asked = partial(get, output, "/metrics", Accept_Encoding="gzip", Accept=accept)
        assert b"tpu_hbm_used_bytes" in gzip.decompress(asked().body)
        return timed(lambda: asked().body)


def main() -> None:
    print("workers  kind         wall ms  cpu ms   RSS MiB first/last     KiB   of the library's wall, cpu")
    for workers in WORKERS:
        got: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
        for _ in range(PROCESSES):  # taking turns: what else the machine does hits all alike
            for kind in KINDS:
                command = [sys.executable, __file__, kind, str(workers)]
                got[kind].append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        medians = {
            kind: {name: statistics.median(each[name] for each in runs) for name in runs[0]}
            for kind, runs in got.items()
        }
        library = medians["library"]
        for kind, value in medians.items():
            ratios = f"{value['wall_ms'] / library['wall_ms']:.2f}, {value['cpu_ms'] / library['cpu_ms']:.2f}"
            print(
                f"{workers:7d}  {kind:11s} {value['wall_ms']:8.2f} {value['cpu_ms']:7.2f} "
                f"{value['first_mib']:10.1f}/{value['last_mib']:.1f} {value['kib']:12.0f}   {ratios}"
            )
        ratio = medians["page"]["wall_ms"] / library["wall_ms"]
        target = 0.5 if workers >= 1000 else 1.0
        if workers != 256:
            print(f"         target {target}: {'met' if ratio <= target else 'MISSED'} with {ratio:.2f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main()

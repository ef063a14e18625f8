"""CPU time of what the live view does at 1,000 workers: judging a batch of samples, refreshing, a picture, a page.

    .venv/bin/python tests/bench/view_parts.py [REPOSITORY ...]

Each repository (this one without arguments) runs in processes of its own, which take turns; prints medians in ms, and
the ratio to the first.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
WORKERS = 1000
ROUNDS = 40
SETTLE = 20
PROCESSES = 5
SIZE = (120, 40)
NOW = 1_800_000_000.0


def measure() -> dict[str, float]:
    """In this process."""
    from support.samples import sample
    from support.shown import empty_display
    from tpumon.model import Spread, StepTimes, Target, Workers

    random_ = random.Random(0)
    display = empty_display()
    names = [f"tpu-w-{i:04}" for i in range(WORKERS)]
    display.take(Workers(targets=tuple(Target(worker=name, address=f"{name}:1") for name in names)))
    spent: dict[str, list[float]] = {"take": [], "refresh": [], "picture": [], "page": []}
    for number in range(SETTLE + ROUNDS):
        now = NOW + number
        batch = []
        for name in names:
            step_s = random_.gauss(0.18, 0.002)
            batch.append(
                sample(
                    name, time_unix_s=now - 0.5, window_s=1.0, interval_s=1.0, source="monitor",
                    device_type="TPU v5p", cores=8, mxu_method="server", step_source="server",
                    mxu_utilization_ratio=random_.gauss(0.5, 0.05), idle_ratio=random_.gauss(0.1, 0.01),
                    step_time_s=StepTimes(avg=step_s, min=step_s * 0.9, max=step_s * 1.1),
                    infeed_ratio=Spread(avg=0.03, min=0.02, max=random_.gauss(0.04, 0.01)),
                    step_parts_s={"high_flops_compute": step_s * 0.7, "idle": step_s * 0.1},
                    hbm_used_bytes=9 << 30, hbm_total_bytes=16 << 30,
                )
            )  # fmt: skip
        times = [time.process_time()]
        display.take(*batch)
        times.append(time.process_time())
        display.refresh(now)
        times.append(time.process_time())
        display.render(*SIZE, now)
        times.append(time.process_time())
        display.press("enter")
        display.render(*SIZE, now)
        times.append(time.process_time())
        display.press("esc")
        if number >= SETTLE:
            for costs, begin, end in zip(spent.values(), times, times[1:], strict=False):
                costs.append((end - begin) * 1e3)
    return {name: statistics.median(costs) for name, costs in spent.items()}


def main() -> None:
    """Prints the figures."""
    repositories = [Path(each).resolve() for each in sys.argv[1:]] or [REPOSITORY]
    got: dict[Path, list[dict[str, float]]] = {each: [] for each in repositories}
    for _ in range(PROCESSES):
        for repository in repositories:  # taking turns: what else the machine does hits all alike
            command = [sys.executable, __file__, "in", str(repository)]
            got[repository].append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    first: dict[str, float] = {}
    for repository, runs in got.items():
        medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        first = first or medians
        texts = (f"{name} {value:5.2f} ms ({value / first[name]:.2f})" for name, value in medians.items())
        print(f"{', '.join(texts)}   {repository}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["in"]:
        sys.path[:0] = [sys.argv[2], str(Path(sys.argv[2], "tests"))]
        print(json.dumps(measure()))
    else:
        main()

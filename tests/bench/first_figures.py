"""From typing `tpumon --level 2` to the first figures, on a host with one JAX job at a port of its own choice.

No option says where the job is, and no tpumon has traced it before. Target: 2 s plus the window.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
RUNS = 5
TARGET_S = 2.0


def main() -> None:
    sys.path.insert(0, str(REPOSITORY / "tests"))
    from support.jobs import start_jax

    taken = []
    with tempfile.TemporaryDirectory() as directory:
        job = start_jax(Path(directory), "0.10.2")
        try:
            for run in range(RUNS):
                env = {**os.environ, "TPUMON_PAUSE_DIR": f"{directory}/{run}"}  # else each would pay for those before
                Path(env["TPUMON_PAUSE_DIR"]).mkdir()
                command = [sys.executable, "-m", "tpumon", "--level", "2", "--num-queries", "1", "--output", "jsonl"]
                started_s = time.monotonic()
                done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
                took_s = time.monotonic() - started_s
                samples = [json.loads(line) for line in done.stdout.splitlines()]
                (sample,) = [sample for sample in samples if sample["address"] == job.address]
                assert sample["step_time_s"], sample
                taken.append((took_s, sample["window_s"]))
        finally:
            job.stop()
    took_s = statistics.median(took for took, _ in taken)
    window_s = statistics.median(window for _, window in taken)
    print(
        f"first figures after {took_s:.2f} s (of {RUNS}: {min(taken)[0]:.2f} to {max(taken)[0]:.2f}), a window of "
        f"{window_s:.2f} s included: {took_s / (TARGET_S + window_s):.2f} of the target"
    )


if __name__ == "__main__":
    main()

"""CPU seconds of `--help` and `--version`, whole processes, beside an empty interpreter. Target: 0.4 s or less."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

RUNS = 7
TARGET_S = 0.4

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "tpumon --version": ["-m", "tpumon", "--version"],
    "tpumon --help": ["-m", "tpumon", "--help"],
}


def cpu_s(arguments: list[str]) -> float:
    """User and system time of one run, children included."""
    before = os.times()
    # With modules compiled, as installed ones are.
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, env=compiled)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def main() -> None:
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for run in range(RUNS + 1):  # the first warms up; then in turn, so that a slow moment hits all alike
        for name, arguments in COMMANDS.items():
            seconds = cpu_s(arguments)
            if run:
                taken[name].append(seconds)
        time.sleep(0.05)
    for name, seconds_all in taken.items():
        median = statistics.median(seconds_all)
        low, high = min(seconds_all), max(seconds_all)
        print(f"{name:18} CPU {median:.3f} s (min {low:.3f}, max {high:.3f}), {median / TARGET_S:.2f} of the target")


if __name__ == "__main__":
    main()

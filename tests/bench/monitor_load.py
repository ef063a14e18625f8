"""CPU share and RSS of tpumon following 8 and 256 workers by Monitor once a second.

The workers are simulated by a process of their own. Targets: 2 % of a core and 60 MB; 20 % and 120 MB.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TARGETS = {8: (0.02, 60), 256: (0.20, 120)}
SETTLE_S = 5.0
SPAN_S = 20.0
WINDOW_MS = 200
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
FIRST_PORT = 21000


@contextmanager
def tpumon(*arguments: str, stdout: int) -> Iterator[subprocess.Popen[str]]:
    """tpumon while the block runs; interrupted at its end."""
    with subprocess.Popen([sys.executable, "-m", "tpumon", *arguments], stdout=stdout, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(10)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1000


def main() -> None:
    with tpumon("simulate", "v3-2048", "--port", str(FIRST_PORT), stdout=subprocess.PIPE) as simulator:
        assert simulator.stdout is not None
        while "watch it:" not in (line := simulator.stdout.readline()):
            assert line, "the simulator did not start"
        addresses = line.split()[-1].split(",")
        for workers, (target_ratio, target_mb) in TARGETS.items():
            options = ["--level", "2", "--interval", "1", "--duration-ms", str(WINDOW_MS), "--service-addr"]
            with tpumon(*options, ",".join(addresses[:workers]), stdout=subprocess.DEVNULL) as monitor:
                time.sleep(SETTLE_S)
                before_s, started_s = cpu_s(monitor.pid), time.monotonic()
                time.sleep(SPAN_S)
                ratio = (cpu_s(monitor.pid) - before_s) / (time.monotonic() - started_s)
                size_mb = rss_mb(monitor.pid)
            print(
                f"{workers:4} workers: {ratio:6.1%} of a core ({ratio / target_ratio:.2f} of the target), "
                f"RSS {size_mb:.0f} MB ({size_mb / target_mb:.2f} of the target)"
            )


if __name__ == "__main__":
    main()

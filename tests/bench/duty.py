"""For how much of a job's time it is traced, by tpumons that run in different numbers and ways, in real processes.

Each row has a server of its own, whose every call of Profile is noted from its beginning to its end. All rows run at
once: `duty.py --minutes 10`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.tpu_node import TpuNode

TPUMON = (sys.executable, "-P", "-m", "tpumon")


class Row:
    """One way to run tpumon, until the time is over.

    Args:
        name: what the table calls it.
        address: of the server.
        run: starts and ends processes; takes the row.
    """

    def __init__(self, name: str, node: TpuNode, run: Callable[[Row], None]) -> None:
        self.name = name
        self.node = node
        self.ends_s = 0.0
        self.thread = threading.Thread(target=run, args=(self,))

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """A tpumon that follows the server."""
        command = [*TPUMON, *words, "--service-addr", self.node.address]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait(self, at_most_s: float = float("inf")) -> bool:
        """Waits; returns whether the time is not over."""
        time.sleep(max(0.0, min(at_most_s, self.ends_s - time.monotonic())))
        return time.monotonic() < self.ends_s

    def spans(self) -> list[tuple[float, float]]:
        """When the job was traced, probes included."""
        now_s = time.monotonic()
        return [(call.at, call.ended or now_s) for call in self.node.of("Profile")]


def share(spans: list[tuple[float, float]], begin_s: float, end_s: float) -> float:
    """The share of a span of time for which the job was traced."""
    return sum(max(0.0, min(end, end_s) - max(begin, begin_s)) for begin, end in spans) / (end_s - begin_s)


def together(count: int, *words: str) -> Callable[[Row], None]:
    """So many at once."""

    def run(row: Row) -> None:
        running = [row.start(*words) for _ in range(count)]
        row.wait()
        for process in running:
            process.terminate()
        for process in running:
            process.wait()

    return run


def again(seconds: float, how: signal.Signals) -> Callable[[Row], None]:
    """One that is ended by a signal after so many seconds, and started again."""

    def run(row: Row) -> None:
        while True:
            process = row.start("--output", "jsonl")
            goes_on = row.wait(seconds)
            process.send_signal(how)
            process.wait()
            if not goes_on:
                return

    return run


def loop(*words: str) -> Callable[[Row], None]:
    """A command that ends by itself, again and again."""

    def run(row: Row) -> None:
        while row.wait(0.0):
            process = row.start(*words)
            while process.poll() is None:
                if not row.wait(0.2):
                    process.kill()
            process.wait()

    return run


WAYS: dict[str, Callable[[Row], None]] = {
    "one": together(1, "--output", "jsonl"),
    "one, as often as it may": together(1, "--output", "jsonl", "--interval", "0"),
    "ten at once": together(10, "--output", "jsonl"),
    "restarted every 4 s": again(4.0, signal.SIGTERM),
    "killed every 4 s": again(4.0, signal.SIGKILL),
    "once in a loop": loop("once"),
    "why in a loop": loop("why"),
}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as directory:
        os.environ.update(TPUMON_PAUSE_DIR=directory, TPUMON_CONFIG="")
        rows = [Row(name, TpuNode(device=True).__enter__(), run) for name, run in WAYS.items()]
        for row in rows:
            row.ends_s = time.monotonic() + 60 * minutes
            row.thread.start()
        for row in rows:
            row.thread.join()
        print(f"{'share of time traced, in %':<28} {'all':>6} {'first minute':>13} {'largest minute':>15} {'calls':>6}")
        for row in rows:
            spans = row.spans()
            begun_s = spans[0][0]
            largest = max(share(spans, begin, begin + 60) for begin, _ in spans)
            figures = share(spans, begun_s, row.ends_s), share(spans, begun_s, begun_s + 60), largest
            all_of_it, first, most = (f"{100 * figure:.2f}" for figure in figures)
            print(f"{row.name:<28} {all_of_it:>6} {first:>13} {most:>15} {len(spans):>6}", flush=True)
            row.node.stop()


main()

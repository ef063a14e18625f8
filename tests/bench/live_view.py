"""CPU share of a core and memory of the live view at 1 Hz.

It runs alone in a private tmux of 120x40 without a client; the thread that makes the samples up does not count. Twice:
with samples as of an exporter, which judged them, and judging them. Then the real command with 256 workers, served by a
process of its own.
Targets, without judging: 0.5 % at 8, 1 % at 256, 2 % at 1000; whole process 80 MB at 256; first picture within 0.3 s
of CPU.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from support.processes import status  # noqa: E402
from support.samples import sample  # noqa: E402
from tpumon.model import Sample, Spread, StepTimes, Target, Workers  # noqa: E402

WORKERS = (1, 8, 256, 1000)
TARGETS = {1: 0.005, 8: 0.005, 256: 0.01, 1000: 0.02}
TARGET_MB = 80
TARGET_FIRST_S = 0.3
SETTLE_S = 3.0
SPAN_S = 15.0
BATCHES_PER_S = 20  # every worker has a clock of its own, so samples come spread over the second
FIRST_PORT = 22000
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in {"PYTHONDONTWRITEBYTECODE", "TMUX"}}


class Feed:
    """Samples of so many workers, each once a second, from a thread whose id is written to a file."""

    def __init__(self, count: int, thread_file: Path, *, judged: bool) -> None:
        self._judged = {"findings": (), "judged": ()} if judged else {}
        self.targets = tuple(Target(worker=f"tpu-w-{i:04}", address=f"10.0.0.1:{i + 1}") for i in range(count))
        self.read_end, self._write_end = os.pipe()
        for end in (self.read_end, self._write_end):
            os.set_blocking(end, False)
        self._lock = threading.Lock()
        self._waiting: list[Workers | Sample] = [Workers(targets=self.targets)]
        threading.Thread(target=self._run, args=(thread_file,), daemon=True).start()

    def fetch(self) -> tuple[Sequence[Workers | Sample], bool]:
        with self._lock:
            fetched, self._waiting = self._waiting, []
        return fetched, False

    def _run(self, thread_file: Path) -> None:
        thread_file.write_text(str(threading.get_native_id()))
        batch = 0
        while True:
            made = [self._sample(target) for target in self.targets[batch % BATCHES_PER_S :: BATCHES_PER_S]]
            batch += 1
            with self._lock:
                wakes = made and not self._waiting
                self._waiting += made
            if wakes:
                os.write(self._write_end, b"\0")
            time.sleep(1 / BATCHES_PER_S)

    def _sample(self, target: Target) -> Sample:
        step_s = random.gauss(0.18, 0.01)
        return sample(
            target.worker, address=target.address, time_unix_s=time.time(), window_s=1.0, took_s=0.1,
            interval_s=1.0, source="monitor", device_type="TPU v5p", cores=8, mxu_method="server",
            mxu_utilization_ratio=random.gauss(0.5, 0.05), idle_ratio=random.gauss(0.1, 0.02), step_source="server",
            step_time_s=StepTimes(avg=step_s, min=step_s * 0.9, max=step_s * 1.1),
            infeed_ratio=Spread(avg=0.03, min=0.02, max=random.gauss(0.04, 0.01)),
            **self._judged,
        )  # fmt: skip


def be_ours(feed: Feed) -> None:
    from support.shown import empty_display
    from tpumon.outputs.live.loop import live

    display = empty_display()
    live.run(display, feed.fetch, feed.read_end, deliver=display.add)  # type: ignore[arg-type]


def busy_s(pid: int, without: int | None = None) -> float:
    """CPU seconds of a process's threads."""
    tasks = [task for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(without)]
    busy_ns = 0
    for task in tasks:
        with contextlib.suppress(FileNotFoundError):  # a thread that ended meanwhile
            busy_ns += int((task / "schedstat").read_text().split()[0])
    return busy_ns / 1e9


def measure(command: Sequence[str], thread_file: Path | None = None) -> tuple[float, float]:
    """CPU share of a core and RSS in MB of a command in a tmux."""
    from support.terminal import Tmux

    with Tmux(command, environment=ENVIRONMENT, columns=120, lines=40) as tmux:
        time.sleep(SETTLE_S)
        pid = int(tmux.ask("#{pane_pid}"))
        thread = int(thread_file.read_text()) if thread_file else None
        before_s, started_s = busy_s(pid, thread), time.monotonic()
        time.sleep(SPAN_S)
        assert tmux.ask("#{alternate_on} #{pane_dead}") == "1 0", f"it does not run:\n{tmux.text}"
        return (busy_s(pid, thread) - before_s) / (time.monotonic() - started_s), status(pid, "VmRSS") / 1000


def compare() -> None:
    with tempfile.TemporaryDirectory() as directory:
        thread_file = Path(directory, "thread")
        for count in WORKERS:
            child = [sys.executable, __file__]
            ours, ours_mb = measure([*child, "ours", str(count), str(thread_file)], thread_file)
            judging, judging_mb = measure([*child, "judging", str(count), str(thread_file)], thread_file)
            print(
                f"{count:4} workers: {ours:.2%} of a core ({ours / TARGETS[count]:.2f} of the target), "
                f"RSS {ours_mb:.0f} MB; judging as well {judging:.2%}, RSS {judging_mb:.0f} MB",
                flush=True,
            )


@contextmanager
def workers(topology: str) -> Iterator[list[str]]:
    """The addresses of a simulated TPU in another process."""
    command = [sys.executable, "-m", "tpumon", "simulate", topology, "--port", str(FIRST_PORT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as simulator:
        try:
            assert simulator.stdout is not None
            while "watch it:" not in (line := simulator.stdout.readline()):
                assert line, "the simulator did not start"
            yield line.split("--service-addr ")[1].split()[0].split(",")
        finally:
            simulator.send_signal(signal.SIGTERM)


def first_picture_s(command: Sequence[str], shows: str) -> float:
    """CPU seconds of a command until its screen shows this."""
    from support.terminal import Terminal

    environment = ENVIRONMENT | {"TERM": "xterm-256color"}
    with Terminal(command, environment=environment, columns=120, lines=40) as terminal:
        taken_s: list[float] = []

        def seen() -> bool:
            taken_s.append(busy_s(terminal.process.pid))
            return shows in terminal.text

        terminal.wait_for(seen)
        return taken_s[-1]


def measure_command() -> None:
    with workers("v3-2048") as addresses:
        where = ["--level", "2", "--interval", "1", "--duration-ms", "200", "--service-addr", ",".join(addresses)]
        command = [sys.executable, "-m", "tpumon", *where, "--output", "live"]
        for text, shows in (("the first picture", "tpumon"), ("the first figures", "LIVE")):
            first_s = min(first_picture_s(command, shows) for _ in range(3))
            print(f"256 workers: {first_s:.2f} s of CPU to {text} ({first_s / TARGET_FIRST_S:.2f} of the target)")
        share, size_mb = measure(command)
        print(
            f"256 workers, sampling by Monitor included: {share:.1%} of a core, "
            f"RSS {size_mb:.0f} MB ({size_mb / TARGET_MB:.2f} of the target)"
        )


def main() -> None:
    if len(sys.argv) > 1:
        be_ours(Feed(int(sys.argv[2]), Path(sys.argv[3]), judged=sys.argv[1] != "judging"))
    else:
        compare()
        measure_command()


if __name__ == "__main__":
    main()

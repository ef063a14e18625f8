"""A day of 64 workers, in 55 minutes: is memory flat, and is every exported figure what the job said?

48 workers answer the Monitor RPC, 16 return traces; 8 more change their names with every change of the targets file,
with 40 that nobody ever reaches. Each worker by Monitor is asked every 0.375 s and so as often in 54 minutes as in a
day at every 10 s. Those by traces are asked as often as 10 % of their time allows (the default is 1 %): less often
than in a day. Names come and go, 80,000 an hour. Faults are drawn from a seed, the clock of
tpumon jumps by up to a year, and its page of metrics is scraped every 5 s.

Ends with 1 if anything grows or a figure is false. Needs root, or user namespaces, for a network of its own.

python tests/bench/soak.py [--minutes 5 | --day] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from soaking.job import NETWORK, address_of
from soaking.ledger import Ledger
from soaking.skewed import OFFSET
from soaking.vitals import VITALS, Course

from support import own_network

SOAKING = Path(__file__).with_name("soaking")
BY_MONITOR, BY_TRACES, GUESTS, GHOSTS = 48, 16, 8, 40
INTERVAL_S, WINDOW_MS, MAX_DUTY = 0.375, 200, 0.1
DAY_MINUTES = 8640 * INTERVAL_S / 60 + 1  # and one to start
SCRAPE_S, NOTE_S = 5.0, 10.0
SETTLED_S = 4.0  # after which what was said and what was exported have arrived here
JUMPS_S = (0.0, 0.0, -3600.0, 3600.0, -30.0, 365 * 86400.0)
LISTEN = "127.0.0.1:10466"
CHANGE_S = 2.2  # the targets file is read every 2 s


class Soak:
    """The two processes, and what came of them.

    Args:
        directory: for the targets file, the clock's offset and stderr.
        seed: of the faults.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self._dice = random.Random(seed)
        self._targets = directory / "targets.json"
        self.ledger = Ledger()
        self.lines: queue.SimpleQueue[tuple[float, str, str]] = queue.SimpleQueue()
        self.changes = 0
        self.unanswered: list[str] = []
        self.faults: Counter[str] = Counter()
        self.traced_s: Counter[str] = Counter()
        self.refused_writes = 0
        self._samples: deque[tuple[float, dict[str, Any]]] = deque()
        self.pages: deque[tuple[float, str]] = deque()
        self._heard: set[str] = set()
        self.workers = [f"w-{number}" for number in range(BY_MONITOR + BY_TRACES)]

    def change_names(self) -> None:
        """Writes the targets file with new names for all but the 64 workers."""
        self.changes += 1
        guests = [address_of(place) for place in range(GUESTS)]
        ghosts = [f"10.65.{place >> 8}.{place & 255}:8466" for place in range(1, GHOSTS + 1)]
        rows = [(f"w-{number}", address_of(GUESTS + number)) for number in range(BY_MONITOR + BY_TRACES)]
        rows += [(f"guest-{self.changes}-{place}", address) for place, address in enumerate(guests)]
        rows += [(f"ghost-{self.changes}-{place}", address) for place, address in enumerate(ghosts)]
        groups = [{"targets": [address], "labels": {"worker": worker, "slice": "soak"}} for worker, address in rows]
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps(groups))
        new.replace(self._targets)

    @property
    def names(self) -> int:
        """How many names have surely come: those of changes of which a guest was heard."""
        return len(self._heard) * (GUESTS + GHOSTS)

    def take(self, now_s: float) -> None:
        """Takes what both processes printed, and checks what has settled."""
        while not self.lines.empty():
            read_s, source, line = self.lines.get()
            (self._take_told if source == "job" else self._take_sample)(read_s, json.loads(line))
        while self._samples and self._samples[0][0] < now_s - SETTLED_S:
            self.ledger.check_sample(self._samples.popleft()[1])
        while self.pages and self.pages[0][0] < now_s - SETTLED_S:
            self.ledger.check_page(*self.pages.popleft(), self.workers)

    def _take_told(self, _read_s: float, told: dict[str, Any]) -> None:
        if told["kind"] == "fault":
            self.faults[told["fault"]] += 1
            self.refused_writes += told["refused_writes"]
        elif told["kind"] == "traced":
            self.traced_s[told["address"]] += told["traced_s"]
        elif "address" in told:
            self.ledger.said(told)

    def _take_sample(self, read_s: float, raw: dict[str, Any]) -> None:
        self._samples.append((read_s, raw))
        worker = raw["worker"]
        if worker.startswith("w-"):
            self.ledger.sample(read_s, raw)
        elif worker.startswith("guest-"):
            self._heard.add(worker.split("-")[1])

    def scrape(self) -> None:
        """Keeps the page of metrics, to be checked when it has settled; asks whether tpumon is well."""
        started_s = time.monotonic()
        page = self._get("/metrics")
        # A figure may be older than the answer by as long as the answer took.
        self.pages.append(((started_s + time.monotonic()) / 2, page))
        self._get("/-/healthy")

    def _get(self, path: str) -> str:
        """The page; empty if there is none within 30 s, or it is not 200."""
        try:
            with urllib.request.urlopen(f"http://{LISTEN}{path}", timeout=30) as answer:
                return str(answer.read().decode())
        except OSError as error:
            self.unanswered.append(f"{path}: {error}")
            return ""


@contextmanager
def _process(
    *command: str | Path, lines: queue.SimpleQueue[tuple[float, str, str]], name: str, stderr: Path
) -> Iterator[subprocess.Popen[str]]:
    """A process while the block runs; its lines are put into the queue."""

    def read(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put((time.monotonic(), name, line))

    with (
        stderr.open("w") as errors,
        subprocess.Popen(
            [sys.executable, *map(str, command)], stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        reader = threading.Thread(target=read, args=(process,), daemon=True)
        reader.start()
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
            reader.join(10)


def _run(soak: Soak, directory: Path, minutes: float, seed: int) -> tuple[Course, str, int]:
    """Lets both processes run; returns the course of tpumon, its stderr and its exit status."""
    offset_file, stderr = directory / "offset", directory / "stderr"
    offset_file.write_bytes(OFFSET.pack(0.0))
    soak.change_names()
    monitor = (SOAKING / "skewed.py", offset_file, "--level", "2", "--targets", directory / "targets.json",
               "--interval", str(INTERVAL_S), "--duration-ms", str(WINDOW_MS), "--max-duty", str(MAX_DUTY),
               "--max-trace-mb", "8", "--output", "jsonl", "--listen", LISTEN)  # fmt: skip
    job = (SOAKING / "job.py", str(BY_MONITOR + BY_TRACES + GUESTS), str(GUESTS + BY_MONITOR), str(seed))
    with _process(*job, lines=soak.lines, name="job", stderr=directory / "job"):
        while '"ready"' not in soak.lines.get(timeout=60)[2]:
            pass
        with (
            _process(*monitor, lines=soak.lines, name="monitor", stderr=stderr) as tpumon,
            offset_file.open("r+b") as file,
        ):
            offset = mmap.mmap(file.fileno(), OFFSET.size)
            course = Course(tpumon.pid)
            while not soak.ledger.taken:
                soak.take(time.monotonic())
                time.sleep(0.1)
            _watch(soak, course, tpumon, offset, time.monotonic() + 60 * minutes)
            if tpumon.poll() is None:
                soak.scrape()
                scraped_s, page = soak.pages[-1]
                time.sleep(2 * SETTLED_S)
                soak.take(time.monotonic())
                soak.ledger.check_totals(scraped_s, page, soak.workers)
    soak.take(time.monotonic() + 2 * SETTLED_S)
    return course, stderr.read_text(), tpumon.returncode


def _watch(soak: Soak, course: Course, tpumon: subprocess.Popen[str], offset: mmap.mmap, until_s: float) -> None:
    dice = random.Random(0)
    scrape_s = note_s = change_s = time.monotonic() + SCRAPE_S
    jump_s, told_s = scrape_s + 20, scrape_s + 60
    while (now_s := time.monotonic()) < until_s and tpumon.poll() is None:
        soak.take(now_s)
        if now_s >= change_s:
            change_s = now_s + CHANGE_S
            soak.change_names()
        if now_s >= jump_s:
            jump_s = now_s + dice.uniform(5, 40)
            offset[:] = OFFSET.pack(dice.choice(JUMPS_S))
        if now_s >= scrape_s:
            scrape_s = now_s + SCRAPE_S
            soak.scrape()
        if now_s >= note_s:
            note_s = now_s + NOTE_S
            course.note()
        if now_s >= told_s:
            told_s = now_s + 60
            counts, memory_mb = soak.ledger.counts, course.values[VITALS[0].name][-1]
            print(f"... {counts['samples']} samples, {soak.names} names, {counts['false']} false, "
                  f"RSS {memory_mb:.0f} MB, load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
        time.sleep(0.2)


def _report(soak: Soak, course: Course, stderr: str, status: int, elapsed_s: float) -> bool:
    """Prints the table; whether all is well."""
    counts, ledger = soak.ledger.counts, soak.ledger
    monitor = sorted(soak.ledger.taken[f"w-{number}"] for number in range(BY_MONITOR))
    traces = sorted(soak.ledger.taken[f"w-{number}"] for number in range(BY_MONITOR, BY_MONITOR + BY_TRACES))
    print(f"{elapsed_s:.0f} s; {counts['samples']} samples, {soak.names} names, {counts['pages']} scrapes; queries per "
          f"worker: {monitor[0]} to {monitor[-1]} by Monitor, {traces[0]} to {traces[-1]} by traces")  # fmt: skip
    print(f"faults: {dict(soak.faults.most_common())}")
    print(f"failures said: {dict(ledger.reasons.most_common())}")
    print(f"\n{'':<20} {'2nd qu.':>9} {'last qu.':>9} {'most':>9} {'slope':>13}")
    rows = course.rows()
    for words, _ in rows:
        print(words)
    print(f"\nchecked: figures of {counts['figures as said']} samples, HBM of {counts['hbm_used as said']}, "
          f"{counts['series as sampled']} series of scrapes; FALSE: {counts['false']}")  # fmt: skip
    print(f"not checked: {counts['from damaged answers']} samples from damaged answers, "
          f"{counts['of parts of traces']} that say they cover part of a trace")  # fmt: skip
    most_traced = max(soak.traced_s.values(), default=0.0) / elapsed_s
    bad_lines = [
        line for line in stderr.splitlines() if "Traceback" in line or "a bug in tpumon" in line or "\x1b" in line
    ]
    problems = {
        "a worker was traced too much": most_traced > 1.05 * MAX_DUTY + 1 / elapsed_s,
        f"{soak.refused_writes} writes into a job's directory": soak.refused_writes > 0,
        f"{len(soak.unanswered)} pages without an answer, {soak.unanswered[:3]}": bool(soak.unanswered),
        f"exit status {status}": status != 130,
        f"{len(bad_lines)} bad lines on stderr, {bad_lines[:1]}": bool(bad_lines),
        "figures are false": counts["false"] > 0,
        "something grows": not all(flat for _, flat in rows),
        "nothing was checked": not (counts["figures as said"] and counts["series as sampled"]),
    }
    print(
        f"stderr: {len(stderr.splitlines())} lines; traced at most {most_traced:.2%} of the time (limit {MAX_DUTY:.0%})"
    )
    found = [words for words, is_bad in problems.items() if is_bad]
    print("\n" + ("; ".join(found).upper() if found else "all is well"))
    return not found


def main() -> None:
    """Runs it and prints what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default: 5)")
    parser.add_argument("--day", action="store_true", help=f"a day's queries, in {DAY_MINUTES:.0f} minutes")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the faults (default: random)")
    given = parser.parse_args()
    if why := own_network.enter():
        sys.exit(f"soak: no network of its own: {why}")
    subprocess.run(["ip", "route", "add", "local", NETWORK, "dev", "lo"], check=True)
    print(f"seed {given.seed}", flush=True)
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        soak = Soak(directory, given.seed)
        course, stderr, status = _run(soak, directory, DAY_MINUTES if given.day else given.minutes, given.seed)
        elapsed_s = time.monotonic() - started_s
        sys.exit(not _report(soak, course, stderr, status, elapsed_s))


if __name__ == "__main__":
    main()

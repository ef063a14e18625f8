"""CPU seconds and peak memory of tpumon's analysis, of XProf's overview page and of a bare parse, by shape of trace.

python tests/bench/decode.py [table|growth|steady] [--rounds N] [--only WORDS] [--kept DIR]

table: every program is a process of its own, one after the other, round after round, so that a machine's moods fall on
all alike. Prints medians, and how many times tpumon's each is.
growth: each shape at a quarter, half and full of its size; prints how much more twice the bytes cost. Less than 2.5 is
linear.
steady: one process that reads one usual trace after the other, 2,000 of them, as a sampler's reader does; prints its
memory and its traces a second of CPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from shapes import REPOSITORY, SHAPES, Shape, training

from support import REAL_TRACE

PROGRAMS = {
    "tpumon": """
from tpumon.xspace.trace_figures import figures_of_hosts
from tpumon.xspace.host_totals import read_host_totals
with open(FILE, "rb") as file:
    print(figures_of_hosts([read_host_totals(file)]).figures.step_time_s)
""",
    "XProf": """
from xprof.convert import raw_to_tool_data
data, _ = raw_to_tool_data.xspace_to_tool_data([FILE], "overview_page", {})
assert data
""",
    "parse": """
from tpumon.proto.xplane_pb2 import XSpace
with open(FILE, "rb") as file:
    assert XSpace.FromString(file.read()).planes
""",
}
IMPORTS = """
import numpy
import tpumon.xspace.host_totals, tpumon.xspace.trace_figures
"""


def write_trace(path: Path, events: int) -> None:
    """A trace as of a training loop on one host: 52 MB of a million events."""
    path.write_bytes(training(events).bytes())


def measured(code: str, file: Path) -> tuple[float, float]:
    """CPU seconds and peak memory in MB of one run, all threads and imports included."""
    # With modules compiled, as installed ones are: nobody's figures are to hold the compiling of Python.
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [sys.executable, "-c", code.replace("FILE", repr(str(file)))],
        cwd=REPOSITORY,
        env=compiled,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"failed with {process.returncode}: {code}")
    for cache in file.parent.glob(f"{file.name}?*"):
        cache.unlink()  # what XProf keeps beside a trace would spare it the work next time
    for cache in (*file.parent.glob("ALL_HOSTS*"), *file.parent.glob("*.json*")):
        cache.unlink()
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def in_process_of_its_own(directory: Path, shape: Shape, size: int) -> Path:
    """Writes a trace; in a process of its own, since what a child inherits of memory counts towards its peak."""
    file = directory / f"{shape.slug}-{size}.xplane.pb"
    if not file.exists():
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import shapes, pathlib\n"
        code += f"shapes.write(shapes.SHAPES[{SHAPES.index(shape)}], pathlib.Path({str(file)!r}), {size})"
        subprocess.run([sys.executable, "-c", code], check=True)
    return file


def table(shapes: Sequence[Shape], directory: Path, rounds: int) -> None:
    files = [(shape.name, lambda shape=shape: in_process_of_its_own(directory, shape, shape.size)) for shape in shapes]
    if REAL_TRACE.exists():
        (directory / "real.xplane.pb").write_bytes(REAL_TRACE.read_bytes())
        files.append(("real v6e", lambda: directory / "real.xplane.pb"))
    print(f"{'shape':24} {'MB':>6}" + "".join(f"{name + ' CPU s, MB':>24}" for name in PROGRAMS))
    for name, make in files:
        file = make()
        runs: dict[str, list[tuple[float, float]]] = {program: [] for program in PROGRAMS}
        for _ in range(rounds):
            for program, code in PROGRAMS.items():
                runs[program].append(measured(code, file))
        medians = {
            program: [statistics.median(column) for column in zip(*found, strict=True)]
            for program, found in runs.items()
        }
        cpu_s, peak_mb = medians["tpumon"]
        cells = [f"{cpu_s:13.2f} s {peak_mb:5.0f} MB"]
        cells += [f"{c:7.2f} ({c / cpu_s:4.1f}) {m:5.0f} ({m / peak_mb:4.1f})" for c, m in list(medians.values())[1:]]
        print(f"{name:24} {file.stat().st_size / 1e6:6.1f}" + "  ".join(cells), flush=True)


def growth(shapes: Sequence[Shape], directory: Path, rounds: int) -> None:
    for shape in shapes:
        found = []
        for part in (4, 2, 1):
            file = in_process_of_its_own(directory, shape, shape.size // part)
            runs = [(measured(PROGRAMS["tpumon"], file), measured(IMPORTS, file)) for _ in range(rounds)]
            cpu_s, peak_mb = (statistics.median(own[i] - start[i] for own, start in runs) for i in (0, 1))
            found.append((file.stat().st_size / 1e6, cpu_s, peak_mb))
        said = "  ".join(f"{size_mb:6.1f} MB {cpu_s:6.3f} s {peak_mb:5.0f} MB" for size_mb, cpu_s, peak_mb in found)
        ratios = [f"{b[1] / a[1]:.2f} CPU {b[2] / a[2]:.2f} memory" for a, b in pairwise(found)]
        print(f"{shape.name:24} {said}   twice the bytes: {', '.join(ratios)}", flush=True)


def steady() -> None:
    """Traces of many workers: the same programs, other times."""
    from tpumon.xspace.host_totals import read_host_totals
    from tpumon.xspace.trace_figures import figures_of_hosts

    usual = next(shape for shape in SHAPES if "usual" in shape.name)
    traces = [usual.build(usual.size - 100 * i).bytes() for i in range(4)]
    start_s = time.process_time()
    for count in range(1, 2001):
        # As a reader's process gets them, each in memory of its own: what it frees decides what malloc keeps.
        figures_of_hosts([read_host_totals(bytes(memoryview(traces[count % len(traces)])))])
        if count in {1, 10, 100} or not count % 500:
            words = Path("/proc/self/status").read_text()
            size_kb = int(words.partition("VmRSS:")[2].split()[0])
            each_s = (time.process_time() - start_s) / count
            print(f"{count:5} traces: {size_kb / 1000:6.1f} MB, {1 / each_s:5.1f} traces a second of CPU", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("table", "growth", "steady"), default="table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="shapes whose name holds these words")
    parser.add_argument("--kept", type=Path, help="where traces are kept for the next run")
    given = parser.parse_args()
    shapes = [shape for shape in SHAPES if given.only in shape.name]
    if given.what == "steady":
        steady()
        return
    with tempfile.TemporaryDirectory() as scratch:
        directory = given.kept or Path(scratch)
        directory.mkdir(exist_ok=True)
        (table if given.what == "table" else growth)(shapes, directory, given.rounds)


if __name__ == "__main__":
    main()

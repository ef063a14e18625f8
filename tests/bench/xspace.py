"""CPU seconds and memory of tpumon's analysis, of XProf's overview page and of a bare parse, on one large trace.

python tests/bench/xspace.py [EVENTS] [ROUNDS]: every program is a process of its own, one after the other, round after
round, so that a machine's moods fall on all alike. Prints medians, and ratios to tpumon's.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

PROGRAMS = {
    "tpumon": """
from pathlib import Path
from tpumon.xspace import figures, read_trace
print(figures([read_trace(Path(FILE).read_bytes())]).figures.step_time_s)
""",
    "XProf": """
from xprof.convert import raw_to_tool_data
data, _ = raw_to_tool_data.xspace_to_tool_data([FILE], "overview_page", {})
assert data
""",
    "parse": """
from pathlib import Path
from tpumon.wire.xplane_pb2 import XSpace
space = XSpace.FromString(Path(FILE).read_bytes())
assert space.planes
""",
    "imports": """
import numpy
from tpumon.wire.xplane_pb2 import XSpace
""",
}


def write_trace(path: Path, events: int, *, cores: int = 8) -> None:
    """A trace as of a training loop on one host, of device events only, as samples are.

    Lines in the shares of the real v6e trace's first core: of 20 events 14 are ops, 5 asynchronous ops, 1 a TraceMe;
    ops say which part of the model they are of, as they do there, and events carry the device's clock as libtpu writes
    it and two stats more, which makes 52 MB of a million events.
    """
    sys.path.insert(0, str(REPOSITORY / "tests"))
    from support.traces import ALL_REDUCE, CONV, INFEED, LOOP, OUTFEED, US, Op, Traced

    traced = Traced()
    kinds = [INFEED, *(Op(f"fusion.{i}", "convolution fusion", flops=10**9, read_bytes=10**6) for i in range(300))]
    kinds += [CONV, LOOP, ALL_REDUCE, OUTFEED]
    per_core, per_step = events // cores, 2800
    for number in range(cores):
        plane = traced.core(number)
        lines = {name: plane.line(name) for name in ("Steps", "XLA Modules", "XLA Ops", "Async XLA Ops", "XLA TraceMe")}
        for i, kind in enumerate(kinds):
            name = (
                f"jit(train_step)/jit(main)/transformer/layer_{i % 24}/{'attention' if i % 3 else 'mlp'}/dot_general:"
            )
            metadata = plane.plane.event_metadata[plane.event_id(kind)]
            plane.put(metadata.stats, {"tf_op": name, "source": f"/app/model.py:{100 + i}"})
        names = ["XLA Ops"] * 14 + ["Async XLA Ops"] * 5 + ["XLA TraceMe"]
        at_us = begin_us = 100.0
        for i in range(per_core):
            name = names[i % len(names)]
            length_us = 3 + (i * 7 + number) % 40
            op = kinds[i % len(kinds)] if name == "XLA Ops" else name
            at_ps = round(at_us * US)
            event = lines[name].events.add(metadata_id=plane.event_id(op), offset_ps=at_ps, duration_ps=length_us * US)
            own = {"device_offset_ps": at_ps - 1234, "device_duration_ps": length_us * US - 78}
            plane.put(event.stats, own | {"run_id": i + 1, "scope_range_id": 123456789})
            if name == "XLA Ops":
                at_us += length_us + 0.25
            if i % per_step == per_step - 1:
                plane.event("Steps", "train", begin_us, at_us - begin_us)
                plane.event("XLA Modules", "jit_train_step(42)", begin_us, at_us - begin_us)
                at_us += 50
                begin_us = at_us
    traced.host()
    traced.space.hostnames.append("bench")
    path.write_bytes(traced.bytes())


def measured(name: str, file: Path) -> tuple[float, float]:
    """CPU seconds and peak memory in MB of one run, all threads and imports included."""
    code = PROGRAMS[name].replace("FILE", repr(str(file)))
    # With modules compiled, as installed ones are: nobody's figures are to hold the compiling of Python.
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        env=compiled,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{name} failed with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    events, rounds = (int(text) for text in (sys.argv[1:] + ["1000000", "5"][len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "host.xplane.pb"
        # In a process of its own: what a child inherits of memory counts towards its peak.
        subprocess.run([sys.executable, __file__, "--write", str(file), str(events)], check=True)
        print(f"{events} events, {file.stat().st_size / 1e6:.1f} MB, {rounds} rounds")
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
        for number in range(rounds + 1):
            for name in PROGRAMS:
                figures = measured(name, file)
                if number:  # the first round warms up
                    found[name].append(figures)
                for cache in Path(directory).glob("*"):
                    if cache != file:  # what XProf keeps beside a trace would spare it the work next time
                        cache.unlink()
    medians = {name: [statistics.median(column) for column in zip(*runs, strict=True)] for name, runs in found.items()}
    ours = medians["tpumon"]
    for name, (cpu_s, peak_mb) in medians.items():
        print(f"{name:8} {cpu_s:7.2f} s CPU ({cpu_s / ours[0]:6.2f} x)  {peak_mb:7.0f} MB ({peak_mb / ours[1]:5.2f} x)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write_trace(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()

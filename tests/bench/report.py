"""CPU seconds and peak memory of `tpumon report`, of `tpumon analyze` and of XProf's converters for the same tables.

python tests/bench/report.py [--rounds N] [--events N]

Every program is a process of its own, imports included, one after the other, round after round. Prints medians; for
the sections how many times that of `analyze` it is, which for ops shall be 1.5 at most.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from decode import in_process_of_its_own, measured
from shapes import SHAPES

from support import REAL_TRACE

REPORT = """
from tpumon.cli.commands.report import ReportSettings, run
assert run(ReportSettings(paths=[FILE], sections=(SECTION,), output="json")) == 0
"""
XPROF = """
from xprof.convert import raw_to_tool_data
for tool in TOOLS:
    data, _ = raw_to_tool_data.xspace_to_tool_data([FILE], tool, {})
    assert data
"""
PROGRAMS = {
    "analyze": """
from tpumon.cli.commands.analyze import run
assert run(paths=[FILE], output="json") == 0
""",
    "report ops": REPORT.replace("SECTION", "'ops'"),
    "report overview": REPORT.replace("SECTION", "'overview'"),
    "report steps": REPORT.replace("SECTION", "'steps'"),
    "report memory": REPORT.replace("SECTION", "'memory'"),
    "XProf op_profile, hlo_stats": XPROF.replace("TOOLS", "('op_profile', 'hlo_stats')"),
    "XProf overview_page": XPROF.replace("TOOLS", "('overview_page',)"),
    "XProf pod_viewer": XPROF.replace("TOOLS", "('pod_viewer',)"),
    "XProf memory_profile": XPROF.replace("TOOLS", "('memory_profile',)"),
}
SHOWN = ("1M ops, 8 cores", "12,000 ops on 8 cores", "90 % host events")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        files = []
        if REAL_TRACE.exists():
            files.append(("real v6e", directory / "real.xplane.pb"))
            files[0][1].write_bytes(REAL_TRACE.read_bytes())
        for shape in (shape for shape in SHAPES if shape.name in SHOWN):
            size = min(shape.size, options.events)
            files.append((shape.name, in_process_of_its_own(directory, shape, size)))
        for title, file in files:
            print(f"{title}, {file.stat().st_size / 1e6:.1f} MB")
            runs = {program: [] for program in PROGRAMS}
            for _ in range(options.rounds):
                for program, code in PROGRAMS.items():
                    runs[program].append(measured(code, file))
            base_s = statistics.median(cpu_s for cpu_s, _ in runs["analyze"])
            for program, found in runs.items():
                cpu_s, peak_mb = (statistics.median(column) for column in zip(*found, strict=True))
                print(
                    f"  {program:28} {cpu_s:6.2f} s {peak_mb:6.0f} MB {cpu_s / base_s:6.2f} times analyze", flush=True
                )


if __name__ == "__main__":
    main()

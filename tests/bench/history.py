"""Memory of a week of history of 1,000 workers, and what adding, reading and handing it on costs in CPU time.

    .venv/bin/python tests/bench/history.py [--workers 1000]

Figures vary at random, which compresses worst. One worker's week is added sample by sample; memory is that of so many
workers, of which each has its own samples.
"""

from __future__ import annotations

import argparse
import random
import time
import tracemalloc

from tpumon.figures import COMPARED
from tpumon.history import Tiers

WEEK_S = 7 * 86400.0
NOW = 1_800_000_000.0


def week(interval_s: float, random_: random.Random) -> tuple[Tiers, float]:
    """A worker's week with every figure, and the mean cost of adding a sample, in seconds."""
    tiers = Tiers(tuple(COMPARED))
    count = int(WEEK_S / interval_s)
    spent_s = 0.0
    for begin in range(0, count, 1000):
        rows = [[random_.gauss(0.4, 0.02) for _ in COMPARED] for _ in range(1000)]
        start_s = time.process_time()
        for i, row in enumerate(rows):
            tiers.add(NOW + (begin + i) * interval_s, "live", row)
        spent_s += time.process_time() - start_s
    return tiers, spent_s / count


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    workers = parser.parse_args().workers
    random_ = random.Random(0)
    week(3600.0, random_)  # what is loaded once is no worker's
    for interval_s, weeks in ((60.0, 4), (10.0, 2), (1.0, 1)):
        tracemalloc.start()
        kept = [week(interval_s, random_) for _ in range(weeks)]
        bytes_each = tracemalloc.get_traced_memory()[0] / weeks
        tracemalloc.stop()
        _, add_s = week(interval_s, random_) if interval_s > 1 else kept[0]
        tiers = kept[0][0]
        end = tiers.newest_unix_s or NOW
        start_s = time.process_time()
        points = tiers.series("step", end - WEEK_S, end, 600)
        series_s = time.process_time() - start_s
        start_s = time.process_time()
        packed = tiers.packed()
        packed_s = time.process_time() - start_s
        print(
            f"every {interval_s:3.0f} s: {bytes_each / 1000:5.1f} kB a worker, "
            f"{workers} workers {bytes_each * workers / (1 << 20):5.1f} MiB of 64; "
            f"add {add_s * 1e6:4.0f} us{'' if interval_s > 1 else ' (traced by tracemalloc)'}; "
            f"a week's {len(points)} points {series_s * 1e3:4.1f} ms; "
            f"packed {len(packed) / 1000:5.1f} kB in {packed_s * 1e3:.1f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()

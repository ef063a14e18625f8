"""Memory of a week of history of a worker, and what adding, reading and handing it on costs in CPU time.

    .venv/bin/python tests/bench/history.py [--workers 256] [--each 5]

Figures vary at random. The samples that only rows of 1 min and of 10 min remember come at these intervals: as many rows
as of a week at the interval shown, in a twentieth of the time. Memory is the mean of workers that began at different
times.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import tracemalloc
from collections.abc import Callable

from tpumon.analysis import MOST_HISTORY_BYTES
from tpumon.analysis.history import RollupSeries
from tpumon.model.figure_table import COMPARED

WEEK_S, DAY_S = 7 * 86400.0, 86400.0
SPANS = (("week", WEEK_S), ("day", DAY_S), ("hour", 3600.0), ("15 min", 900.0))
NOW = 1_800_000_000.0


def week(interval_s: float, random_: random.Random, factor: int) -> tuple[RollupSeries, float]:
    """A worker's week with every figure, and the mean cost of adding one of the last samples, in seconds."""
    series = RollupSeries(tuple(COMPARED))
    series.coarsen(factor)
    at_s = NOW - WEEK_S
    spent_s = 0.0
    for until_s, gap_s in ((NOW - DAY_S, 60.0), (NOW - 3 * 3600.0, 10.0), (NOW + random_.uniform(0, 7200.0), 0.0)):
        every_s = max(gap_s, interval_s)
        rows = [[random_.gauss(0.4, 0.02) for _ in COMPARED] for _ in range(int((until_s - at_s) / every_s))]
        start_s = time.process_time()
        for row in rows:
            at_s += every_s
            series.add(at_s, "live", row)
        spent_s = (time.process_time() - start_s) / len(rows)
    return series, spent_s


def best_s(call: Callable[[], object]) -> float:
    """The least processor time of several calls: a machine with other work to do adds to the rest."""
    taken = []
    for _ in range(15):
        start_s = time.process_time()
        call()
        taken.append(time.process_time() - start_s)
    return min(taken)


def read_s(series: RollupSeries, span_s: float) -> float:
    """What one figure's points over the last so many seconds take."""
    end = series.newest_unix_s or NOW
    return best_s(lambda: series.points("step", end - span_s, end, span_s / 300))


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=256, help="how many there are (default: 256)")
    parser.add_argument("--each", type=int, default=5, help="how many workers to take the mean of (default: 5)")
    given = parser.parse_args()
    random_, factor = random.Random(0), -(-given.workers // 256)
    most_bytes = MOST_HISTORY_BYTES // given.workers
    for interval_s in (60.0, 10.0, 1.0):
        _, add_s = week(interval_s, random_, factor)  # what is loaded once is no worker's
        tracemalloc.start()
        kept = [week(interval_s, random_, factor)[0] for _ in range(given.each)]
        bytes_each = tracemalloc.get_traced_memory()[0] / given.each
        tracemalloc.stop()
        series = kept[0]
        reads = ", ".join(f"{words} {read_s(series, span_s) * 1e3:4.1f}" for words, span_s in SPANS)
        text = json.dumps(series.to_plain(most_bytes))
        plain_s = best_s(lambda kept=series: json.dumps(kept.to_plain(most_bytes)))
        taken_s = best_s(lambda text=text: RollupSeries.from_plain(json.loads(text), tuple(COMPARED)))
        print(
            f"every {interval_s:3.0f} s: {bytes_each / 1000:5.1f} kB a worker, "
            f"{given.workers} workers {bytes_each * given.workers / 1e6:5.1f} MB of 120; "
            f"add {add_s * 1e6:4.0f} us; read in ms: {reads}; handed on {len(text) / 1000:5.1f} kB, "
            f"written in {plain_s * 1e3:.1f} ms, read in {taken_s * 1e3:.1f}; of all "
            f"{len(text) * given.workers / 1e6:.1f} MB, {plain_s * given.workers:.1f}, {taken_s * given.workers:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""A day of 8 workers, a sample every 10 s: cost of recording, size on disk, and how soon a view of it is there."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from support.samples import sample  # noqa: E402
from tpumon.analysis import Update  # noqa: E402
from tpumon.collection.recording import Recording  # noqa: E402
from tpumon.model import Spread, StepTimes, Target, Workers  # noqa: E402
from tpumon.outputs.live.player import Player  # noqa: E402
from tpumon.outputs.live.view_settings import DisplaySettings  # noqa: E402
from tpumon_exporters.record import Recorder  # noqa: E402

START_UNIX_S = 1_760_000_000.0
DAY_S, INTERVAL_S, WORKERS = 86400, 10, 8


def record(directory: str) -> float:
    """Records the day; returns the CPU seconds that this took."""
    names = [f"w{number}" for number in range(WORKERS)]
    usual = sample(
        names[0], interval_s=float(INTERVAL_S), mxu_utilization_ratio=0.4, idle_ratio=0.1,
        infeed_ratio=Spread(avg=0.01, min=0.0, max=0.02),
        devices=[{"device": str(device), "hbm_used_bytes": 10**10, "hbm_total_bytes": 10**11} for device in range(4)],
    )  # fmt: skip
    passed_s = 0.0
    recorder = Recorder(directory, clock=lambda: START_UNIX_S + passed_s, pace=lambda: passed_s)
    targets = tuple(Target(worker=name, address=f"{name}:1") for name in names)
    recorder.on_update(Update(time_unix_s=START_UNIX_S, workers=Workers(targets=targets)))
    began_s = time.process_time()
    for at in range(0, DAY_S, INTERVAL_S):
        for place, name in enumerate(names):
            step_s = 0.1 + (at * 7919 + place * 104_729) % 1000 / 1e5
            steps = StepTimes(avg=step_s, min=step_s, max=step_s, count=3)
            figures = replace(usual.figures, step_time_s=steps)
            taken = replace(usual, worker=name, time_unix_s=START_UNIX_S + at, figures=figures)
            recorder.on_update(Update(time_unix_s=START_UNIX_S + at, sample=taken))
        passed_s = float(at)
        recorder.tick(START_UNIX_S + at)
    recorder.close()
    return time.process_time() - began_s


def timed(what: str, call: object) -> None:
    """Prints the CPU time of a call."""
    assert callable(call)
    began_s = time.process_time()
    call()
    print(f"{what:32} CPU {time.process_time() - began_s:.2f} s")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        took_s = record(directory)
        count = DAY_S // INTERVAL_S * WORKERS
        size = sum(file.stat().st_size for file in Path(directory).iterdir())
        print(f"{'record':32} CPU {took_s / count * 1e3:.3f} ms per sample; {size / count:.0f} bytes per sample")
        player = Player(DisplaySettings())
        timed("first picture of the view", lambda: player.show(Recording(directory)))
        timed("10 minutes back", lambda: player.press("<"))
        timed("search an hour for a change", lambda: player.press("!"))
        timed("read the whole day", lambda: sum(1 for _ in Recording(directory).moments()))


if __name__ == "__main__":
    main()

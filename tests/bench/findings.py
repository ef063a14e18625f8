"""How right the findings are: on a day of normal life, on slow-downs, and on stragglers among 256 workers.

Prints counts. All samples come from the simulated job's own numbers, in simulated time.

python tests/bench/findings.py [day|slow-downs|stragglers] [--seed N] [--runs N]

day: 64 workers for 24 hours with jitter, checkpoints, evaluation, restarts and a preemption. Every finding of severity
warning or critical is false.
slow-downs: 12 of 10 to 50 %, on 8 workers that live normally; how many are found within three samples. Beside it the
rule that watches the duty cycle and speaks when it falls by 15 %, on the same samples.
stragglers: 256 workers that step together, one of them with 5 % more work of its own; how often it is named within
three rounds, and how often another one is.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.scenes import BEGIN_UNIX_S, Scene
from tpumon.analysis import Analysis
from tpumon.model import Finding, Sample

INTERVAL_S = 30.0
SAMPLES = 3
_DUTY_FALLS_BY = 0.15
_BASELINE = 10


class Watched:
    """A scene, and what is found in it."""

    def __init__(self, scenario: str, topology: str, seed: int) -> None:
        self.scene = Scene(scenario, topology, seed=seed, interval_s=INTERVAL_S, computed=True)
        self.fleet = Analysis()
        self.fleet.add(self.scene.workers)

    def round(self, number: int) -> tuple[list[Sample], tuple[Finding, ...]]:
        """One sample of each worker; what is found after them."""
        samples = list(self.scene.round(number))
        for sample in samples:
            self.fleet.add(sample)
        now_unix_s = BEGIN_UNIX_S + INTERVAL_S * (number + 1)
        return samples, self.fleet.status(now_unix_s).findings


def day(seed: int, hours: float) -> bool:
    """A day of normal life; True if there was no false finding."""
    watched = Watched("normal-life", "v6e-256", seed)
    seen: Counter[tuple[str, str]] = Counter()
    false: dict[str, float] = {}
    samples = 0
    for number in range(int(hours * 3600 / INTERVAL_S)):
        taken, found = watched.round(number)
        samples += len(taken)
        for one in found:
            seen[one.finding, one.severity] += 1
            if one.severity != "info" and one.finding not in false:
                false[one.finding] = number * INTERVAL_S
                print(f"false: {one.finding}, {one.severity}, second {number * INTERVAL_S:.0f}: {one.sentence}")
    print(f"day: {len(watched.scene.names)} workers, {hours:g} h, {samples} samples, seed {seed}: {len(false)} false")
    for (finding, severity), rounds in sorted(seen.items()):
        print(f"  {finding}, {severity}: in {rounds} rounds")
    return not false


class DutyRule:
    """Speaks when the duty cycle of the slice falls by 15 % of what it was in the ten rounds before."""

    def __init__(self) -> None:
        self._known: list[float] = []

    def speaks(self, samples: list[Sample]) -> bool:
        """Whether it does on these samples."""
        duties = [one.figures.duty_cycle_ratio for one in samples]
        duty = median(known if known is not None else 0.0 for known in duties)
        before = median(self._known[-_BASELINE:]) if len(self._known) >= _BASELINE else None
        self._known.append(duty)
        return before is not None and duty < (1 - _DUTY_FALLS_BY) * before


def slow_downs(seed: int, count: int) -> bool:
    """Slow-downs among normal life; True if at most one was missed."""
    dice = random.Random(seed)
    found_ones = by_duty = 0
    late: Counter[str] = Counter()
    for run in range(count):
        by = round(0.1 + 0.4 * run / max(count - 1, 1), 3)
        begin = dice.randrange(100, 200)
        scenario = f"jitter+checkpoint+slow-down@{begin * INTERVAL_S:.0f}:by={by}"
        watched, rule = Watched(scenario, "v6e-32", seed + run), DutyRule()
        when: int | None = None
        spoke = False
        for number in range(begin + 20):
            samples, found = watched.round(number)
            spoken = rule.speaks(samples)
            if number >= begin:
                spoke = spoke or (spoken and number < begin + SAMPLES)
                if when is None and any(one.finding == "slow-down" for one in found):
                    when = number - begin + 1
            elif found:
                late["false before"] += 1
        in_time = when is not None and when <= SAMPLES
        found_ones += in_time
        by_duty += spoke
        print(
            f"  {by:.0%} at round {begin}: found after {when} samples{'' if in_time else ' (late)'}; duty rule: {spoke}"
        )
    print(f"slow-downs: {found_ones} of {count} found within {SAMPLES} samples; the duty rule: {by_duty} of {count}")
    if late:
        print(f"  findings before a slow-down began: {late.total()} rounds")
    return found_ones >= count - 1 and not late


def stragglers(seed: int, runs: int) -> bool:
    """One of 256 has more work; True if it is named in 99 % of the runs."""
    named = others = 0
    began_s = time.monotonic()
    for run in range(runs):
        worker = random.Random(seed + run).randrange(256)
        watched = Watched(f"jitter+straggler:by=0.05,worker={worker}", "v4-2048", seed + run)
        found: tuple[Finding, ...] = ()
        for number in range(SAMPLES):
            _, found = watched.round(number)
        accused = [name for one in found if one.finding == "straggler" for name in one.workers]
        named += watched.scene.names[worker] in accused
        others += sum(name != watched.scene.names[worker] for name in accused)
    took_s = time.monotonic() - began_s
    print(
        f"stragglers: {named} of {runs} named within {SAMPLES} rounds of 256 workers, {others} others accused "
        f"({took_s:.0f} s)"
    )
    return named >= 0.99 * runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--hours", type=float, default=24.0)
    given = parser.parse_args()
    parts = given.parts or ["day", "slow-downs", "stragglers"]
    fine = True
    if "slow-downs" in parts:
        fine = slow_downs(given.seed, 12) and fine
    if "stragglers" in parts:
        fine = stragglers(given.seed, given.runs) and fine
    if "day" in parts:
        fine = day(given.seed, given.hours) and fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

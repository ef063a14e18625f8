"""What a process takes: memory, descriptors, threads, children; and whether that stays flat."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

from support.processes import children, status


@dataclass(frozen=True, slots=True)
class Vital:
    """What is flat: its name, its unit, and by how much it may grow over the run, as numbers and as a share."""

    name: str
    unit: str
    by: float
    by_ratio: float


VITALS = (
    Vital("RSS", "MB", 8, 0.08),
    Vital("RSS of its children", "MB", 16, 0.16),
    Vital("descriptors", "", 12, 0.10),
    Vital("threads", "", 4, 0.10),
    Vital("children", "", 1, 0.10),
)


@dataclass(slots=True)
class Course:
    """One process over time."""

    pid: int
    times_s: list[float] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=lambda: {vital.name: [] for vital in VITALS})

    def note(self) -> None:
        """Reads them now."""
        below = _below(self.pid)
        self.times_s.append(time.monotonic())
        for vital, value in zip(
            VITALS,
            (
                status(self.pid, "VmRSS") / 1e3,
                sum(status(child, "VmRSS") for child in below) / 1e3,
                len(list(Path(f"/proc/{self.pid}/fd").iterdir())),
                status(self.pid, "Threads"),
                len(below),
            ),
            strict=True,
        ):
            self.values[vital.name].append(value)

    def rows(self) -> list[tuple[str, bool]]:
        """A line for each vital, and whether it is flat: after the first quarter, the rest is no larger."""
        return [self._row(vital) for vital in VITALS]

    def _row(self, vital: Vital) -> tuple[str, bool]:
        values = self.values[vital.name]
        quarter = len(values) // 4
        if not quarter:
            return f"{vital.name:<20} too short to tell", False
        early, late = median(values[quarter : 2 * quarter]), median(values[-quarter:])
        flat = late <= early + max(vital.by, vital.by_ratio * early)
        slope = 3600 * _slope(self.times_s[quarter:], values[quarter:])
        words = (
            f"{vital.name:<20} {early:9.1f} {late:9.1f} {max(values):9.1f} {slope:+10.2f} {vital.unit or '':>2}/h"
            f"   {'flat' if flat else 'GROWS'}"
        )
        return words, flat


def _slope(times_s: list[float], values: list[float]) -> float:
    """Of the line of least squares, per second."""
    middle_s, mean = fmean(times_s), fmean(values)
    spread = sum((at_s - middle_s) ** 2 for at_s in times_s)
    return sum((at_s - middle_s) * (value - mean) for at_s, value in zip(times_s, values, strict=True)) / (spread or 1)


def _below(pid: int) -> list[int]:
    """All processes below this one."""
    direct = children(pid)
    return [*direct, *(below for child in direct for below in _below(child))]

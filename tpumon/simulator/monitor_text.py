"""The text of a TPU node's Monitor RPC, and a line that marks it as simulated."""

from __future__ import annotations

import time
from collections.abc import Callable

from tpumon.model import SIMULATED_MARK, Spread
from tpumon.simulator.expected_figures import ExpectedFigures
from tpumon.simulator.scenario import SimulatedJob


def monitor_text(job: SimulatedJob, figures: ExpectedFigures, *, level: int, unix_s: float | None) -> str:
    """Formats the figures as a TPU node does.

    A node whose TPU runs no step prints only the lines of level 1, also at level 2.

    Args:
        job: the simulated job.
        figures: its figures in the window.
        level: 1, or 2 for idle time, steps and infeed as well.
        unix_s: time of the timestamp line, printed in local time; None omits the line.
    """
    topology = job.topology
    lines = [] if unix_s is None else [f"Timestamp: {time.strftime('%H:%M:%S', time.localtime(unix_s))}"]
    lines.append(f"TPU type: {topology.generation.device_type}")
    detailed = level >= 2 and figures.idle_ratio is not None
    if detailed and figures.idle_ratio is not None:
        cores = topology.cores_per_host
        lines.append(f"Number of TPU cores: {cores} (Replica count = {cores}, num cores per replica = 1)")
        lines.append(f"TPU idle time (lower is better): {_percent(figures.idle_ratio)}")
    lines.append(f"Utilization of TPU Matrix Units (higher is better): {_percent(figures.mxu_ratio)}")
    if detailed and figures.step_s is not None and figures.infeed_ratio is not None:
        lines.append(f"Step time: {_spread(figures.step_s, _milliseconds)}")
        lines.append(f"Infeed percentage: {_spread(figures.infeed_ratio, _percent)}")
    lines.append(f"{SIMULATED_MARK}: scenario {job.title}")
    return "\n".join(lines) + "\n"


def _spread(value: Spread, shown: Callable[[float], str]) -> str:
    return f"{shown(value.avg)} (avg), {shown(value.min)} (min), {shown(value.max)} (max)"


def _percent(ratio: float) -> str:
    return f"{_three_digits(100 * ratio)}%"


def _milliseconds(seconds: float) -> str:
    return f"{_three_digits(1000 * seconds)}ms"


def _three_digits(value: float) -> str:
    """Formats three significant digits without an exponent; 0 as 0.000."""
    for decimals in (3, 2, 1):
        shown = f"{value:.{decimals}f}"
        if abs(float(shown)) < 10 ** (3 - decimals):
            return shown
    return f"{value:.0f}"

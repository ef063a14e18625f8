"""The text block that scripts have parsed since capture_tpu_profile."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from tpumon.model import SIMULATED_MARK
from tpumon.model.figure_spec import FigureSpec, Unit, serves, trains
from tpumon.model.figure_table import IDLE, INFEED, MXU, STEP
from tpumon.model.server_figures import SERVER_FIGURES
from tpumon.outputs import Output
from tpumon.untrusted_text import safe

if TYPE_CHECKING:
    from tpumon.analysis import Update
    from tpumon.model import Figures, Sample, Spread, StepTimes, Workers

_NOT_REPORTED = "not reported"
_MOST_DECIMALS = 9


class TextOutput(Output):
    """Writes one block per answered query, an empty line after it, flushed.

    Args:
        stream: where to.
        level: 1 or 2, which lines a block has.
        number_samples: put capture_tpu_profile's header before each block.
    """

    def __init__(self, stream: TextIO, *, level: int, number_samples: bool) -> None:
        self._stream = stream
        self._level = level
        self._name_workers = False
        self._number_samples = number_samples
        self._queries: Counter[str] = Counter()

    def on_update(self, update: Update, more: Sequence[str] = ()) -> None:
        """Writes the block of a sample; a query without an answer has no block, but counts.

        Args:
            update: the update.
            more: further lines about its worker, written without a block, too.
        """
        if update.workers is not None:
            self._follow(update.workers)
        if update.sample is not None:
            self._write(update.sample, more)

    def _follow(self, workers: Workers) -> None:
        """A line `Worker: NAME` stands before each block where there are several."""
        followed = {target.worker for target in workers.targets}
        self._queries = Counter({worker: count for worker, count in self._queries.items() if worker in followed})
        self._name_workers = len(workers.targets) > 1

    def _write(self, sample: Sample, more: Sequence[str]) -> None:
        number = self._queries[sample.worker]
        self._queries[sample.worker] += 1
        if not sample.has_figures and not more:
            return
        lines = [f"Cloud TPU Monitoring Results (Sample {number}):", ""] if self._number_samples else []
        if self._name_workers:
            lines.append(f"Worker: {sample.worker}")
        block = [render_block(sample, level=self._level)] if sample.has_figures else []
        self.say([*lines, *block, *more])

    def say(self, lines: Sequence[str]) -> None:
        """Writes lines, and an empty one after them."""
        self._stream.write(safe("\n".join([*lines, "", ""])))
        self._stream.flush()


def render_block(sample: Sample, *, level: int) -> str:
    """The sample as lines: what the server laid out itself, else the same lines laid out here."""
    if sample.server_text is not None:
        return sample.server_text
    figures = sample.figures
    lines = [
        f"Timestamp: {time.strftime('%H:%M:%S', time.localtime(sample.time_unix_s))}",
        f"TPU type: {sample.device_type or _absent(_NOT_REPORTED)}",
    ]
    if level > 1:
        lines.append(f"Number of TPU cores: {sample.cores if sample.cores is not None else _absent(_NOT_REPORTED)}")
    if level > 1 and trains(sample):
        lines.append(f"TPU idle time (lower is better): {_percent(IDLE.value(figures)) or _why(IDLE, figures)}")
    mxu = _percent(MXU.value(figures)) or _why(MXU, figures)
    lines.append(f"Utilization of TPU Matrix Units (higher is better): {mxu}{_method(MXU.method(figures))}")
    if level > 1 and trains(sample):
        step = _spread(figures.step_time_s, "seconds") or _why(STEP, figures)
        lines += [
            f"Step time: {step}{_method(STEP.method(figures), STEP.subject(figures))}",
            f"Infeed percentage: {_spread(figures.infeed_ratio, 'ratio') or _why(INFEED, figures)}",
        ]
    if level > 1 and serves(sample):
        lines += _server_lines(figures)
    if sample.simulated:
        lines.append(SIMULATED_MARK)
    return "\n".join(lines)


def _server_lines(figures: Figures) -> list[str]:
    """A line for each figure of a server that is there, or that servers are compared by."""
    lines = []
    for figure in SERVER_FIGURES:
        value = figure.value(figures)
        if value is not None:
            method = _method(figure.method(figures), figure.subject(figures))
            lines.append(f"{figure.label}: {_UNITS[figure.unit](value)}{method}")
        elif figure.compared:
            lines.append(f"{figure.label}: {_why(figure, figures)}")
    return lines


def three_digits(value: float) -> str:
    """Three significant digits, never an exponent: 0.0912, 10.7, 107; from 1000 on a whole number; zero is 0.000."""
    if value < 1:
        leading_zeros = -math.floor(math.log10(value)) - 1 if value > 0 else 0
        digits = f"{value:.{min(3 + leading_zeros, _MOST_DECIMALS)}f}"
        # 0.0910 is written 0.091, as ever; a zero that is among the first three decimals stays.
        return digits[:5] + digits[5:].rstrip("0")
    return f"{value:#.3g}".rstrip(".") if value < 999.5 else f"{value:.0f}"


def milliseconds(time_s: float) -> str:
    """A time as milliseconds, always: 90.8ms, 1950ms."""
    return f"{three_digits(time_s * 1000)}ms"


def _percent(ratio: float | None) -> str | None:
    return None if ratio is None else _UNITS["ratio"](ratio)


_UNITS: Mapping[Unit, Callable[[float], str]] = {
    "ratio": lambda ratio: f"{three_digits(ratio * 100)}%",
    "seconds": milliseconds,
    "count": lambda count: f"{count:g}",
    "rate": three_digits,
}


def _spread(spread: StepTimes | Spread | None, unit: Unit) -> str | None:
    if spread is None:
        return None
    write = _UNITS[unit]
    return f"{write(spread.avg)} (avg), {write(spread.min)} (min), {write(spread.max)} (max)"


def _method(name: str | None, subject: str | None = None) -> str:
    """The server's own method, XProf's counter and its step markers go without saying."""
    if name in {None, "server", "counter", "steps"}:
        return ""
    return f" ({name}: {subject})" if subject else f" ({name})"


def _why(figure: FigureSpec, figures: Figures) -> str:
    return _absent(figure.why_absent(figures) or _NOT_REPORTED)


def _absent(reason: str) -> str:
    return f"n/a ({reason})"

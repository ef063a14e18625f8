"""Captures of a training loop, for comparisons of two."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from support.captures import captured, saved
from support.traces import ALL_REDUCE, CONV, INFEED, LOOP, Op, Plane, Traced, cut, run_step
from tpumon.report.comparison import NEEDED, Comparison, compare
from tpumon.report.profiles import Choice

EXTRA = Op("all-reduce.9", "all-reduce", flops=5, read_bytes=9)
STEP_US = 1000 + 200 + 150 + 100


def trained(
    directory: Path,
    *,
    steps: int = 12,
    conv_us: float = 1000.0,
    infeed_us: float = 100.0,
    jitter_us: float = 0.0,
    extra_us: float = 0.0,
    renamed: bool = False,
    cores: int = 2,
    gap_us: float | Sequence[float] = 20.0,
    marked: bool = True,
    window_us: tuple[float, float] | None = None,
    seed: int = 1,
) -> list[Path]:
    """The capture of a training loop.

    Args:
        directory: where its file goes; one for each capture.
        jitter_us: of the convolution, from step to step.
        extra_us: of one more all-reduce.
        renamed: another compilation, which numbers programs and ops differently.
        gap_us: between steps; several are those after one step after the other, again and again.
        marked: whether there are markers of steps.
        window_us: when the profiler started and stopped; the steps begin at 100.
    """
    dice = random.Random(seed)
    traced = Traced()
    conv, loop = (Op(f"{op.name}8", op.category, op.flops) if renamed else op for op in (CONV, LOOP))
    gaps_us = [gap_us] if isinstance(gap_us, int | float) else gap_us
    jitters_us = [dice.gauss(0, jitter_us) for _ in range(steps)]
    for number in range(cores):
        plane, at_us = traced.core(number), 100.0
        for step in range(steps):
            parts = [(INFEED, infeed_us), (conv, conv_us + jitters_us[step]), (loop, 200), (ALL_REDUCE, 150)]
            at_us = run_step(plane, at_us, [*parts, *([(EXTRA, extra_us)] if extra_us else [])])
            at_us += gaps_us[step % len(gaps_us)]
        _described(plane, conv, loop)
        if renamed:
            _recompile(plane)
        if not marked:
            for line in plane.plane.lines:
                if line.name == "Steps":
                    del line.events[:]
    traced.host()
    if window_us:
        cut(traced.space, *window_us)
    directory.mkdir(exist_ok=True)
    return saved(directory, traced)


def _described(plane: Plane, conv: Op, loop: Op) -> None:
    for op, path in ((conv, "jit(train)/attention/dot:"), (loop, "jit(train)/mlp/add:")):
        metadata = plane.plane.event_metadata[plane.event_id(op)]
        metadata.name = f"%{op.name} = bf16[8,128]{{1,0}} fusion(bf16[8]{{0}} %param.{len(op.name)}), kind=kLoop"
        plane.put(metadata.stats, {"tf_op": path})


def _recompile(plane: Plane) -> None:
    """The program has another number."""
    for metadata in plane.plane.event_metadata.values():
        metadata.name = metadata.name.replace("(42)", "(43)")
        for stat in metadata.stats:
            if stat.metadata_id == plane.stat_id("program_id"):
                stat.int64_value = 43


def compared(before: Sequence[Path], after: Sequence[Path], **choice: str) -> Comparison:
    """The comparison of two captures."""
    return compare(captured(before, NEEDED), captured(after, NEEDED), Choice(**choice))

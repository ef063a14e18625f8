"""The operations that took most of a worker's time, and their categories."""

from __future__ import annotations

from tpumon.analysis import WorkerStatus
from tpumon.outputs.drawing.cells import percent
from tpumon.outputs.drawing.line import Lines, plain, tame, wrapped
from tpumon.outputs.drawing.style import BOLD, DIM
from tpumon.outputs.live.parts.controls import Controls
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.parts.op_lines import BY_CATEGORY, BY_TIME, category_table, op_table, sorted_ops, why_no_ops
from tpumon.outputs.live.screens.screen import Key, Picture, Screen, opening

_NOTE = "Shares: of the time of all cores, idle time included. FLOPS, HBM BW: of the peak, while it ran."


def _hint(controls: Controls) -> str:
    """Shown where one worker is: the list of several has no room for it."""
    is_one = controls.opened is not None or len(controls.scene.rows) == 1
    return "ops" if is_one and controls.screens[-1:] != ["ops"] else ""


class OpsScreen(Screen):
    """The top operations of one worker: the one whose page is open, else the one at the cursor, else the first."""

    name = "ops"
    title = "the table of operations"
    opened_by = opening("ops", "o", hint=_hint, words="list the operations that took most of a worker's time")
    keys = (
        Key(
            names=("s",),
            hint=lambda controls: f"by {_other(controls.ops_by)}",
            words="sort by category, or by time again",
            press=lambda controls, _: controls.sort_ops(_other(controls.ops_by)),
        ),
    )

    def fits(self, frame: Frame) -> bool:
        return _row(frame) is not None

    def about(self, frame: Frame) -> WorkerStatus | None:
        return _row(frame)

    def draw(self, frame: Frame) -> Picture:
        """Operations, then categories; or why there are none."""
        row = _row(frame)
        assert row is not None, "shown only where it fits"
        name = frame.scene.labels.whole(row.name)
        why = why_no_ops(row, frame.level)
        if why is not None or row.sample is None:
            text = f" No operations of {name}: {tame(why or '', ascii_only=frame.glyphs.ascii)}"
            return Picture(lines=[plain(part, frame.width) for part in wrapped(text, frame.width, indent=2)])
        sample, width, glyphs = row.sample, frame.width, frame.glyphs
        ops, categories = sorted_ops(sample, frame.controls.ops_by), sample.figures.op_categories or ()
        share = percent(sum(op.time_ratio for op in ops))
        title = f" {name}: top {len(ops)} operations, {share} of the time; by {frame.controls.ops_by}"
        lines: Lines = [plain(part, width, BOLD) for part in wrapped(title, width, indent=2)]
        lines += op_table(ops, width, glyphs)
        if categories:
            lines += [[], *category_table(categories, width, glyphs)]
        lines += [[], *(plain(f" {part}", width, DIM) for part in wrapped(_NOTE, max(width - 2, 1)))]
        return Picture(lines=lines)


def _other(order: str) -> str:
    return BY_TIME if order == BY_CATEGORY else BY_CATEGORY


def _row(frame: Frame) -> WorkerStatus | None:
    return frame.opened_row or frame.scene.row(frame.controls.selected) or next(iter(frame.rows), None)

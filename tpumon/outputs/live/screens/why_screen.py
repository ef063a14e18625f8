"""All findings with their evidence, and the findings that cannot be judged."""

from __future__ import annotations

from operator import methodcaller

from tpumon.analysis import WorkerStatus
from tpumon.analysis.state_findings import all_findings
from tpumon.outputs.drawing.line import Lines, plain, wrapped
from tpumon.outputs.drawing.style import BOLD
from tpumon.outputs.live.parts.findings import concerns, finding_lines, not_judged_lines
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.screens.screen import Hit, Picture, Screen, opening

_MOST = 200  # findings that are explained: workers that are judged on their own have one each


class WhyScreen(Screen):
    """Every finding, the worst first, as `tpumon why` has them."""

    name = "why"
    title = "the list of findings"
    opened_by = opening(
        "why",
        "w",
        hint="why",
        words="list what is wrong, why, and what to do; on a worker's page, its findings",
    )

    def about(self, frame: Frame) -> WorkerStatus | None:
        return frame.opened_row

    def draw(self, frame: Frame) -> Picture:
        """Findings, a few lines each, then what cannot be judged; a click on a finding opens its worst worker."""
        row, scene = frame.opened_row, frame.scene
        findings = [one for one in all_findings(scene.status) if row is None or concerns(one, row)]
        lines: Lines = [plain(f" {_title(frame, len(findings))}", frame.width, BOLD)]
        hits = []
        for finding in findings[:_MOST]:
            lines.append([])
            if finding.workers:
                worst = methodcaller("open_page", finding.workers[0] if row is None else row.name)
                hits.append(Hit(len(lines), 0, frame.width, worst))
            lines += finding_lines(frame, finding)
        if len(findings) > _MOST:
            lines += [[], plain(f" and {len(findings) - _MOST} more", frame.width)]
        if missing := scene.status.not_judged(None if row is None else row.name):
            title = " What cannot be judged, so that its absence is no all-clear:"
            lines += [[], *(plain(part, frame.width, BOLD) for part in wrapped(title, frame.width, indent=1))]
            lines += not_judged_lines(frame, missing, of_all=row is None)
        return Picture(lines=lines, hits=hits)


def _title(frame: Frame, count: int) -> str:
    one = frame.opened_row
    of = "" if one is None else f" of {frame.scene.labels.whole(one.name)}"
    rows = frame.scene.rows if one is None else [one]
    if not count and all(row.verdict.state == "waiting" for row in rows):
        return f"nothing is known{of} yet: no figures so far"
    if not count and all(row.verdict.state in {"down", "stale", "waiting"} for row in rows):
        late = any(row.verdict.state == "stale" for row in rows)
        why = "no current figures" if late else f"{'no worker answers' if one is None else 'it does not answer'} now"
        return f"nothing is known{of}: {why}"
    silent = sum(row.verdict.state == "no-activity" for row in rows)
    if not count and silent:
        return f"no finding{of} so far; {silent} of {len(rows)} worker{'s' if len(rows) > 1 else ''} run nothing"
    if not count:
        return f"no finding{of}"
    return f"{count} finding{'s' if count > 1 else ''}{of}, worst first"

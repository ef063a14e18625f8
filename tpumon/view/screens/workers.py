"""What stands between header and footer: the layouts, and which of them is for how many workers on what screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment

from tpumon.fleet import Thresholds
from tpumon.view.parts import summary
from tpumon.view.parts.lines import Line, cut, plain, tame
from tpumon.view.parts.page import Page
from tpumon.view.parts.rows import Rows, axis_of, axis_title
from tpumon.view.parts.scene import Row, Scene
from tpumon.view.parts.style import BOLD, DIM, Glyphs
from tpumon.view.screens import help as words

_Lines = list[list[Segment]]

_FEW = 16
"""So many workers need no summary."""

_ROOMY = 28
_LEAST_PREVIEW = 4
_ROOMY_PREVIEW = 9
_LEAST_CHART_HEIGHT = 5
_LEAST_SUMMARY = 9


class Body:
    """Draws a scene on a screen of some width."""

    def __init__(
        self,
        scene: Scene,
        rows: Sequence[Row],
        *,
        width: int,
        level: int,
        seen: set[str],
        glyphs: Glyphs,
        now_unix_s: float,
    ) -> None:
        self._scene = scene
        self._rows = rows
        self._width = width
        self._level = level
        self._seen = seen
        self._glyphs = glyphs
        self._now_unix_s = now_unix_s
        self._table: Rows | None = None

    def waiting(self) -> _Lines:
        """There is nobody to watch."""
        return words.waiting_lines(self._width, self._glyphs, self._scene.waiting)

    def help(self, thresholds: Thresholds, notices: Sequence[tuple[float, str]]) -> _Lines:
        """Keys, marks, thresholds, messages."""
        return words.help_lines(self._width, self._glyphs, thresholds, notices, self._now_unix_s)

    def nobody(self, text: str, *, only_not_ok: bool) -> list[Segment]:
        """The filter leaves nobody."""
        kinds = " that is not ok" if only_not_ok else ""
        named = f" matches /{tame(text, ascii_only=self._glyphs.ascii)}" if text else ""
        line = f" no worker{kinds}{named}; Esc shows all"
        return plain(cut(line, self._width, self._glyphs.ellipsis), self._width)

    def one(self, row: Row, height: int) -> _Lines:
        """The only worker."""
        return self._page(row, ()).screen(height)

    def worker(self, row: Row, height: int, notices: Sequence[tuple[float, str]]) -> _Lines:
        """A worker's own screen."""
        page = self._page(row, notices)
        charts = max(height // 3, 2 * _LEAST_CHART_HEIGHT)
        lines = page.all(charts)
        return page.all(charts + height - len(lines)) if len(lines) < height else lines

    def _page(self, row: Row, notices: Sequence[tuple[float, str]]) -> Page:
        return Page(
            self._scene,
            row,
            self._width,
            level=self._level,
            seen=self._seen,
            glyphs=self._glyphs,
            now_unix_s=self._now_unix_s,
            notices=notices,
        )

    def workers(self, height: int, selected: str | None, sort: str) -> tuple[_Lines, int, _Lines]:
        """What stands above the rows, how many rows there is room for, what stands below them."""
        self._table = Rows(
            self._scene,
            self._width,
            level=self._level,
            seen=self._seen,
            glyphs=self._glyphs,
            sort=sort,
        )
        above: _Lines = []
        if len(self._scene.rows) > _FEW or len(self._rows) + 1 > height:
            above = self._summary(height)
        if height >= _LEAST_SUMMARY and len(above) + 1 + len(self._rows) >= height:
            above += self._worst()  # there is no room for it below the rows
        if height - len(above) >= 4:
            above.append(self._table.titles())
        page = min(max(height - len(above), 0), len(self._rows))
        return above, page, self._preview(height - len(above) - page, selected)

    def rows(self, rows: Sequence[Row], selected: str | None) -> _Lines:
        """Those that are visible."""
        assert self._table is not None, "workers() lays them out"
        return [self._table.row(row, self._now_unix_s, selected=row.name == selected) for row in rows]

    def _summary(self, height: int) -> _Lines:
        """The fleet in as many lines as the height allows."""
        names = summary.figure_names(self._seen, self._level)
        if height < _LEAST_SUMMARY:
            return []
        if height < 15:
            return [summary.one_line(self._scene, names, self._width)]
        lines = summary.figure_lines(self._scene, names[: 3 if height < 18 else None], self._width, self._glyphs)
        lines.append(summary.counts_line(self._scene, self._width))
        if height >= 18:
            most = max(height // 8, 1)
            size = summary.strip_size(len(self._scene.rows), self._width, most)
            each = "" if size == 1 else f", in each cell the worst of {size}"
            title = f"ALL WORKERS, {axis_title('mxu', axis_of(self._scene, 'mxu'))}{each}"
            blank: _Lines = [[]] if height >= _ROOMY else []
            lines += [*blank, plain(f" {title}", self._width, BOLD)]
            lines += [*summary.strip(self._scene, self._width, most, self._glyphs), *blank]
        return lines

    def _preview(self, room: int, selected: str | None) -> _Lines:
        """Below few rows: the chosen worker, or the first, in more detail; in a single line the worst."""
        if room < _LEAST_PREVIEW:
            return self._worst()[:room]
        row = next((row for row in self._rows if row.name == selected), self._rows[0])
        rule = Line(self._width).add(self._glyphs.rule * self._width, DIM).segments()
        above: _Lines = [[], rule] if room >= _ROOMY_PREVIEW else [rule]
        return [*above, *self._page(row, ()).preview(room - len(above))]

    def _worst(self) -> _Lines:
        """One line about the worst of those whose rows do not say since when; none where all are ok."""
        told = [row for row in self._rows if row.verdict.state == "live" and row.verdict.severity != "ok"]
        worst = min(told, key=lambda row: (row.verdict.rank, -row.verdict.excess), default=None)
        return [] if worst is None else [self._page(worst, ()).line()]

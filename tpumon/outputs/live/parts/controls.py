"""Choices of the user: the screen, the worker, the order, the filter, and a frozen picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tpumon.analysis import WorkerStatus
from tpumon.analysis.history import RollupSeries
from tpumon.outputs.drawing.cells import clock
from tpumon.outputs.live.parts.op_lines import BY_TIME
from tpumon.outputs.live.parts.order import Order, is_of, kinds
from tpumon.outputs.live.parts.scene import Scene
from tpumon.outputs.live.parts.spans import SPANS_S, Span, known_of, span_of
from tpumon.untrusted_text import one_line

_LONGEST_FILTER = 100
_END = 1 << 30


class Controls:
    """The choices that keys change. Keys call its methods; the display draws what it says.

    Attributes:
        latest: the fleet as it is now.
        scene: the fleet as it is shown: the same, unless the picture is frozen.
        rows: the workers of that scene in order, without those that the filter hides.
        frozen: whether the picture is frozen. Sampling goes on.
        order: how rows are sorted.
        filter: only workers that fit this text.
        kind: only workers of this kind, as `tpumon.outputs.live.parts.order.kinds` names them; empty: of every kind.
        mouse: whether the mouse chooses workers; otherwise the terminal selects text with it.
        bell: whether the terminal's bell rings when a worker becomes critical or goes down.
        typing: what is being typed: a filter, or the time to go to; empty: keys are commands.
        typed: the time, as far as it is typed.
        screens: names of the screens that are open, the one on top last; empty: the home screen is shown.
        selected: name of the worker at the cursor.
        opened: name of the worker whose page is open.
        page: how many rows or lines one page has.
        top: place of the first visible row.
        scroll: how many lines are above the visible ones.
        scrolls: whether some lines of the screen are hidden.
        ops_by: what operations are sorted by.
        span_s: how much time graphs show; None: as much as is known, up to an hour.
        end_unix_s: when graphs end; None: now.
        said: what a key has to say, until it is shown.
    """

    def __init__(self, scene: Scene, order: Order, text: str) -> None:
        self.latest = self.scene = scene
        self.rows: Sequence[WorkerStatus] = ()
        self.frozen = False
        self.order = order
        self.filter = text
        self.kind = ""
        self.mouse = True
        self.bell = False
        self.typing: Literal["", "filter", "time"] = ""
        self.typed = ""
        self.screens: list[str] = []
        self.selected: str | None = None
        self.opened: str | None = None
        self.page = 1
        self.top = 0
        self.scroll = 0
        self.scrolls = False
        self.ops_by = BY_TIME
        self.span_s: float | None = None
        self.end_unix_s: float | None = None
        self.said = ""
        self._gone_to_unix_s: float | None = None  # the moment that graphs were moved to

    def update(self, scene: Scene) -> None:
        """Takes the fleet as it is now; shows it unless the picture is frozen."""
        self.latest = scene
        if not self.frozen:
            self.scene = scene
            self._arrange()

    def freeze(self) -> None:
        """Freezes the picture, or lets it go on."""
        self.frozen = not self.frozen
        if not self.frozen:
            self.scene = self.latest
        self._arrange()

    def toggle_mouse(self) -> None:
        """Uses the mouse, or leaves it to the terminal."""
        self.mouse = not self.mouse

    def toggle_bell(self) -> None:
        self.bell = not self.bell

    # ---- which screen

    def open(self, name: str) -> None:
        self.screens.append(name)
        self.scroll = 0

    def toggle(self, name: str) -> None:
        """Opens a screen, or closes it if it is on top."""
        if self.screens[-1:] == [name]:
            self.back()
        else:
            self.open(name)

    def back(self) -> None:
        """Closes the top screen; on the home screen, shows all workers, then drops the cursor."""
        if self.screens:
            if self.screens.pop() == "worker":
                self.opened = None
            self.scroll = 0
        elif self.filter or self.kind:
            self.filter = self.kind = ""
            self._arrange()
        else:
            self.selected = None

    def open_worker(self) -> None:
        """Opens the page of the worker at the cursor; without a cursor, of the first."""
        if self.rows:
            self.opened = self.rows[self._place() or 0].name
            self.open("worker")

    def open_page(self, name: str) -> None:
        self.screens.clear()
        self.opened = self.selected = name
        self.open("worker")

    def open_neighbour(self, by: int) -> None:
        """Opens the page of the worker `by` rows below the open one, at the same place of the page."""
        place = next((place for place, row in enumerate(self.rows) if row.name == self.opened), None)
        if self.rows:
            target = 0 if place is None else max(min(place + by, len(self.rows) - 1), 0)
            self.opened = self.selected = self.rows[target].name

    # ---- the time that graphs show

    @property
    def _series(self) -> RollupSeries | None:
        """The figures of the worker whose graphs are shown."""
        row = self.scene.row(self._graphed) or next(iter(self.rows), None)
        return None if row is None else row.history.series

    @property
    def _graphed(self) -> str | None:
        return self.opened if "worker" in self.screens else self.selected

    def _span(self) -> Span | None:
        """The span that is shown; None: there is no graph."""
        series = self._series
        return None if series is None else span_of(series, self.span_s, self.end_unix_s, self.scene.time_unix_s)

    def known(self) -> Span | None:
        """The time that graphs can show; None: none."""
        return None if self._series is None else known_of(self._series, self.scene.time_unix_s)

    def change_span(self, *, longer: bool) -> None:
        """Shows the next longer or shorter span, with the same end."""
        span = self._span()
        if span is not None:
            length_s = span.end_unix_s - span.begin_unix_s
            place = min(range(len(SPANS_S)), key=lambda place: abs(SPANS_S[place] - length_s))
            self.span_s = SPANS_S[max(min(place + (1 if longer else -1), len(SPANS_S) - 1), 0)]

    def move_span(self, *, later: bool) -> None:
        """Shows an earlier or later time, by half a span; nearly as late as now, it goes on with it.

        It stops at the beginning of what is known.
        """
        span = self._span()
        if span is not None:
            self.span_s = length_s = span.end_unix_s - span.begin_unix_s
            known, now_unix_s = self.known(), self.scene.time_unix_s  # later than when somebody went back to look
            end_unix_s = span.end_unix_s + (length_s if later else -length_s) / 2
            if known is not None and not later:
                end_unix_s = max(end_unix_s, min(known.begin_unix_s + length_s, span.end_unix_s))
            before, self._gone_to_unix_s = self.end_unix_s, None
            self.end_unix_s = None if end_unix_s > now_unix_s - length_s / 4 else end_unix_s
            if self.end_unix_s == before:
                self.said = "end" if later else "beginning"

    def go_to(self, at_unix_s: float) -> None:
        """Shows graphs until a moment."""
        span = self._span()
        if span is not None:
            self.span_s = span.end_unix_s - span.begin_unix_s
            self.end_unix_s = self._gone_to_unix_s = at_unix_s

    def go_to_change(self, *, later: bool) -> None:
        """Shows graphs until the next or the previous change; of a worker, if its page is open."""
        span = self._span()
        if span is None:
            return
        at_unix_s = span.end_unix_s if self._gone_to_unix_s is None else self._gone_to_unix_s
        changes = self.scene.status.by_slice(self.scene.changes_of(self.opened))
        if later:
            change = next((each for each in changes if each.time_unix_s > at_unix_s), None)
        else:
            change = next((each for each in reversed(changes) if each.time_unix_s < at_unix_s), None)
        if change is None:
            self.said = f"no {'later' if later else 'earlier'} change"
        else:
            self.go_to(change.time_unix_s)
            when = clock(change.time_unix_s, self.scene.time_unix_s)
            self.said = f"{when} {change.worker}: {change.sentence}"

    def show_now(self) -> None:
        """Shows graphs until now again."""
        self.end_unix_s = self._gone_to_unix_s = None

    # ---- moving

    def move(self, by: int) -> None:
        self.scroll = max(self.scroll + by, 0)

    def move_to_end(self, *, first: bool) -> None:
        """Scrolls to the first or the last line."""
        self.scroll = 0 if first else _END

    def choose(self, by: int) -> None:
        """Moves the cursor by rows."""
        if not self.rows:
            return
        place = self._place()
        target = by if place is None and abs(by) > 1 else 0 if place is None else place + by
        self.selected = self.rows[max(min(target, len(self.rows) - 1), 0)].name

    def choose_end(self, *, first: bool) -> None:
        """Chooses the last row; or none, so that the list stays at its first row."""
        self.selected = None if first or not self.rows else self.rows[-1].name

    def click(self, name: str) -> None:
        """Chooses a worker; if it is chosen already, opens its page."""
        if self.selected == name:
            self.open_worker()
        self.selected = name

    def _place(self) -> int | None:
        return next((place for place, row in enumerate(self.rows) if row.name == self.selected), None)

    # ---- which rows, in which order

    def sort(self, *, reverse: bool) -> None:
        """Sorts by the next figure that there is, or reverses the order."""
        if reverse:
            self.order.reverse = not self.order.reverse
        else:
            self.order.cycle(self.scene.rows)
        self._arrange(at_once=True)

    def sort_by(self, key: str) -> None:
        """Sorts by this key; if that is the order already, reverses it."""
        reverse = self.order.by == key and not self.order.reverse
        self.order.by, self.order.reverse = key, reverse
        self._arrange(at_once=True)

    def sort_ops(self, order: str) -> None:
        self.ops_by = order

    def next_kind(self) -> str:
        """The kind of workers that `show_next_kind` shows."""
        offered = ["", *kinds(self.scene)]
        place = offered.index(self.kind) if self.kind in offered else 0
        return offered[(place + 1) % len(offered)]

    def show_next_kind(self) -> None:
        """Shows only workers that are not ok, then those of each kind of trouble that there is, then all."""
        self.kind = self.next_kind()
        self._arrange()

    def start_typing(self) -> None:
        """From now on keys are the text of the filter."""
        self.typing = "filter"

    def start_typing_time(self) -> None:
        """From now on keys are the text of a time."""
        self.typing, self.typed = "time", ""

    def type(self, key: str) -> bool:
        """Takes a key while something is typed; False: it means nothing there."""
        if self.typing == "time":
            return self._type_time(key)
        if key == "enter":
            self.typing = ""
        elif key == "esc":
            self.typing, self.filter = "", ""
        elif key in {"backspace", "ctrl-u"}:
            self.filter = self.filter[:-1] if key == "backspace" else ""
        elif key in {"up", "down"}:
            self.choose(1 if key == "down" else -1)
            return True
        else:
            return len(key) == 1 and self.type_text(key)
        self._arrange()
        return True

    def _type_time(self, key: str) -> bool:
        if key in {"enter", "esc"}:
            self.typing, self.typed = "", self.typed if key == "enter" else ""
        elif key in {"backspace", "ctrl-u"}:
            self.typed = self.typed[:-1] if key == "backspace" else ""
        else:
            return len(key) == 1 and self.type_text(key)
        return True

    def type_text(self, text: str) -> bool:
        """Appends text to what is typed; of pasted text, the first line. False: it cannot be printed."""
        typed = one_line(next(iter(text.strip("\r\n").splitlines()), "")) if len(text) > 1 else text
        if not typed.isprintable():
            return False
        if self.typing == "time":
            self.typed = (self.typed + typed)[:_LONGEST_FILTER]
            return True
        self.filter = (self.filter + typed)[:_LONGEST_FILTER]
        self._arrange()
        return True

    def _arrange(self, *, at_once: bool = False) -> None:
        """Sorts and filters the rows of the scene that is shown."""
        rows = self.order.arrange(self.scene.rows, self.scene.time_unix_s, at_once=at_once)
        if self.kind:
            rows = list(filter(is_of(self.kind), rows))
        if self.filter:
            rows = [row for row in rows if row.matches(self.filter)]
        place = self._place()
        self.rows = rows
        if place is not None and rows and self._place() is None:
            # The cursor is always visible: it goes to the row that stands there now.
            self.selected = rows[min(place, len(rows) - 1)].name

"""The live view's screens: samples and keys in, lines out. No terminal, no clock, no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment

from tpumon.fleet import Thresholds
from tpumon.text import one_line
from tpumon.view.loop.keys import PASTED
from tpumon.view.messages import Messages
from tpumon.view.parts.cells import age_changes_in_s
from tpumon.view.parts.header import Heading, Piece, footer, header, hints
from tpumon.view.parts.lines import tame
from tpumon.view.parts.order import SORTS, Order, matches
from tpumon.view.parts.scene import Row, Watch
from tpumon.view.parts.style import ASCII, HEADER, UNICODE, WARN
from tpumon.view.screens.workers import Body

if TYPE_CHECKING:
    from tpumon.model import Sample, Workers

_SAID = 10_000
_SOON_S = 0.01
_LONGEST_FILTER = 100
_LONGEST_NOTICE = 500


class Reply(Enum):
    """What a key press asks of the loop."""

    NOTHING = auto()
    REDRAW = auto()
    QUIT = auto()


class _Screen(Enum):
    WORKERS = auto()
    WORKER = auto()
    HELP = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplaySettings:
    """What a user decides about the live view.

    Attributes:
        level: 1 or 2; how much is shown.
        sort: one of `tpumon.view.parts.order.SORTS`.
        reverse: the other way round.
        filter: only workers whose name, address or slice contains this.
        ascii: nothing but ASCII.
        thresholds: from when on a figure stands out.
        from_url: the exporter that the samples come from; None: from the workers themselves.
    """

    level: int = 2
    sort: str = SORTS[0]
    reverse: bool = False
    filter: str = ""
    ascii: bool = False
    thresholds: Thresholds = field(default_factory=Thresholds)
    from_url: str | None = None


class Display:
    """An output that shows its samples on a screen.

    All methods but `notice` are to be called from one thread. What comes in is shown from the next `refresh` on.
    """

    def __init__(self, settings: DisplaySettings) -> None:
        self._settings = settings
        self._glyphs = ASCII if settings.ascii else UNICODE
        self._watch = Watch(settings.thresholds, self._glyphs)
        self._order = Order(settings.sort, reverse=settings.reverse)
        self._now_unix_s = 0.0
        self._latest = self._shown = self._watch.scene(0.0)
        self._rows: Sequence[Row] = ()
        self._paused = False
        self._filter = settings.filter
        self._typing = False
        self._only_not_ok = False
        self._screens = [_Screen.WORKERS]
        self._selected: str | None = None
        self._opened: str | None = None
        self._top = 0
        self._scroll = 0
        self._page = 1
        self._said: deque[str] = deque(maxlen=_SAID)
        self._messages = Messages()

    def follow(self, found: Workers) -> None:
        """These are the workers from now on."""
        self._watch.follow(found)
        self._messages.follow(found)

    def write(self, sample: Sample) -> None:
        """Takes one query's sample."""
        self._watch.add(sample)

    def close(self) -> None:
        """Nothing to do."""

    def notice(self, line: str) -> None:
        """A line about what happened: at the bottom for a while, then listed in the help. From any thread."""
        self._said.append(one_line(line, limit=_LONGEST_NOTICE))

    def refresh(self, now_unix_s: float) -> None:
        """Judges and sorts all workers; once for what came together."""
        self._hear(now_unix_s)
        self._latest = self._watch.scene(now_unix_s)
        if not self._paused:
            self._shown = self._latest
            self._arrange()

    def changes_at(self, now_unix_s: float) -> float | None:
        """When the picture changes by itself, by the wall clock; None: not before something comes in."""
        times = []
        if self._latest.fresh_until_unix_s is not None:
            times.append(self._latest.fresh_until_unix_s)
        until_unix_s = self._messages.until_unix_s
        if until_unix_s is not None and now_unix_s < until_unix_s:
            times.append(until_unix_s)
        ages_s = [
            now_unix_s - row.since_unix_s
            for row in self._latest.rows
            if row.verdict.state != "live" and row.since_unix_s is not None
        ]
        if ages_s and not self._paused:
            # Many ages change at many times; once a second is enough for all of them.
            times.append(now_unix_s + max(min(map(age_changes_in_s, ages_s)), 1.0 if len(ages_s) > 1 else 0.0))
        return max(min(times), now_unix_s) + _SOON_S if times else None

    def press(self, key: str) -> Reply:
        """What a key does: a printable character, or one of those named in `tpumon.view.loop.keys`."""
        pasted = key.startswith(PASTED)
        if self._typing:
            return self._type_text(key.removeprefix(PASTED)) if pasted else self._type(key)
        if key == "q":
            return Reply.QUIT
        if key in {"r", "ctrl-l"}:
            return Reply.REDRAW
        action = self._actions().get(key)
        if action is None:
            return Reply.NOTHING
        action()
        return Reply.REDRAW

    def render(self, width: int, height: int, now_unix_s: float) -> list[list[Segment]]:
        """The screen: at most `height` lines of at most `width` cells."""
        until_unix_s = self._latest.fresh_until_unix_s
        if until_unix_s is not None and now_unix_s > until_unix_s:
            self.refresh(now_unix_s)  # what has become old is never shown as new
        self._hear(now_unix_s)
        width, height = max(width, 1), max(height, 1)
        has_footer = height >= 6 or self._typing or self._message() != ""
        body = Body(
            self._shown,
            self._rows,
            width=width,
            level=self._settings.level,
            seen=self._watch.seen,
            glyphs=self._glyphs,
            now_unix_s=self._shown.time_unix_s if self._paused else now_unix_s,
        )
        lines = header(self._shown, self._heading(), width, self._glyphs)
        room = max(height - len(lines) - has_footer, 0)
        shown, position = self._body(body, room)
        told = ""
        while not has_footer and position != told:
            # It stands in the header then, which may take a line of the rows; none is given back, or this had no end.
            told = position
            lines = header(self._shown, self._heading(Piece(position, HEADER)), width, self._glyphs)
            room = min(room, max(height - len(lines), 0))
            shown, position = self._body(body, room)
        lines = [*lines, *shown]
        if has_footer:
            lines = [*lines[: height - 1], *([[]] * (height - 1 - len(lines))), self._footer(position, width)]
        return lines[:height]

    def _hear(self, now_unix_s: float) -> None:
        """It is now; what was said since counts from now."""
        self._now_unix_s = now_unix_s
        self._messages.set_time(now_unix_s)
        while self._said:
            self._messages.add(now_unix_s, self._said.popleft())

    # ---- what is drawn

    def _body(self, body: Body, room: int) -> tuple[list[list[Segment]], str]:
        """The lines between header and footer, and what part of all they are."""
        screen = self._screens[-1]
        row = self._shown.row(self._opened)
        if screen is _Screen.HELP:
            return self._scrolled(body.help(self._settings.thresholds, self._messages.all()), room)
        if screen is _Screen.WORKER and row is not None:
            return self._scrolled(body.worker(row, room, self._messages.about(row.history.target)), room)
        if not self._shown.rows:
            return self._scrolled(body.waiting(), room)
        if len(self._shown.rows) == 1 and self._rows:
            return self._scrolled(body.one(self._rows[0], room), room)
        if not self._rows:
            return [body.nobody(self._filter, only_not_ok=self._only_not_ok)][:room], f"0/{len(self._shown.rows)}"
        return self._workers(body, room)

    def _workers(self, body: Body, room: int) -> tuple[list[list[Segment]], str]:
        above, page, below = body.workers(room, self._selected, self._order.by)
        self._page = max(page, 1)
        self._top = self._top_for(self._page)
        visible = self._rows[self._top : self._top + page]
        lines = [*above, *body.rows(visible, self._selected), *below]
        total = len(self._shown.rows)
        among = f"{len(self._rows)} of {total}" if len(self._rows) < total else f"{total}"
        last = self._top + len(visible)
        position = f"{self._top + 1}-{last}/{among}" if visible else f"0/{among}"
        return lines[:room], position

    def _top_for(self, page: int) -> int:
        """The first visible row: the chosen worker stays in sight, nobody chosen is the top."""
        place = self._place()
        if place is None:
            return 0
        top = min(max(self._top, place - page + 1), place)
        return max(min(top, len(self._rows) - page), 0)

    def _scrolled(self, lines: list[list[Segment]], room: int) -> tuple[list[list[Segment]], str]:
        self._page = max(room - 1, 1)
        self._scroll = max(min(self._scroll, len(lines) - room), 0)
        visible = lines[self._scroll : self._scroll + room]
        hidden = len(visible) < len(lines)
        return visible, f"{self._scroll + 1}-{self._scroll + len(visible)}/{len(lines)}" if hidden else ""

    def _heading(self, *extra: Piece) -> Heading:
        row = self._shown.row(self._opened) if self._screens[-1] is _Screen.WORKER else None
        return Heading(
            now_unix_s=self._now_unix_s,
            row=row,
            paused_unix_s=self._shown.time_unix_s if self._paused else None,
            now=self._latest,
            from_url=self._settings.from_url,
            extra=extra,
        )

    def _message(self) -> str:
        """What was said just now."""
        return tame(self._messages.now(self._now_unix_s), ascii_only=self._glyphs.ascii)

    def _footer(self, position: str, width: int) -> list[Segment]:
        if self._typing:
            typed = f"/{tame(self._filter, ascii_only=self._glyphs.ascii)}_"
            room = width - cell_len(typed) - cell_len(position) - 5
            help_text = hints(("Enter keeps", "Esc clears"), room)
            # The end of what is typed is what is looked at.
            while cell_len(typed) + cell_len(position) + 3 > width and len(typed) > 2:
                typed = typed[0] + typed[2:]
            return footer(f"{typed}   {help_text}", position, width, self._glyphs, WARN)
        sides = []
        if self._filter:
            sides.append(f"/{tame(self._filter, ascii_only=self._glyphs.ascii)[:20]}")
        if self._only_not_ok:
            sides.append("not ok")
        on_list = self._screens[-1] is _Screen.WORKERS
        if on_list and len(self._shown.rows) > 1:
            sides.append(f"sort:{self._order.by}{' reversed' if self._order.reverse else ''}")
        right = position
        for side in reversed(sides if on_list else []):
            if cell_len(right) + cell_len(side) + 8 <= width:
                right = f"{side}  {right}" if right else side
        message = self._message()
        if message:
            return footer(message, position, width, self._glyphs, WARN)
        return footer(hints(self._hints(), width - cell_len(right) - 4), right, width, self._glyphs)

    def _hints(self) -> tuple[str, ...]:
        pause = "p go on" if self._paused else "p pause"
        scroll = f"{self._glyphs.arrows} scroll"
        if self._screens[-1] is _Screen.HELP:
            return ("q quit", "Esc back", scroll)
        if self._screens[-1] is _Screen.WORKER:
            return ("q quit", "Esc back", pause, scroll, "h help")
        if len(self._shown.rows) < 2:
            return ("q quit", pause, "h help", *(("Enter more",) if self._rows else ()))
        return (
            "q quit",
            pause,
            "h help",
            "s sort",
            "Enter worker",
            "/ filter",
            "f not ok",
            f"{self._glyphs.arrows} choose",
        )

    # ---- what keys do

    def _actions(self) -> dict[str, Callable[[], None]]:
        anywhere: dict[str, Callable[[], None]] = {
            "p": self._pause,
            " ": self._pause,
            "h": self._help,
            "?": self._help,
            "esc": self._back,
            "backspace": self._back,
            "enter": self._open,
            "up": lambda: self._move(-1),
            "k": lambda: self._move(-1),
            "down": lambda: self._move(1),
            "j": lambda: self._move(1),
            "pageup": lambda: self._move(-self._page),
            "pagedown": lambda: self._move(self._page),
            "g": self._first,
            "home": self._first,
            "G": self._last,
            "end": self._last,
        }
        if self._screens[-1] is not _Screen.WORKERS or len(self._shown.rows) < 2:
            return anywhere
        return anywhere | {"s": self._sort, "S": self._reverse, "f": self._filter_not_ok, "/": self._start_typing}

    def _type(self, key: str) -> Reply:
        if key == "enter":
            self._typing = False
        elif key == "esc":
            self._typing, self._filter = False, ""
        elif key == "backspace":
            self._filter = self._filter[:-1]
        elif len(key) == 1:
            return self._type_text(key)
        elif key in {"up", "down", "pageup", "pagedown", "ctrl-l"}:
            if key in {"up", "down"}:
                self._move(1 if key == "down" else -1)
            return Reply.REDRAW
        else:
            return Reply.NOTHING
        self._arrange()
        return Reply.REDRAW

    def _type_text(self, text: str) -> Reply:
        """Of what was pasted the first line."""
        typed = one_line(next(iter(text.strip("\r\n").splitlines()), "")) if len(text) > 1 else text
        if not typed.isprintable():
            return Reply.NOTHING
        self._filter = (self._filter + typed)[:_LONGEST_FILTER]
        self._arrange()
        return Reply.REDRAW

    def _pause(self) -> None:
        self._paused = not self._paused
        self._shown = self._shown.frozen() if self._paused else self._latest
        self._arrange()

    def _help(self) -> None:
        if self._screens[-1] is _Screen.HELP:
            self._back()
        else:
            self._go(_Screen.HELP)

    def _go(self, screen: _Screen) -> None:
        self._screens.append(screen)
        self._scroll = 0

    def _back(self) -> None:
        """To the screen before; on the first one, to what is shown without any choice."""
        if len(self._screens) > 1:
            self._screens.pop()
            self._scroll = 0
        elif self._filter or self._only_not_ok:
            self._filter, self._only_not_ok = "", False
            self._arrange()
        else:
            self._selected = None

    def _open(self) -> None:
        if self._screens[-1] is _Screen.WORKERS and self._rows:
            self._opened = self._rows[self._place() or 0].name
            self._go(_Screen.WORKER)

    def _move(self, by: int) -> None:
        if self._screens[-1] is not _Screen.WORKERS or len(self._shown.rows) < 2:
            self._scroll = max(self._scroll + by, 0)
            return
        if not self._rows:
            return
        place = self._place()
        target = by if place is None and abs(by) > 1 else 0 if place is None else place + by
        self._selected = self._rows[max(min(target, len(self._rows) - 1), 0)].name

    def _first(self) -> None:
        self._scroll = 0
        self._selected = None

    def _last(self) -> None:
        self._scroll = 1 << 30
        if self._screens[-1] is _Screen.WORKERS and self._rows:
            self._selected = self._rows[-1].name

    def _sort(self) -> None:
        self._order.cycle()
        self._arrange(at_once=True)

    def _reverse(self) -> None:
        self._order.reverse = not self._order.reverse
        self._arrange(at_once=True)

    def _filter_not_ok(self) -> None:
        self._only_not_ok = not self._only_not_ok
        self._arrange()

    def _start_typing(self) -> None:
        self._typing = True

    def _place(self) -> int | None:
        """Where the chosen worker stands."""
        if self._selected is None:
            return None
        return next((place for place, row in enumerate(self._rows) if row.name == self._selected), None)

    def _arrange(self, *, at_once: bool = False) -> None:
        """Orders and filters the rows of the scene that is shown."""
        rows = self._order.arrange(self._shown.rows, self._shown.time_unix_s, at_once=at_once)
        if self._only_not_ok:
            rows = [row for row in rows if row.verdict.severity != "ok"]
        if self._filter:
            wanted = matches(self._filter)
            rows = [row for row in rows if wanted(row)]
        place = self._place()
        self._rows = rows
        if place is not None and rows and self._place() is None:
            # The choice is always to be seen: it goes to who stands there now.
            self._selected = rows[min(place, len(rows) - 1)].name

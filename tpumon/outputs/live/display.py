"""The live view as an output: samples and keys in, lines out. No terminal, no clock, no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment

from tpumon.moments import EXAMPLES, moment_of
from tpumon.outputs import Output
from tpumon.outputs.drawing.cells import age_changes_in_s
from tpumon.outputs.drawing.line import Lines, plain, tame, wrapped
from tpumon.outputs.drawing.style import ASCII, CRITICAL, HEADER, UNICODE, WARN
from tpumon.outputs.live.loop.keys import CLICKED, PASTED
from tpumon.outputs.live.parts.controls import Controls
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.parts.header import HINT_GAP, HeaderPiece, footer, header, hints
from tpumon.outputs.live.parts.notes import Messages
from tpumon.outputs.live.parts.order import Order
from tpumon.outputs.live.parts.scene import SceneMaker, is_paused_no_more
from tpumon.outputs.live.parts.spans import Span
from tpumon.outputs.live.parts.waiting import changes_in_s
from tpumon.outputs.live.screens import screen_table as table
from tpumon.outputs.live.screens.screen import Hit, Picture, Reply, Screen
from tpumon.untrusted_text import one_line

if TYPE_CHECKING:
    from tpumon.analysis import Analysis, Update
    from tpumon.model.progress import Progress
    from tpumon.outputs.live.view_settings import DisplaySettings

P = ParamSpec("P")
T = TypeVar("T")

LEAST_PAUSE_S = 0.25
"""The shortest time between two pictures of new data."""

_NOTICES = 10_000
_SOON_S = 0.01
_LONGEST_NOTICE = 500
_WHEEL = {"wheelup": "up", "wheeldown": "down"}
_LINES_PER_TURN = 3
_ALARMING = frozenset({"critical", "down"})
_LEAST_WITH_FOOTER = 6
_LEAST_WITH_MESSAGE_LINE = 12


class Display(Output):
    """An output that shows the fleet on a screen.

    Call all methods but `notice` from one thread. New samples are shown from the next `refresh` on.

    Args:
        settings: the user's.
        analysis: what it asks for the status of all workers.

    Attributes:
        from_url: where samples come from, if not from this process.
        recorded: of a recording, how it is played.
        progress: what this process does about each worker; None: it takes no samples.
    """

    remembers = True

    def __init__(self, settings: DisplaySettings, analysis: Analysis) -> None:
        self._settings = settings
        self.from_url = settings.from_url
        self.recorded = ""
        self.progress: Progress | None = None
        self._glyphs = ASCII if settings.ascii else UNICODE
        self._scene_maker = SceneMaker(analysis, self._glyphs)
        order = Order(settings.sort, reverse=settings.reverse)
        self._controls = Controls(self._scene_maker.scene(0.0), order, settings.filter)
        self._screens = {screen.name: screen for screen in table.SCREENS}
        self._key_sections = table.key_sections(settings.more_keys)
        self._now_unix_s = 0.0
        self._size = (80, 24)
        self._notices: deque[str] = deque(maxlen=_NOTICES)
        self._messages = Messages()
        self._unread: Sequence[str] = ()
        self._failed: str | None = None
        self._hits: Sequence[Hit] = ()
        self._last_change: int | None = 0  # that was looked at; None: all that are known are past
        self._alarm = False

    @property
    def wants_mouse(self) -> bool:
        """True if the terminal should report its mouse."""
        return self._controls.mouse

    @property
    def waits(self) -> bool:
        """True if nothing was heard of any worker, as far as `refresh` was called."""
        return all(row.verdict.state == "waiting" for row in self._controls.latest.rows)

    def pause_s(self, busy_s: float) -> float:
        """Seconds to wait before drawing new data again, after a picture that took this much CPU time.

        Many workers, each on its own clock, would have it drawn all the time. It takes 0.2 % of a core, or what it
        takes to be drawn every second, but no more than 1 %. A picture of workers that nobody has heard of delays no
        other one, however long their table takes.
        """
        return LEAST_PAUSE_S if self.waits else min(max(LEAST_PAUSE_S, min(busy_s / 0.002, 1.0), busy_s / 0.01), 5.0)

    def pop_alarm(self) -> bool:
        """Returns True if the bell is on and a worker became critical or went down since the last call."""
        alarm, self._alarm = self._alarm and self._controls.bell, False
        return alarm

    def on_update(self, update: Update) -> None:
        """Notes a new list of workers; `refresh` asks the analysis for all else."""
        if update.workers is not None:
            self._messages.follow(update.workers)

    def start_again(self, analysis: Analysis) -> None:
        """Shows another analysis; keeps what the user chose. What it knows at the next `refresh` is no news."""
        self._scene_maker, self._messages = SceneMaker(analysis, self._glyphs), Messages()
        self._last_change = None

    def notice(self, line: str) -> None:
        """Shows a line about what happened: in the footer for a while, then on the help screen. From any thread."""
        self._notices.append(one_line(line, limit=_LONGEST_NOTICE))

    def begin_with(self, lines: Sequence[str]) -> None:
        """Shows what was said before the view began, until a key is pressed; then it is on the help screen."""
        for line in lines:
            self.notice(line)
        self._unread = lines

    def _say(self, line: str) -> None:
        """Shows what a key has to say, in place of what the last one said."""
        if line:
            self._messages.reply(self._now_unix_s, one_line(line, limit=_LONGEST_NOTICE))

    def refresh(self, now_unix_s: float) -> None:
        """Takes in what came; call it once for everything that came together. Never raises."""
        self._take_in(now_unix_s)

    def _take_in(self, now_unix_s: float) -> None:
        """Takes in the latest status and sorts its rows. Never raises."""
        self._failed = None
        try:
            self._take_notices(now_unix_s)
            self._controls.update(self._scene_maker.scene(now_unix_s, self.progress))
            self._note_changes()
        except Exception as error:  # noqa: BLE001  # a fault here ends neither sampling nor outputs
            self._failed = f"Cannot read the status: {_where(error)}"  # what is known is old: it is not shown

    def _note_changes(self) -> None:
        """Adds a message for each worker that became critical or restarted; sets the alarm for critical and down."""
        status = self._controls.latest.status
        if self._last_change is None:
            self._last_change = status.changes[-1].number if status.changes else 0
        self._last_change = max(self._last_change, status.last_past_change)  # what happened before is no news
        first = self._last_change == 0
        for change in status.changes_after(self._last_change):
            self._last_change = change.number
            if first and change.what == "state" and change.before in {None, "waiting"}:
                continue  # it was so from the first
            row = self._controls.latest.row(change.worker)
            since_unix_s = None if row is None else row.verdict.critical_since_unix_s
            if change.status == "critical" and since_unix_s is not None and since_unix_s < change.time_unix_s - _SOON_S:
                continue  # it was so before a gap, too
            self._alarm = self._alarm or change.status in _ALARMING
            if change.what == "restart" or change.status == "critical":
                what = change.words if change.what == "restart" else f"critical: {change.words}"
                self._messages.add(self._now_unix_s, one_line(f"{change.worker}: {what}", limit=_LONGEST_NOTICE))

    def changes_at(self, now_unix_s: float) -> float | None:
        """Wall-clock time at which the picture changes by itself; None: not before something comes in."""
        latest, times = self._controls.latest, []
        if latest.fresh_until_unix_s is not None:
            times.append(latest.fresh_until_unix_s)
        until_unix_s = self._messages.until_unix_s
        if until_unix_s is not None and now_unix_s < until_unix_s:
            times.append(until_unix_s)
        ages_s = [
            now_unix_s - row.verdict.since_unix_s
            for row in latest.rows
            if row.verdict.state != "live" and row.verdict.since_unix_s is not None
        ]
        if ages_s and not self._controls.frozen:
            # Many ages change at many times; once a second is enough for all of them.
            times.append(now_unix_s + max(min(map(age_changes_in_s, ages_s)), 1.0 if len(ages_s) > 1 else 0.0))
        frame = replace(self._frame(), clock_unix_s=now_unix_s)
        changes_in = _answer(changes_in_s, frame, _answer(self._screen(frame).about, frame))
        if changes_in is not None:
            times.append(now_unix_s + changes_in)
        return max(min(times), now_unix_s) + _SOON_S if times else None

    def press(self, name: str) -> Reply:
        """Takes a key: a printable character, or one of the names in `tpumon.outputs.live.loop.keys`."""
        is_news, self._unread = bool(self._unread), ()
        reply = self._press(name)
        return Reply.REDRAW if is_news and reply is Reply.NOTHING else reply

    def _press(self, name: str) -> Reply:
        if name in _WHEEL:
            return [self._press(_WHEEL[name]) for _ in range(_LINES_PER_TURN)][-1]
        if self._controls.typing:
            return self._type(name)
        if name.startswith(CLICKED):
            return self._click(name)
        screen = self._screen(self._frame())
        key = next((key for key in table.keys_on(screen) if name in key.names), None)
        if key is None:
            return Reply.NOTHING
        try:
            reply = key.press(self._controls, name)
            self._say(self._controls.said)
            self._controls.said = ""
            return reply or Reply.REDRAW
        except Exception as error:  # noqa: BLE001  # a faulty screen ends neither sampling nor outputs
            self.notice(f"{key.written} failed on {screen.title}: {_where(error)}")
            return Reply.REDRAW

    def _click(self, name: str) -> Reply:
        """Takes a click at a place of the last picture."""
        column, line = map(int, name.removeprefix(CLICKED).split(":"))
        hit = next((hit for hit in self._hits if hit.line == line and hit.begin <= column < hit.end), None)
        if hit is None:
            return Reply.NOTHING
        if isinstance(hit.press, str):
            return self._press(hit.press)
        hit.press(self._controls)
        return Reply.REDRAW

    def render(self, width: int, height: int, now_unix_s: float) -> Lines:
        """The picture: at most `height` lines of at most `width` cells. Never raises."""
        failed = self._failed
        if failed is None:
            try:
                return self._picture(width, height, now_unix_s)
            except Exception as error:  # noqa: BLE001  # a fault here ends neither sampling nor outputs
                failed = f"Cannot draw: {_where(error)}"
        text = tame(f" {failed}; sampling goes on", ascii_only=self._glyphs.ascii)
        return [plain(part, max(width, 1), CRITICAL) for part in wrapped(text, max(width, 1))][: max(height, 1)]

    def _picture(self, width: int, height: int, now_unix_s: float) -> Lines:
        latest = self._controls.latest
        is_old = latest.fresh_until_unix_s is not None and now_unix_s > latest.fresh_until_unix_s
        if is_old or any(is_paused_no_more(row, self.progress) for row in latest.rows):
            # Old figures are never shown as fresh.
            self._take_in(now_unix_s)
        self._take_notices(now_unix_s)
        self._size = width, height = max(width, 1), max(height, 1)
        message = self._message()
        has_footer = height >= _LEAST_WITH_FOOTER or self._controls.typing != "" or message != ""
        above: Lines = []
        if message and height >= _LEAST_WITH_MESSAGE_LINE:
            above = [footer(message, "", width, self._glyphs, WARN)]  # the keys stay in sight
        below = len(above) + has_footer
        frame = self._frame()
        screen = self._screen(frame)
        row = _answer(screen.about, frame)
        lines = header(frame, row)
        room = max(height - len(lines) - below, 0)
        drawn, position = self._draw(screen, replace(frame, height=room))
        shown = ""
        while not has_footer and position != shown:
            # The position goes into the header, which may then need a line more. No line is given back, so this ends.
            shown = position
            lines = header(frame, row, HeaderPiece(position, HEADER))
            room = min(room, max(height - len(lines), 0))
            drawn, position = self._draw(screen, replace(frame, height=room))
        first = 0 if drawn.position is not None else self._controls.scroll
        hits = [replace(hit, line=hit.line - first + len(lines)) for hit in drawn.hits]
        self._hits = [hit for hit in hits if len(lines) <= hit.line < height - below]
        lines = [*lines, *drawn.lines]
        if has_footer:
            blank: Lines = [[]] * (height - below - len(lines))
            bottom = self._footer(screen, drawn.notes, position, "" if above else message)
            lines = [*lines[: height - below], *blank, *above, bottom]
        return lines[:height]

    def _take_notices(self, now_unix_s: float) -> None:
        """Sets the time; messages that came since count from now."""
        self._now_unix_s = now_unix_s
        self._messages.set_time(now_unix_s)
        while self._notices:
            self._messages.add(now_unix_s, self._notices.popleft())

    # ---- screens

    def _frame(self) -> Frame:
        return Frame(
            controls=self._controls,
            settings=self._settings,
            scene=self._controls.scene,
            rows=self._controls.rows,
            width=self._size[0],
            height=self._size[1],
            glyphs=self._glyphs,
            clock_unix_s=self._now_unix_s,
            from_url=self.from_url,
            progress=self.progress,
            recorded=self.recorded,
            messages=self._messages.all(),
            keys=self._key_sections,
        )

    def _screen(self, frame: Frame) -> Screen:
        """Screen on top. A screen that no longer fits is closed; a screen that raises stays open."""
        while self._controls.screens:
            screen = self._screens[self._controls.screens[-1]]
            if _answer(screen.fits, frame) is not False:
                return screen
            self._controls.back()
        return next(screen for screen in table.HOMES if _answer(screen.fits, frame) is not False)

    def _draw(self, screen: Screen, frame: Frame) -> tuple[Picture, str]:
        """The screen's visible lines, and which part of it they are; if it raises, a line that says so."""
        try:
            drawn = screen.draw(frame)
        except Exception as error:  # noqa: BLE001  # a faulty screen ends neither sampling nor outputs
            text = f" Cannot show {screen.title}: {_where(error)}; sampling goes on"
            text = tame(text, ascii_only=frame.glyphs.ascii)
            drawn = Picture(lines=[plain(part, frame.width, CRITICAL) for part in wrapped(text, frame.width)])
        controls = self._controls
        controls.page = drawn.page or max(frame.height - 1, 1)
        if drawn.position is not None:
            controls.top, controls.scrolls = drawn.top, False
            return drawn, drawn.position
        lines = drawn.lines
        controls.scroll = max(min(controls.scroll, len(lines) - frame.height), 0)
        visible = lines[controls.scroll : controls.scroll + frame.height]
        controls.scrolls = len(visible) < len(lines)
        position = f"{controls.scroll + 1}-{controls.scroll + len(visible)}/{len(lines)}" if controls.scrolls else ""
        return replace(drawn, lines=visible), position

    # ---- header and footer

    def _message(self) -> str:
        """The message from before the view began, until a key is pressed; else the newest message, while it is new."""
        more = f"(+{len(self._unread) - 1}, see h) " if len(self._unread) > 1 else ""
        text = more + self._unread[0] if self._unread else self._messages.now(self._now_unix_s)
        return tame(text, ascii_only=self._glyphs.ascii)

    def _footer(self, screen: Screen, notes: Sequence[str], position: str, message: str) -> list[Segment]:
        """Keys at the left, or a message that has no line of its own; at the right, what is shown."""
        width, controls = self._size[0], self._controls
        if controls.typing:
            return self._typing_line(position)
        if message:
            return footer(message, position, width, self._glyphs, WARN)
        right = position
        switched = ["bell"] * controls.bell + ["no mouse"] * (not controls.mouse)
        for note in reversed([*switched, *notes]):
            if cell_len(right) + cell_len(note) + 8 <= width:
                right = f"{note}  {right}" if right else note
        keys = [(_answer(key.footer, controls, self._glyphs.arrows), key.names[0]) for key in table.keys_on(screen)]
        shown = [(hint, name) for hint, name in keys if hint]
        # A click on these would press a key of the view.
        shown[1:1] = [(key.hint, "") for section in self._settings.more_keys for key in section.keys if key.hint]
        text = hints([hint for hint, _ in shown], width - cell_len(right) - 4)
        at = 1
        for hint, name in shown:
            if name and at + cell_len(hint) <= 1 + cell_len(text):
                self._hits = [*self._hits, Hit(self._size[1] - 1, at, at + cell_len(hint), name)]
            at += cell_len(hint) + HINT_GAP
        return footer(text, right, width, self._glyphs)

    def _typing_line(self, position: str) -> list[Segment]:
        width, controls = self._size[0], self._controls
        for_time = controls.typing == "time"
        typed = f"go to: {controls.typed}_" if for_time else f"/{controls.filter}_"
        typed = tame(typed, ascii_only=self._glyphs.ascii)
        empties = ("Ctrl-U empties",) if controls.filter else ()
        words = (
            (EXAMPLES, "Enter", "Esc cancels")
            if for_time
            else ("Enter keeps", *empties, "Esc clears", "name, state or finding")
        )
        keys = hints(words, width - cell_len(typed) - cell_len(position) - 5)
        # If it is too long, its end is shown: that is where the user types.
        while cell_len(typed) + cell_len(position) + 3 > width and len(typed) > 2:
            typed = typed[0] + typed[2:]
        return footer(f"{typed}   {keys}", position, width, self._glyphs, WARN)

    def _type(self, name: str) -> Reply:
        """Takes a key while a filter or a time is typed."""
        if name == "ctrl-l":
            return Reply.REPAINT
        if name.startswith(PASTED):
            return Reply.REDRAW if self._controls.type_text(name.removeprefix(PASTED)) else Reply.NOTHING
        understood = self._controls.type(name)
        if not self._controls.typing and self._controls.typed:
            text, self._controls.typed = self._controls.typed, ""
            self._go_to_typed(text)
        return Reply.REDRAW if understood else Reply.NOTHING

    # ---- looking back

    def _go_to_typed(self, text: str) -> None:
        known = self._known()
        if known is None:
            self._say("there are no samples yet")
            return
        try:
            at_unix_s = moment_of(text, *known)
        except ValueError as error:
            self._say(f"{text}: {error}")
        else:
            self._go_to_time(at_unix_s)

    def _known(self) -> Span | None:
        """The time that can be gone to; None: none."""
        return self._controls.known()

    def _go_to_time(self, at_unix_s: float) -> None:
        """Shows a moment: its graphs, for the figures of no other time than now are kept."""
        self._controls.go_to(at_unix_s)


def _answer(ask: Callable[P, T], *about: P.args, **more: P.kwargs) -> T | None:
    """The answer of a screen; None if it raises: drawing it will show the error."""
    try:
        return ask(*about, **more)
    except Exception:  # noqa: BLE001  # a faulty screen ends neither sampling nor outputs
        return None


def _where(error: Exception) -> str:
    """An error in a few words, and the line that raised it."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    file = "" if at is None else at.tb_frame.f_code.co_filename.rpartition("/")[2]
    place = "" if at is None else f" ({file}:{at.tb_lineno})"
    return one_line(f"{type(error).__name__}: {error}{place}", limit=200)

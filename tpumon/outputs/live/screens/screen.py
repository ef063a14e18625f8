"""Base of screens, and their keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Protocol

from msgspec import Struct

from tpumon.analysis import WorkerStatus
from tpumon.outputs.drawing.line import Lines
from tpumon.outputs.live.parts.controls import Controls
from tpumon.outputs.live.parts.frame import Frame


class Reply(Enum):
    """Request of a key press to the loop: nothing, a new picture, every line written again, or to quit."""

    NOTHING = auto()
    REDRAW = auto()
    REPAINT = auto()
    QUIT = auto()


_WRITTEN = {
    " ": "Space",
    "backspace": "Backspace",
    "ctrl-c": "Ctrl-C",
    "ctrl-l": "Ctrl-L",
    "end": "End",
    "enter": "Enter",
    "esc": "Esc",
    "home": "Home",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "tab": "Tab",
}


class Key(Struct, frozen=True, kw_only=True):
    """One action and the keys that start it. The dispatch, the footer and the help screen all read this.

    Attributes:
        names: the keys, as `tpumon.outputs.live.loop.keys` names them; the footer shows the first.
        words: what it does, for the help screen.
        press: does it; receives the controls and the key's name. None: the picture is drawn again.
        hint: a word or two for the footer, or what returns them; empty: not in the footer now.
    """

    names: tuple[str, ...]
    words: str
    press: Callable[[Controls, str], Reply | None]
    hint: str | Callable[[Controls], str] = ""

    @property
    def written(self) -> str:
        """The keys as they are written on a keyboard: `PgUp, PgDn`."""
        return ", ".join(_WRITTEN.get(name, name) for name in self.names)

    def footer(self, controls: Controls, arrows: str) -> str:
        """Words of the key in the footer: `s sort`; empty: not now."""
        hint = self.hint if isinstance(self.hint, str) else self.hint(controls)
        first = arrows if self.names[0] == "up" else _WRITTEN.get(self.names[0], self.names[0])
        return hint and f"{first} {hint}"


class Hit(Struct, frozen=True):
    """A place that can be clicked.

    Attributes:
        line: counted from 0, among the lines that a screen drew.
        begin, end: the first cell, and the one behind the last.
        press: what a click does there; the name of a key: what that key does.
    """

    line: int
    begin: int
    end: int
    press: Callable[[Controls], object] | str


class Picture(Struct, frozen=True, kw_only=True):
    """Lines that a screen has drawn from a frame, and what the display needs to show them.

    Attributes:
        lines: if there are more than the frame is high, the display scrolls through them.
        position: which part of everything the lines are, where the screen itself has chosen; None: they are everything.
        page: how many rows one page has; None: as many as lines fit.
        top: place of the first row.
        notes: what else the footer says, such as the sort order.
        hits: places that can be clicked.
    """

    lines: Lines
    position: str | None = None
    page: int | None = None
    top: int = 0
    notes: Sequence[str] = ()
    hits: Sequence[Hit] = ()


class Screen(Protocol):
    """One screen. Subclass it, implement `draw`, and add an instance to `tpumon.outputs.live.screens.screen_table`.

    A screen keeps nothing between pictures: what is shown comes with the frame, what the user chose is in the controls.

    Attributes:
        name: what `Controls.open` calls it.
        title: what users call it: `the list of workers`.
        opened_by: the key that opens it from everywhere; None: another screen opens it.
        keys: what keys do here; they may take over keys that scroll, no others.
    """

    name: str
    title: str
    opened_by: Key | None = None
    keys: Sequence[Key] = ()

    def fits(self, frame: Frame) -> bool:  # noqa: ARG002
        """True if there is something for it to show; a screen that no longer fits is closed."""
        return True

    def about(self, frame: Frame) -> WorkerStatus | None:  # noqa: ARG002
        """The worker that the heading is about; None: all workers."""
        return None

    @abstractmethod
    def draw(self, frame: Frame) -> Picture:
        """Draws the lines, each at most `frame.width` cells wide."""


def opening(name: str, *keys: str, hint: str | Callable[[Controls], str], words: str) -> Key:
    """The key that opens a screen from everywhere, and closes it again."""
    return Key(names=keys, hint=hint, words=words, press=lambda controls, _: controls.toggle(name))


SPAN_KEYS: tuple[Key, ...] = (
    Key(
        names=("+", "=", "-"),
        hint=lambda controls: "longer" if controls.screens or len(controls.rows) == 1 else "",
        words="show a longer time in graphs (+), or a shorter one (-): a minute to a week",
        press=lambda controls, key: controls.change_span(longer=key != "-"),
    ),
    Key(
        names=("left", "right"),
        words="show an earlier time in graphs, or a later one",
        press=lambda controls, key: controls.move_span(later=key == "right"),
    ),
    Key(
        names=("[", "]"),
        words="show graphs until the previous change, or the next one; on a worker's page, of this worker",
        press=lambda controls, key: controls.go_to_change(later=key == "]"),
    ),
    Key(
        names=("t",),
        words="show graphs until a time that you type: 03:12, or -20m before now",
        press=lambda controls, _: controls.start_typing_time(),
    ),
    Key(
        names=("0",),
        hint=lambda controls: "" if controls.end_unix_s is None else "now",
        words="show graphs until now again",
        press=lambda controls, _: controls.show_now(),
    ),
)
"""Keys of graphs: how much time they show, and until when."""

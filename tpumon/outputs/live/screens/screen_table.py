"""All screens, and the keys that work on every one of them. A new screen needs one line here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tpumon.outputs.live.parts.controls import Controls
from tpumon.outputs.live.screens.events_screen import EventsScreen
from tpumon.outputs.live.screens.help_screen import HelpScreen
from tpumon.outputs.live.screens.home_screens import SingleWorkerScreen, WaitingScreen
from tpumon.outputs.live.screens.ops_screen import OpsScreen
from tpumon.outputs.live.screens.screen import Key, Reply, Screen, opening
from tpumon.outputs.live.screens.why_screen import WhyScreen
from tpumon.outputs.live.screens.worker_screen import WorkerScreen
from tpumon.outputs.live.screens.workers_screen import WorkersScreen
from tpumon.outputs.live.view_settings import KeySection, KeyWords

HOMES: tuple[Screen, ...] = (WaitingScreen(), SingleWorkerScreen(), WorkersScreen())
"""Screens for when nothing is open: the first that fits is shown."""

SCREENS: tuple[Screen, ...] = (WorkerScreen(), WhyScreen(), EventsScreen(), OpsScreen(), HelpScreen())
"""Screens that are opened on top of the home screen."""


def _back(controls: Controls) -> str:
    return "back" if controls.screens else "show all" if controls.filter or controls.kind else ""


KEYS: tuple[Key, ...] = (
    # Ctrl-C arrives as a signal; it is here for the help screen.
    Key(names=("q", "ctrl-c"), hint="quit", words="quit", press=lambda *_: Reply.QUIT),
    Key(
        names=("esc", "backspace"),
        hint=_back,
        words="go back; from the first screen, show all workers again",
        press=lambda controls, _: controls.back(),
    ),
    Key(
        names=("p", " "),
        hint=lambda controls: "unfreeze" if controls.frozen else "freeze",
        words="freeze the picture, or unfreeze it; sampling goes on meanwhile",
        press=lambda controls, _: controls.freeze(),
    ),
    opening("help", "h", "?", hint="help", words="open this help, or close it"),
    Key(
        names=("m",),
        words="leave the mouse to the terminal, to select text, or use it again; a click chooses, opens or sorts",
        press=lambda controls, _: controls.toggle_mouse(),
    ),
    Key(
        names=("b",),
        words="ring the bell when a worker becomes critical or goes down, or stop that",
        press=lambda controls, _: controls.toggle_bell(),
    ),
    Key(
        names=("r", "ctrl-l"),
        words="redraw the screen; this takes no extra samples",
        press=lambda *_: Reply.REPAINT,
    ),
)
"""Keys of every screen."""

SCROLLING: tuple[Key, ...] = (
    Key(
        names=("up", "down", "k", "j"),
        hint=lambda controls: "scroll" if controls.scrolls else "",
        words="scroll by a line",
        press=lambda controls, key: controls.move(-1 if key in {"up", "k"} else 1),
    ),
    Key(
        names=("pageup", "pagedown"),
        words="scroll by a page",
        press=lambda controls, key: controls.move(-controls.page if key == "pageup" else controls.page),
    ),
    Key(
        names=("g", "home", "G", "end"),
        words="scroll to the top (g, Home) or the bottom (G, End)",
        press=lambda controls, key: controls.move_to_end(first=key in {"g", "home"}),
    ),
)
"""Keys that scroll unless the screen takes them."""


def keys_on(screen: Screen) -> Iterator[Key]:
    """Every key that works on a screen, in the footer's order; a screen may take over those that scroll."""
    taken = {name for key in screen.keys for name in key.names}
    openers = [other.opened_by for other in SCREENS if other.opened_by is not None]
    yield from KEYS
    yield from openers
    yield from screen.keys
    yield from (key for key in SCROLLING if not taken.intersection(key.names))


def key_sections(more: Sequence[KeySection] = ()) -> list[KeySection]:
    """Every key with what it does: keys of `more`, which win, keys that work everywhere, keys of each screen."""
    taken = {name for section in more for key in section.keys for name in key.names.split()}
    openers = [screen.opened_by for screen in SCREENS if screen.opened_by is not None]
    sections = [*more, KeySection("Keys", _words_of_keys([*KEYS, *openers, *SCROLLING], taken))]
    listed: list[Key] = []
    for screen in (*reversed(HOMES), *SCREENS):
        own = [key for key in screen.keys if key not in listed]
        listed += own
        if own:
            sections.append(KeySection(f"Keys on {screen.title}", _words_of_keys(own, taken)))
    return sections


def _words_of_keys(keys: Sequence[Key], taken: Collection[str]) -> list[KeyWords]:
    left = ((key, [name for name in key.written.split(", ") if name not in taken]) for key in keys)
    return [KeyWords(", ".join(names), key.words) for key, names in left if names]

"""A screen is added with one class and one line in the table; one that raises costs its own place only."""

from __future__ import annotations

import pytest

from support.shown import NOW, answered, display_of, failed, fleet, lines, name_of, press, screen
from tpumon.outputs.drawing.line import plain
from tpumon.outputs.live.screens import screen_table as table
from tpumon.outputs.live.screens.help_screen import HelpScreen
from tpumon.outputs.live.screens.screen import Key, Picture, Reply, Screen, opening
from tpumon.outputs.live.screens.workers_screen import WorkersScreen


class Names(Screen):
    """All names, as a newcomer would write it."""

    name = "names"
    title = "the list of names"
    opened_by = opening("names", "n", hint="names", words="list the names of all workers")
    keys = (
        Key(
            names=("x",),
            hint="newest",
            words="go to the last name",
            press=lambda controls, _: controls.move_to_end(first=False),
        ),
    )

    def draw(self, frame):
        return Picture(lines=[plain(f"name {row.name}", frame.width) for row in frame.rows])


class Faulty(Screen):
    """Raises whatever it is asked."""

    name = "faulty"
    title = "the faulty screen"
    opened_by = opening("faulty", "y", hint="faulty", words="raise an error")
    keys = (Key(names=("x",), words="divide by zero", press=lambda *_: 1 // 0, hint=lambda _: str(1 // 0)),)

    def fits(self, frame):
        raise ValueError("does not fit")

    def about(self, frame):
        raise ValueError("about nothing")

    def draw(self, frame):
        raise KeyError("no \x1b[2J figure")


@pytest.fixture
def table_with(monkeypatch):
    """Adds a screen to the table."""
    return lambda new: monkeypatch.setattr(table, "SCREENS", (*table.SCREENS, new))


def test_a_new_screen_is_reached_by_its_key_and_listed_where_keys_are(table_with):
    """In the footer, in the help, scrolled through, and closed by Esc or its own key."""
    table_with(Names())
    display = display_of(*fleet(40))
    assert "n names" in lines(display, 120)[-1]

    press(display, "n")
    assert lines(display, 120)[1] == f"name {name_of(0)}"
    assert "1-28/40" in lines(display, 120)[-1]
    assert "x newest" in lines(display, 120)[-1]
    press(display, "x")
    assert f"name {name_of(39)}" in screen(display, 120)

    press(display, "h")
    shown = screen(display, 120, 100)
    assert "list the names of all workers" in shown
    assert "Keys on the list of names" in shown
    assert "go to the last name" in shown
    press(display, "esc", "n")
    assert "sort:worst" in lines(display, 120)[-1]


@pytest.mark.parametrize("size", [(20, 5), (80, 24), (200, 60)], ids=str)
def test_a_screen_that_raises_shows_a_line_in_its_place(table_with, size):
    """Which screen, what was raised, and that sampling goes on; the header and the ways out stay."""
    table_with(Faulty())
    display = display_of(*fleet(3))
    press(display, "y")
    shown = " ".join(screen(display, *size, faulty=True).split())
    assert "LIVE" in shown
    if size[1] > 5:
        assert "Cannot show the faulty screen: KeyError: 'no" in shown
        assert "figure' (test_view_new_screen.py:" in shown
        assert "sampling goes on" in shown
        assert "Esc back" in shown

    display.add(answered(name_of(0), NOW + 1, mxu_utilization_ratio=0.777))
    display.refresh(NOW + 1)
    press(display, "esc")
    assert "77.7%" in screen(display, 80, 24, now=NOW + 1)


def test_a_home_screen_that_raises_leaves_the_others(monkeypatch):
    """Help and q work; its line goes as soon as it can be drawn again."""

    def fails(self, frame):
        raise RuntimeError("a bug")

    display = display_of(*fleet(3))
    with monkeypatch.context() as patch:
        patch.setattr(WorkersScreen, "draw", fails)
        assert "Cannot show the list of workers: RuntimeError: a bug (test_view_new_screen.py:" in screen(
            display, faulty=True
        )
        assert "quit" in screen(display, faulty=True)
        press(display, "h")
        assert "Marks of workers" in screen(display, 100, 100)
        assert press(display, "q") is Reply.QUIT
    press(display, "esc")
    assert name_of(2) in screen(display)


def test_a_frame_does_not_change_once_it_is_drawn_from(table_with, monkeypatch):
    """Messages and figures that come later are in the next one."""
    frames = []
    monkeypatch.setattr(Names, "draw", lambda _self, frame: frames.append(frame) or Picture(lines=[]))
    table_with(Names())
    display = display_of(failed(name_of(0)))
    display.notice(f"{name_of(0)}: first")
    press(display, "n")
    screen(display)
    frame = frames[-1]
    display.notice(f"{name_of(0)}: second")
    display.add(answered(name_of(0), NOW + 1))
    display.refresh(NOW + 1)
    screen(display, now=NOW + 1)
    assert [message.text for message in frame.messages] == [f"{name_of(0)}: first"]
    assert frame.seen == frozenset()
    assert len(frames[-1].messages) == 2
    assert "mxu" in frames[-1].seen


def test_a_key_that_raises_is_a_message(table_with):
    """The picture stays."""
    table_with(Faulty())
    display = display_of(*fleet(3))
    press(display, "y")
    assert press(display, "x") is Reply.REDRAW
    assert "x failed on the faulty screen: ZeroDivisionError" in lines(display, faulty=True)[-2]


def test_no_key_means_two_things_on_a_screen():
    """A screen may only take over keys that scroll."""
    scrolling = {name for key in table.SCROLLING for name in key.names}
    for shown in (*table.HOMES, *table.SCREENS):
        names = [name for key in table.keys_on(shown) for name in key.names]
        assert len(names) == len(set(names)), shown.name
        assert scrolling <= set(names), shown.name


def test_every_key_is_in_the_help():
    """What is dispatched is listed, with words."""
    press(display := display_of(*fleet(2)), "h")
    shown = screen(display, 160, 100)
    for key in {key for shown_screen in (*table.HOMES, *table.SCREENS) for key in table.keys_on(shown_screen)}:
        assert any(key.written in line and key.words in line for line in shown.splitlines()), key.written


def test_screens_are_named_once():
    """By name for the controls, by title for users."""
    screens = (*table.HOMES, *table.SCREENS)
    assert len({each.name for each in screens}) == len({each.title for each in screens}) == len(screens)
    assert any(isinstance(each, HelpScreen) for each in table.SCREENS)

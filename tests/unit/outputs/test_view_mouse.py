"""The mouse: what a click and the wheel do, and that the terminal has it back afterwards; and the bell."""

from __future__ import annotations

import os
import pty
import select
import time

import pytest

from support.shown import NOW, answered, display_of, failed, fleet, infeed, lines, name_of, press, screen
from tpumon.analysis.findings import Thresholds
from tpumon.model import Change, ExporterSnapshot
from tpumon.outputs.live.loop.paint import Painter
from tpumon.outputs.live.loop.terminal import AlternateScreen, has_mouse
from tpumon.outputs.live.screens.screen import Reply


def click(display, words, *, size=(100, 30)):
    """Clicks where these words are."""
    for line, text in enumerate(lines(display, *size)):
        if words in text:
            return display.press(f"clicked:{text.index(words)}:{line}")
    raise AssertionError(words)


def test_a_click_chooses_a_worker_and_another_one_opens_it():
    """As Down and Enter do."""
    display = display_of(*fleet(20))
    assert click(display, f"{name_of(3)} ") is Reply.REDRAW
    assert next(line for line in lines(display) if "▸" in line).split()[1] == name_of(3)
    click(display, f"{name_of(3)} ")
    assert lines(display)[1].split()[0] == name_of(3)


@pytest.mark.parametrize(
    ("title", "key"), [("MXU  ", "mxu"), ("IDLE", "idle"), ("WORKER", "name"), ("STEP ms", "step")]
)
def test_a_click_on_a_title_sorts_by_its_column(title, key):
    """Another one reverses the order; the arrow says which."""
    display = display_of(*fleet(8))
    click(display, title)
    assert f"sort:{key}" in lines(display)[-1]
    down, up = ("WORKER↓", "WORKER↑") if key == "name" else (f"↓{title.strip()}", f"↑{title.strip()}")
    assert down in screen(display)
    click(display, title)
    assert f"sort:{key} reversed" in lines(display)[-1]
    assert up in screen(display)


def test_a_click_on_a_hint_is_its_key():
    """In the footer."""
    display = display_of(*fleet(8))
    click(display, "h help")
    assert "Keys on the list of workers" in screen(display, 100, 100)
    click(display, "Esc back")
    assert click(display, "q quit") is Reply.QUIT


def test_a_click_elsewhere_is_nothing():
    """On the header, beside the screen, on a picture that is gone, while a filter is typed."""
    display = display_of(*fleet(8))
    screen(display)
    assert press(display, "clicked:1:0") is Reply.NOTHING
    assert press(display, "clicked:900:900") is Reply.NOTHING
    press(display, "/")
    assert press(display, "clicked:5:3") is Reply.NOTHING


def test_the_wheel_chooses_or_scrolls():
    """Three lines a turn."""
    display = display_of(*fleet(20))
    press(display, "wheeldown")
    assert next(line for line in lines(display) if "▸" in line).split()[1] == name_of(2)
    press(display, "h", "wheeldown")
    assert " 4-" in lines(display, 80, 20)[-1]


def test_a_key_leaves_the_mouse_to_the_terminal():
    """To select text; the footer says so."""
    display = display_of(*fleet(3))
    assert display.wants_mouse
    press(display, "m")
    assert not display.wants_mouse
    assert "no mouse" in lines(display)[-1]
    press(display, "m")
    assert display.wants_mouse


@pytest.fixture
def terminal():
    """A terminal's two ends."""
    ours, theirs = pty.openpty()
    os.set_blocking(theirs, False)
    yield ours, theirs
    for end in (ours, theirs):
        os.close(end)


def wait_for(end, wanted):
    """Reads what is written to the terminal until this is; returns all of it."""
    text, deadline_s = b"", time.monotonic() + 60
    while wanted not in text:
        readable, _, _ = select.select([end], [], [], deadline_s - time.monotonic())
        assert readable, text
        text += os.read(end, 10_000)
    return text


END = b"\x1b[?1049l"


def test_the_terminal_has_its_mouse_back_at_the_end(terminal):
    """And while the view is suspended; a terminal without a mouse is not asked."""
    ours, theirs = terminal
    view = AlternateScreen(theirs, Painter(color=False, ascii_only=False), has_mouse=True)
    view.enter()
    view.use_mouse(True)
    wait_for(ours, b"\x1b[?1000h")
    view.leave()
    assert b"\x1b[?1000l" in wait_for(ours, END)
    view.enter()
    wait_for(ours, b"\x1b[?1000h")
    view.use_mouse(False)
    wait_for(ours, b"\x1b[?1000l")
    view.leave()
    wait_for(ours, END)

    plain = AlternateScreen(theirs, Painter(color=False, ascii_only=False), has_mouse=has_mouse("linux"))
    plain.enter()
    plain.use_mouse(True)
    plain.leave()
    assert b"1000h" not in wait_for(ours, END)
    assert has_mouse("xterm-256color")


AT_ONCE = Thresholds(sustained=1)


def bad(worker, time_unix_s):
    return answered(worker, time_unix_s, **infeed(0.3))


def alarms(display):
    """Whether a worker becoming critical, going down and being down still ring."""
    found = [display.pop_alarm()]
    for second, sample in enumerate([bad(name_of(1), NOW + 1), failed(name_of(2), time_unix_s=NOW + 2)], start=1):
        display.add(sample)
        display.refresh(NOW + second)
        found.append(display.pop_alarm())
    display.refresh(NOW + 3)
    return [*found, display.pop_alarm()]


def test_the_bell_rings_once_for_each_worker_that_gets_into_trouble():
    """Off at first; on by a key, which the footer says; trouble that was there before rings nothing."""
    assert alarms(display_of(*fleet(7), failed(name_of(7)), thresholds=AT_ONCE)) == [False] * 4
    display = display_of(*fleet(7), failed(name_of(7)), thresholds=AT_ONCE)
    press(display, "b")
    assert "bell" in lines(display)[-1]
    assert alarms(display) == [False, True, True, False]


def test_a_worker_that_becomes_critical_is_a_message():
    """Who, and why; once."""
    display = display_of(*fleet(8), thresholds=AT_ONCE)
    alarms(display)
    assert f"{name_of(1)}: critical: infeed 30%" in screen(display)
    press(display, "h")
    now = NOW + 60
    assert screen(display, 120, 120, now=now).count("critical: infeed") == 1


def test_a_worker_that_was_critical_before_a_gap_is_no_news_after_it():
    """Neither a message nor the bell; one that becomes critical is."""
    display = display_of(*fleet(8), thresholds=AT_ONCE)
    press(display, "b")
    rung = []
    for second, sample in enumerate(
        [
            bad(name_of(1), NOW + 1),
            failed(name_of(1), "busy", "in use", time_unix_s=NOW + 2),
            bad(name_of(1), NOW + 3),
        ],
        start=1,
    ):
        display.add(sample)
        display.refresh(NOW + second)
        rung.append(display.pop_alarm())
    assert rung == [True, False, False]
    press(display, "h")
    assert screen(display, 120, 120, now=NOW + 60).count("critical: infeed") == 1


def told(worker, number, time_unix_s):
    return Change(
        number=number, time_unix_s=time_unix_s, worker=worker, what="severity", state="live", severity="critical",
        before="ok", words="infeed 30%",
    )  # fmt: skip


def test_what_an_exporter_remembers_rings_nothing_whenever_the_picture_is_drawn():
    """Between the time when its answer is analysed and when the view hears of it, too; what comes later does."""
    display = display_of(workers=["w0"])
    press(display, "b")
    rung = []

    def draw():
        display.refresh(NOW)
        rung.append(display.pop_alarm())

    past = display.fleet.add(ExporterSnapshot(complete=True, number=1, changes=(told("w0", 1, NOW - 60),)))
    draw()
    display.on_update(past)
    draw()
    display.add(ExporterSnapshot(complete=False, number=2, changes=(told("w0", 2, NOW),)))
    draw()
    assert rung == [False, False, True]
    # After an outage it hands on everything again, by a clock that was read a little differently.
    display.add(
        ExporterSnapshot(complete=True, number=2, changes=(told("w0", 1, NOW - 59.6), told("w0", 2, NOW + 0.4)))
    )
    draw()
    assert rung[3:] == [False]

"""The live view's loop, as a process on a pty: when it draws, and how the terminal looks after each way out."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import termios
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from fakes.run import environment
from support import REPOSITORY, wait_until
from support.processes import cpu_s
from support.terminal import Terminal
from tpumon.outputs.live.loop import live as live_loop

PROGRAM = REPOSITORY / "tests" / "support" / "live_program.py"
ALT_ON, ALT_OFF = b"\x1b[?1049h", b"\x1b[?1049l"


class Live(Terminal):
    """The loop with a display that shows what it is told; `log` has it, too."""

    def __init__(self, home: Path, what: str = "steady", *, shell: str = "{}", term="xterm-256color", **rest):
        self._log = home / "log"
        variables = environment(home) | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests'}", "TERM": term}
        command = shell.format(f"{sys.executable} {PROGRAM} {what} {self._log}")
        super().__init__(["sh", "-c", f"exec {command}"], environment=variables, cwd=home, **rest)

    @property
    def log(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    def running(self) -> Live:
        return self.wait_for(lambda: self.count("delivered") > 5 and self.text.startswith("drawn") and self.drawn > 1)

    @property
    def drawn(self) -> int:
        return self.count("drawn")

    def count(self, what: str) -> int:
        return sum(line.startswith(what) for line in self.log)


@pytest.fixture
def live(tmp_path):
    """Starts the loop."""
    with ExitStack() as stack:
        yield lambda *args, **rest: stack.enter_context(Live(tmp_path, *args, **rest))


WAYS_OUT = {
    "q": (lambda terminal: terminal.send("q"), 0),
    "ctrl-c": (lambda terminal: terminal.send("\x03"), 130),
    "SIGINT": (lambda terminal: terminal.signal(signal.SIGINT), 130),
    "SIGTERM": (lambda terminal: terminal.signal(signal.SIGTERM), 143),
    "ctrl-backslash": (lambda terminal: terminal.send("\x1c"), 131),
    "SIGHUP": (lambda terminal: terminal.signal(signal.SIGHUP), 129),
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_the_terminal_is_given_back_on_every_way_out(live, way):
    """Alternate screen, cursor, wrapping, pastes and modes are as found, and the exit status tells the way."""
    go, status = WAYS_OUT[way]
    terminal = live().running()
    assert terminal.alternate
    assert not terminal.cursor
    assert not terminal.as_found
    go(terminal)
    assert terminal.end() == status
    assert terminal.as_found
    assert terminal.raw.count(ALT_OFF) == 1


@pytest.mark.parametrize(
    ("what", "error"), [("render-fails", "ZeroDivisionError: a bug in render"), ("fetch-fails", "ValueError: no fig")]
)
def test_an_error_comes_after_the_terminal_is_given_back(live, what, error):
    """What the display or the feed raises is passed on, and can be read on the screen that was there before."""
    terminal = live(what)
    assert terminal.end() == 1
    assert terminal.as_found
    assert error.encode() in terminal.raw.rpartition(ALT_OFF)[2]


def test_the_end_of_the_feed_is_the_end(live):
    """What came last is delivered, then it returns at once."""
    terminal = live("ends")
    assert terminal.end() == 0
    assert terminal.as_found
    assert terminal.count("delivered") == 6


def test_while_it_runs_ctrl_s_is_a_key_and_ctrl_c_a_signal(live):
    """Ctrl-S cannot freeze the terminal; keys are not echoed."""
    terminal = live().running()
    iflag, _, _, lflag, *_ = terminal.modes
    assert not iflag & termios.IXON
    assert not lflag & (termios.ICANON | termios.ECHO)
    assert lflag & termios.ISIG
    terminal.send("\x13k").wait_for("keys k")
    before = terminal.count("delivered")
    terminal.wait_for(lambda: terminal.drawn and terminal.count("delivered") > before + 60)
    assert terminal.send("q").end() == 0


def test_the_flags_of_the_shells_terminal_stay_as_they_are(live):
    """Nothing makes fd 0 or 1 non-blocking, while it runs: the shell has the same."""
    terminal = live().running()
    flags = [Path(f"/proc/{terminal.process.pid}/fdinfo/{fd}").read_text().split()[3] for fd in (0, 1)]
    assert not any(int(flag, 8) & os.O_NONBLOCK for flag in flags)


def stalled(terminal):
    """Returns once samples are delivered for a while without a picture; how many pictures there were."""
    before = -1
    while before != terminal.drawn:
        before, delivered = terminal.drawn, terminal.count("delivered")
        terminal_gets(terminal, delivered + 400)
    return before


def terminal_gets(terminal, delivered):
    wait_until(lambda: terminal.count("delivered") > delivered, 60, "nothing is delivered")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_terminal_that_takes_nothing_holds_up_neither_the_samples_nor_the_way_out(live, number):
    """Everything is delivered while the pty is full; a signal ends it; who reads again finds the terminal in order."""
    terminal = live("big", columns=400, lines=150, reading=False)
    assert stalled(terminal) < 10
    terminal.signal(number)
    assert terminal.end(2) == 128 + number
    terminal.resume().wait_for(lambda: terminal.as_found)


def test_a_terminal_that_takes_everything_again_shows_the_present(live):
    """After a stall the rest of the old picture is written, then the newest, with nothing in between."""
    terminal = live("big", columns=400, lines=150)
    terminal.wait_for(lambda: terminal.drawn > 1).stall()
    drawn = stalled(terminal)
    terminal.resume().wait_for(lambda: terminal.drawn > drawn + 1)
    terminal.wait_for(lambda: any(number > drawn for number in numbers_of_pictures(terminal)))
    assert terminal.send("q").end() == 0
    assert terminal.as_found


def numbers_of_pictures(terminal):
    """Numbers of the pictures that were written, in their order; none is mixed with another one."""
    pictures = re.findall(rb"\x1b\[\?2026h(.*?)\x1b\[\?2026l", terminal.raw, re.DOTALL)
    numbers = [{int(number) for number in re.findall(rb"m(\d+) \d+ x", picture)} for picture in pictures]
    assert all(len(each) == 1 for each in numbers), "two pictures at once"
    found = [min(each) for each in numbers]
    assert found == sorted(found)
    return found


def test_a_terminal_that_goes_away_is_a_quiet_end(live):
    """Closing the window: 129, no traceback, nothing said."""
    terminal = live(stderr=subprocess.PIPE).running().hang_up()
    assert terminal.end() == 129
    assert terminal.process.stderr.read() == b""


def test_a_terminal_that_goes_away_is_an_end_even_where_hangups_are_ignored(live):
    """nohup, disown: no signal comes, the terminal's errors tell."""
    terminal = live(shell="sh -c 'trap \"\" HUP; exec {}'", stderr=subprocess.PIPE).running().hang_up()
    assert terminal.end() == 129
    assert terminal.process.stderr.read() == b""


def test_a_stopped_process_leaves_the_terminal_in_order_and_comes_back(tmp_path):
    """Ctrl-Z restores, fg draws the whole screen again."""
    with Live(
        tmp_path, shell="bash --norc --noprofile -i -c 'set -m; {}; echo stopped $?; read x; fg; echo ended $?'"
    ) as terminal:
        terminal.running().send("\x1a").wait_for("stopped 148")
        assert not terminal.alternate
        assert terminal.cursor
        assert terminal.modes == terminal.modes_before
        terminal.send("\n").wait_for(lambda: terminal.alternate and terminal.lines[0].startswith("drawn"))
        terminal.wait_for(lambda: terminal.lines[-1].startswith("bottom"))
        assert not terminal.cursor
        terminal.send("q").wait_for("ended 0")
        assert terminal.as_found


def test_what_is_not_ours_is_not_drawn_on(tmp_path):
    """In the background it leaves the terminal to the shell, goes on delivering, and draws again when it is back."""
    script = "set -m; {}; bg; echo in the background; read x; fg; echo ended $?"
    with Live(tmp_path, shell=f"bash --norc --noprofile -i -c '{script}'") as terminal:
        terminal.running().send("\x1a").wait_for("in the background")
        before = terminal.count("delivered")
        terminal.wait_for(lambda: terminal.count("delivered") > before + 50)
        assert not terminal.alternate
        drawn = terminal.drawn
        terminal.wait_for(lambda: terminal.count("delivered") > before + 100)
        assert terminal.drawn == drawn
        terminal.send("\n").wait_for(lambda: terminal.alternate and terminal.drawn > drawn)
        terminal.send("q").wait_for("ended 0")
        assert terminal.as_found


def test_where_nobody_could_continue_it_is_not_stopped(live):
    """Ctrl-Z without a shell that knows of jobs: the system ignores the stop, and the picture is back at once."""
    terminal = live().running().send("\x1a")
    terminal.wait_for(lambda: terminal.raw.count(ALT_ON) == 2 and terminal.alternate)
    assert terminal.send("q").end() == 0
    assert terminal.as_found


def test_stopped_by_force_it_takes_the_terminal_once_more(live):
    """SIGSTOP cannot be caught; after SIGCONT everything is set and drawn again."""
    terminal = live().running().signal(signal.SIGSTOP)
    terminal.signal(signal.SIGCONT)
    terminal.wait_for(lambda: terminal.raw.count(ALT_ON) == 2)
    before = terminal.drawn
    terminal.wait_for(lambda: terminal.drawn > before)
    assert terminal.send("q").end() == 0
    assert terminal.as_found


@pytest.mark.parametrize(
    ("shell", "term", "why"),
    [
        ("{} | cat", "xterm", "not live: stdout is not a terminal"),
        ("{}", "dumb", "not live: TERM=dumb cannot be drawn on"),
        ("{}", "unknown", "not live: TERM=unknown cannot be drawn on"),
        ("env -u TERM {}", "xterm", "not live: TERM=(not set) cannot be drawn on"),
        ("setsid -w {}", "xterm", "not live: stdout is a terminal that this process does not belong to"),
        ("bash --norc -i -c 'set -m; {} & wait'", "xterm", "not live: it runs in the background"),
    ],
)
def test_where_it_cannot_be_live_it_says_why(live, shell, term, why):
    """No terminal, one that cannot be drawn on, somebody else's, or in the background, where nothing stops it."""
    terminal = live(shell=f'sh -c "{shell}"', term=term)
    terminal.wait_for(why).end()
    assert ALT_ON not in terminal.raw


def test_without_a_keyboard_it_shows_and_does_not_spin(live):
    """stdin from /dev/null: no keys, no busy loop; Ctrl-C ends it."""
    terminal = live("silent", shell="{} </dev/null").wait_for("drawn 1")
    terminal.send("j")
    terminal.signal(signal.SIGWINCH).wait_for("drawn 2")
    terminal.signal(signal.SIGWINCH).wait_for("drawn 3")
    assert terminal.count("key") == 0
    wait_until(lambda: sleeps(terminal.process.pid), 60, "it is busy")
    assert terminal.send("\x03").end() == 130
    assert terminal.as_found


def sleeps(pid):
    """Whether a process gets along without the CPU for a while."""
    before_s = cpu_s(pid)
    time.sleep(0.3)
    return cpu_s(pid) - before_s < 0.025


def test_it_draws_only_when_there_is_a_reason(live):
    """Without news there is one frame and no more; a key is one more, and so is another size."""
    terminal = live("silent").wait_for("drawn 1")
    terminal.send("a").wait_for("drawn 2")
    terminal.resize(40, 12).wait_for("drawn 3 size 40x12")
    terminal.send("b").wait_for("drawn 4")
    assert terminal.drawn == 4
    assert terminal.count("refreshed") == 1
    assert terminal.send("q").end() == 0


def test_the_displays_own_clock_draws(live):
    """Where the picture changes by itself it is assessed and drawn then; one that always changes is no busy loop."""
    terminal = live("ages").wait_for("drawn 3")
    assert terminal.count("refreshed") >= 3
    terminal.send("q").end()
    terminal._log.unlink()
    terminal = live("always-changes").wait_for("drawn 2").send("abc").wait_for("keys a b c").send("q")
    terminal.end()
    assert terminal.drawn < 10


def test_keys_in_a_burst_are_drawn_together(live):
    """A hundred keys at once are far fewer frames; each is pressed, in order."""
    terminal = live("silent").wait_for("drawn 1").send("j" * 100)
    terminal.wait_for(lambda: terminal.count("key j") == 100 and "j j j" in terminal.text)
    assert terminal.drawn < 50
    drawn, started_s = terminal.drawn, time.monotonic()
    for _ in range(60):
        terminal.send("k")
        time.sleep(0.005)
    terminal.wait_for(lambda: terminal.log.count("key k") == 60)
    assert terminal.drawn - drawn <= 20 * (time.monotonic() - started_s) + 1
    terminal.send("\x1b[A\x1bOB").wait_for(lambda: terminal.log.count("key down") == 1)
    assert terminal.log.count("key up") == 1
    terminal.send("\x1b").wait_for(lambda: "key esc" in terminal.log)
    terminal.send("\x1b[200~q\x1b[201~l").wait_for(lambda: "key l" in terminal.log)
    assert "key q" not in terminal.log
    assert terminal.send("q").end() == 0


def test_many_samples_are_few_frames(live):
    """Samples that come all the time are delivered all, drawn and judged once in a while."""
    terminal = live("big")
    terminal.wait_for(lambda: terminal.count("delivered") > 500)
    assert terminal.count("refreshed") <= terminal.drawn < 20
    terminal.send("q").end()


def test_the_next_picture_waits_as_long_as_the_display_says(monkeypatch):
    """It is told what the last one took."""
    busy_s = iter((1.0, 2.0))
    monkeypatch.setattr(live_loop.time, "thread_time", lambda: next(busy_s))
    display = SimpleNamespace(
        pause_s=lambda busy_s: 3 * busy_s, wants_mouse=False, pop_alarm=lambda: False, refresh=lambda _now: None,
        render=lambda *_size: [], changes_at=lambda _now: None,
    )  # fmt: skip
    screen = SimpleNamespace(size=lambda: (80, 24), use_mouse=lambda _wanted: None, show=lambda *_picture: None)
    loop = live_loop._Loop(display, lambda: ((), False), -1, print, -1, screen, None, None)
    try:
        loop._draw(100.0)
    finally:
        loop.close()
    assert loop._refresh_due_s == 103.0


@pytest.mark.parametrize(
    ("fetched_at", "drawable_at", "fetch_at"),
    [(0.0, 0.0, 100.02), (99.9, 99.9, 100.15), (99.9, 100.5, 100.5), (99.9, 104.0, 100.9), (98.0, 104.0, 100.02)],
)
def test_samples_are_taken_when_they_can_be_drawn_but_a_second_later_at_the_latest(
    monkeypatch, fetched_at, drawable_at, fetch_at
):
    """Those that come while nothing was drawn for long are taken at once."""
    monkeypatch.setattr(live_loop.time, "monotonic", lambda: 100.0)
    wake, woken = os.pipe()
    os.set_blocking(wake, False)
    os.write(woken, b"x")
    loop = live_loop._Loop(None, lambda: ((), False), wake, print, -1, None, None, None)
    try:
        loop._fetch_last_s, loop._refresh_due_s = fetched_at, drawable_at
        loop._on_wake(0)
    finally:
        loop.close()
        os.close(wake)
        os.close(woken)
    assert loop._fetch_due_s == pytest.approx(fetch_at)


def test_another_size_is_a_whole_picture(live):
    """Larger and smaller: nothing is left of the picture before, the last line is the last."""
    terminal = live().running()
    for columns, lines in ((120, 40), (40, 12), (20, 5), (100, 30)):
        terminal.resize(columns, lines).wait_for(f"size {columns}x{lines}")
        terminal.wait_for(lambda columns=columns: terminal.lines[-1] == "bottom".ljust(columns, "."))
        assert terminal.text.count("bottom") == 1
    terminal.send("q").end()


def test_what_others_write_to_stderr_is_a_notice(live):
    """While the screen is up nothing else gets onto it; what was not finished is there afterwards."""
    terminal = live("writes-stderr", columns=200).wait_for("notice E0000 from the core")
    terminal.wait_for("notice and halfsaid").wait_for("UserWarning: watch out")
    assert b"\x1b[2J" not in terminal.raw
    assert terminal.send("q").end() == 0
    assert terminal.as_found


def test_stderr_that_goes_elsewhere_is_left_alone(live, tmp_path):
    """2>file: whoever asked for that gets it there, and not on the screen."""
    terminal = live("writes-stderr", shell="{} 2>errors")
    errors = tmp_path / "errors"
    terminal.wait_for(lambda: errors.exists() and "watch out" in errors.read_text())
    assert terminal.send("q").end() == 0
    assert b"E0000" not in terminal.raw


def test_a_loop_that_hangs_is_left_at_the_second_signal(live):
    """Ctrl-C twice ends it, and the terminal is given back, even where something that it called never returns."""
    terminal = live("impatient").running().send("x")
    terminal.wait_for(lambda: "key x" in terminal.log)
    wait_until(lambda: terminal.signal(signal.SIGINT).process.poll() is not None, 60, "still hanging")
    assert terminal.end() == 130
    assert terminal.as_found

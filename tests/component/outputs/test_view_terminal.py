"""The screen driver on a pty of its own: what is written, and what becomes of the terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import termios

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.segment import ControlType, Segment
from rich.style import Style

from support import REPOSITORY
from tpumon.outputs.live.loop.paint import Painter, wants_color
from tpumon.outputs.live.loop.terminal import AlternateScreen, TerminalGoneError

PLAIN = Painter(color=True, ascii_only=False)


class Glass:
    """A pty, a screen that draws on it, and what a terminal would show."""

    def __init__(self, columns=20, lines=5, painter=PLAIN):
        self.master, self.slave = pty.openpty()
        os.set_blocking(self.master, False)
        termios.tcsetwinsize(self.slave, (lines, columns))
        self.fd = os.open(os.ttyname(self.slave), os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)
        self.screen = AlternateScreen(self.fd, painter)
        self.emulator = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.emulator)

    def written(self):
        """What was written since, shown by the emulator."""
        parts = []
        try:
            while True:
                parts.append(os.read(self.master, 65536))
        except BlockingIOError:
            pass
        data = b"".join(parts)
        self._stream.feed(data)
        return data

    def show(self, *lines):
        """Shows lines of text; what was written."""
        self.screen.show([[Segment(line)] for line in lines], *self.screen.size())
        return self.written()

    def seen(self):
        return [line.rstrip() for line in self.emulator.display]

    def fill(self):
        """Shows pictures until the terminal takes not one byte more."""
        while select.select([], [self.fd], [], 0.05)[1]:
            self.screen.flush()
            self.screen.forget()
            self.screen.show([[Segment("x" * 500)]] * 5, 500, 5)
        with contextlib.suppress(BlockingIOError):
            while os.write(self.fd, b"x"):
                pass

    def close(self):
        for fd in (self.master, self.slave, self.fd):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def glass():
    glass = Glass()
    yield glass
    glass.close()


def test_only_lines_that_changed_are_written(glass):
    """The first picture is written whole, then what is another line; the same picture is nothing."""
    glass.screen.enter()
    glass.written()
    assert glass.show("one", "two", "three").count(b"\x1b[K") == 5
    assert glass.seen() == ["one", "two", "three", "", ""]
    assert glass.show("one", "2", "three") == b"\x1b[?2026h\x1b[2H2\x1b[K\x1b[?2026l"
    assert glass.seen() == ["one", "2", "three", "", ""]
    assert glass.show("one", "2", "three") == b""
    glass.show("one")
    assert glass.seen() == ["one", "", "", "", ""]


def test_after_something_else_was_on_the_screen_all_is_written(glass):
    """`forget`, another size and entering again lead to a whole picture."""
    glass.screen.enter()
    glass.written()
    whole = len(glass.show("one", "two"))
    glass.screen.forget()
    assert len(glass.show("one", "two")) == whole
    termios.tcsetwinsize(glass.slave, (4, 20))
    assert glass.screen.size() == (20, 4)
    assert glass.show("one", "two").count(b"\x1b[K") == 4
    glass.screen.enter()
    assert glass.written() == b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h"
    assert glass.show("one", "two").count(b"\x1b[K") == 4


def test_a_picture_that_is_too_large_is_cut(glass):
    """Nothing wraps or scrolls, whatever it is told to show."""
    glass.screen.enter()
    glass.show(*(f"{row} " + "x" * 50 for row in range(9)))
    assert glass.seen() == [f"{row} ".ljust(20, "x") for row in range(5)]
    assert (glass.emulator.cursor.y, glass.emulator.display[4][19]) == (4, "x")


@given(st.lists(st.lists(st.text(max_size=30), max_size=4), max_size=8), st.integers(1, 30))
def test_no_text_leaves_its_line(lines, width):
    """Of any text at most the width is written, and nothing that drives the terminal but our own codes."""
    for line in lines:
        painted = PLAIN.line([Segment(text, Style(bold=True)) for text in line], width)
        plain = re.sub(r"\x1b\[(?:0m|1m|K)", "", painted)
        assert plain.isprintable()
        assert len(plain) <= width or any(ord(char) > 0x2FF for char in plain)
        assert Segment(plain).cell_length <= width


def test_wide_characters_are_cut_between_cells():
    """Half a character that is two cells wide is a space."""
    assert PLAIN.line([Segment("日本")], 3) == "日 "
    assert PLAIN.line([Segment("日本")], 4) == "日本"
    assert PLAIN.line([Segment("日本")], 5) == "日本\x1b[K"


def test_controls_of_segments_are_left_out():
    """A segment that is a control moves no cursor of ours."""
    assert PLAIN.line([Segment("\x1b[2J", None, [(ControlType.CLEAR,)]), Segment("a\nb\x1b[2J")], 9) == "a?b?[2J\x1b[K"


def test_sixteen_colours():
    """Colours are those that every theme defines, whatever the style says; codes end where the text does."""
    assert PLAIN.line([Segment("a", Style(color="red", bold=True))], 1) == "\x1b[1;31ma\x1b[0m"
    assert re.fullmatch(r"\x1b\[(3|9)\dma\x1b\[0m", PLAIN.line([Segment("a", Style(color="#ff8700"))], 1))


def test_without_colours_the_rest_stays():
    """Bold and reverse tell what colours would."""
    painter = Painter(color=False, ascii_only=False)
    assert painter.line([Segment("a", Style(color="red", bgcolor="blue", bold=True))], 1) == "\x1b[1ma\x1b[0m"
    assert painter.line([Segment("a", Style(color="green"))], 1) == "a"


def test_ascii_only_is_ascii():
    """What is not ASCII is a question mark."""
    assert Painter(color=True, ascii_only=True).line([Segment("wörker ▁▂")], 9) == "w?rker ??"


@pytest.mark.parametrize(
    ("choice", "environment", "wanted"),
    [
        ("auto", {"TERM": "xterm-256color"}, True),
        ("auto", {"TERM": "screen", "NO_COLOR": ""}, True),
        ("auto", {"TERM": "vte-256color"}, True),
        ("auto", {"TERM": "linux", "NO_COLOR": "1"}, False),
        ("auto", {"TERM": "vt220"}, False),
        ("auto", {"TERM": "xterm-mono"}, False),
        ("always", {"TERM": "vt100", "NO_COLOR": "1"}, True),
        ("never", {"TERM": "xterm"}, False),
    ],
)
def test_when_there_are_colours(choice, environment, wanted):
    """What was asked for; otherwise what NO_COLOR and TERM say."""
    assert wants_color(choice, environment) == wanted


def test_a_picture_is_dropped_while_the_one_before_is_not_written(glass):
    """What the terminal has not taken yet stays; the picture after it is measured against what will be there."""
    glass.screen.enter()
    glass.fill()
    assert glass.screen.pending
    glass.screen.show([[Segment("dropped")]], 500, 5)
    data = b""
    while glass.screen.pending:
        data += glass.written()
        glass.screen.flush()
    data += glass.written()
    assert b"dropped" not in data
    assert data.endswith(b"\x1b[?2026l")
    assert data.count(b"\x1b[?2026h") == data.count(b"\x1b[?2026l")
    glass.screen.show([[Segment("x" * 500)]] * 4 + [[Segment("last")]], 500, 5)
    assert glass.written() == b"\x1b[?2026h\x1b[5Hlast\x1b[K\x1b[?2026l"


def test_a_terminal_is_left_once_and_as_it_was(glass):
    """Entering twice and leaving twice is entering and leaving."""
    before = termios.tcgetattr(glass.slave)
    glass.screen.leave()
    assert glass.written() == b""
    glass.screen.enter()
    glass.screen.enter()
    assert termios.tcgetattr(glass.slave) != before
    glass.screen.leave()
    assert termios.tcgetattr(glass.slave) == before
    assert not glass.screen.up
    assert glass.written().count(b"\x1b[?1049l") == 1
    glass.screen.leave()
    assert glass.written() == b""


def test_a_full_terminal_is_left_in_time_and_in_order(glass):
    """Nobody reads: half a second, no more; what was drawn is dropped so that the way back can be read later."""
    before = termios.tcgetattr(glass.slave)
    glass.screen.enter()
    glass.fill()
    glass.screen.leave()  # else: never
    assert termios.tcgetattr(glass.slave) == before
    assert glass.written().endswith(b"\x1b[?1049l")


def test_the_modes_that_a_reader_of_keys_needs_are_set_whatever_they_were(glass):
    """One byte is enough for a read, and nothing typed is no end of file."""
    modes = termios.tcgetattr(glass.slave)
    modes[6][termios.VMIN], modes[6][termios.VTIME] = 0, 5
    modes[0] |= termios.IXON
    modes[3] &= ~termios.ISIG
    termios.tcsetattr(glass.slave, termios.TCSANOW, modes)
    modes = termios.tcgetattr(glass.slave)
    glass.screen.enter()
    assert glass.screen.read() == b""
    os.write(glass.master, b"\x13q")
    assert glass.screen.read() == b"\x13q"
    assert termios.tcgetattr(glass.slave)[3] & termios.ISIG
    glass.screen.leave()
    assert termios.tcgetattr(glass.slave) == modes


@pytest.mark.parametrize(
    "use",
    [lambda screen: screen.read(), lambda screen: screen.size(), lambda screen: screen.enter(),
     lambda screen: screen.show([[Segment("x")]], 20, 5)],
)  # fmt: skip
def test_a_terminal_that_is_gone_is_told(glass, use):
    """Its other end is closed: every use says so, except leaving, which has nothing to give back."""
    glass.screen.enter()
    os.close(glass.master)
    glass.master = -1
    with pytest.raises(TerminalGoneError):
        use(glass.screen)
    glass.screen.leave()
    glass.screen.say(b"last words")


def test_a_terminal_without_a_size_is_80_by_24(glass):
    """A serial line does not know."""
    termios.tcsetwinsize(glass.slave, (0, 0))
    assert glass.screen.size() == (80, 24)


def run_code(code, stdout, stderr):
    """Runs code in a process of its own, where `caught` is fd 1's; its exit status."""
    program = (
        f"import os, sys\nfrom tpumon.outputs.live.loop.terminal import CaughtStderr\ncaught = CaughtStderr(1)\n{code}"
    )
    command = [sys.executable, "-c", program]
    return subprocess.run(command, stdout=stdout, stderr=stderr, timeout=30, cwd=REPOSITORY).returncode


def test_stderr_is_caught_line_by_line_and_given_back(glass):
    """Lines are safe; what is unfinished or not yet fetched comes at the end; then fd 2 is the terminal again."""
    code = """
caught.catch()
os.write(2, b"one\\n\\n \\x1b[31mtwo\\nthr")
assert caught.lines() == ["one", "two"], caught.lines()
os.write(2, b"ee\\nfour\\nfi")
assert caught.lines() == ["three", "four"]
assert caught.lines() == []
print("ve", file=sys.stderr)
os.write(2, b"six")
rest = caught.give_back()
assert rest == "five\\nsix\\n", rest
assert caught.give_back() == ""
assert os.isatty(2)
print("at last", file=sys.stderr)
"""
    assert run_code(code, glass.slave, glass.slave) == 0, glass.written()
    assert glass.written() == b"at last\r\n"


def test_who_writes_to_stderr_never_waits(glass):
    """A library that writes more than anyone reads loses that, and goes on; a line that does not end is cut."""
    code = """
caught.catch()
lost = 0
for _ in range(100):
    try:
        os.write(2, b"x" * 4096)
    except BlockingIOError:
        lost += 1
assert lost
caught.lines()
os.write(2, b"y" * 5000)
assert caught.lines()[0].endswith("y")
"""
    assert run_code(code, glass.slave, glass.slave) == 0, glass.written()


def test_stderr_that_is_not_the_terminal_stays(glass, tmp_path):
    """A file or another terminal: not caught."""
    other = Glass()
    with (tmp_path / "errors").open("w") as file:
        for stderr in (file.fileno(), other.slave):
            code = "caught.catch()\nassert caught.fd is None\nassert caught.give_back() == ''\nos.write(2, b'there')"
            assert run_code(code, glass.slave, stderr) == 0
    assert (tmp_path / "errors").read_text() == "there"
    assert other.written() == b"there"
    other.close()


def test_a_closed_stderr_is_nothing_to_catch(glass):
    """fd 2 may not be there at all."""
    code = "os.close(2)\ncaught.catch()\nassert caught.fd is None\nassert caught.give_back() == ''"
    assert run_code(code, glass.slave, glass.slave) == 0

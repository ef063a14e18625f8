"""`tpumon` on a terminal: in tmux, as people run it, and on a pty."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from fakes.run import environment
from fakes.run import tpumon as run_tpumon
from support import require, wait_until
from support.terminal import Terminal, Tmux

FLAGS = "#{alternate_on} #{cursor_flag} #{wrap_flag}"
TAKEN, AS_FOUND = "1 0 0", "0 1 1"
SIMULATED = ["--level", "2", "--simulate", "v5e-8", "--duration-ms", "50", "--interval", "0.2"]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "run").mkdir(mode=0o700)
    return tmp_path


@pytest.fixture
def tmux(home):
    """Starts a shell in tmux, ready for what is typed."""
    require(shutil.which("tmux"), "tmux")
    variables = environment(home) | {"PS1": "$ "}
    with ExitStack() as stack:

        def start(**size):
            window = Tmux(("bash", "--norc", "--noprofile"), environment=variables, cwd=home, **size)
            return stack.enter_context(window).wait_for(lambda: window.lines[0] == "$")

        yield start


@pytest.fixture
def terminal(home):
    """Starts tpumon on a pty; more environment by name."""
    with ExitStack() as stack:

        def start(*arguments, columns=80, lines=24, reading=True, **variables):
            command = [sys.executable, "-m", "tpumon", *arguments]
            variables = environment(home) | variables
            terminal = Terminal(command, environment=variables, cwd=home, columns=columns, lines=lines, reading=reading)
            return stack.enter_context(terminal)

        yield start


def tpumon(*arguments):
    return " ".join([sys.executable, "-m", "tpumon", *arguments])


@pytest.mark.real
def test_in_tmux(tmux):
    """At every size the state and that it is simulated are in sight, also after others; `q` gives the screen back."""
    window = tmux(columns=80, lines=24)
    window.type(f"{tpumon(*SIMULATED)}; echo ended $?")
    for width, height in [(80, 24), (40, 12), (120, 40), (80, 24)]:
        window.resize(width, height)
        window.wait_for(lambda height=height: complete(window.lines, height))
        assert window.ask(FLAGS) == TAKEN
    window.send("q").wait_for("\nended 0")
    assert window.ask(FLAGS) == AS_FOUND


def complete(lines, height):
    """Whether these are all the lines of one picture, with the words that are always there."""
    text = "\n".join(lines)
    return len(lines) == height and "LIVE" in text and "SIM" in text and "MXU" in text and lines[0] and lines[-1]


WAYS_OUT = {
    "q": (lambda window: window.send("q"), 0),
    "ctrl-c": (lambda window: window.send("C-c"), 130),
    "SIGTERM": (lambda window: kill(window, signal.SIGTERM), 143),
    "SIGHUP": (lambda window: kill(window, signal.SIGHUP), 129),
}


def kill(window, number):
    shell = window.ask("#{pane_pid}")
    os.kill(int(Path(f"/proc/{shell}/task/{shell}/children").read_text()), number)


@pytest.mark.real
@pytest.mark.parametrize("way", WAYS_OUT)
def test_the_shell_gets_its_terminal_back(tmux, way):
    """However it ends: the screen that was there before, the cursor, the modes, the exit status, no other word."""
    window = tmux(columns=100)
    window.type("echo before; stty -a >before").wait_for("before\n$")
    window.type(f"{tpumon(*SIMULATED)}; echo ended $?; stty -a >after").wait_for("LIVE")
    assert window.ask(FLAGS) == TAKEN
    go, status = WAYS_OUT[way]
    go(window)
    window.wait_for(f"\nended {status}\n$")
    assert window.ask(FLAGS) == AS_FOUND
    assert window.lines[1] == "before"
    assert "LIVE" not in window.text
    window.type("cmp before after && echo same modes").wait_for("\nsame modes")


# tpumon with a worker page that has a bug.
FAULTY = """
import sys
from tpumon.outputs.live.screens.worker_screen import WorkerScreen

def draw(self, frame):
    raise LookupError("a bug")

WorkerScreen.draw = draw
from tpumon.__main__ import main
main()
"""


@pytest.mark.real
def test_a_screen_that_raises_ends_nothing(tmux, home):
    """One line in its place; sampling and outputs go on, and so do the other screens and the way out."""
    (home / "faulty.py").write_text(FAULTY)
    export = home / "samples.jsonl"
    command = [sys.executable, str(home / "faulty.py"), *SIMULATED, "--export", f"jsonl={export}"]
    window = tmux()
    window.type(f"{' '.join(command)}; echo ended $?").wait_for("LIVE")
    window.send("Enter").wait_for("Cannot show the worker's page: LookupError: a bug (faulty.py:")
    assert "sampling goes on" in " ".join(window.text.split())
    assert "LIVE" in window.lines[0]
    written = len(export.read_text().splitlines())
    wait_until(lambda: len(export.read_text().splitlines()) > written + 2, 60, "no new samples")
    window.send("h").wait_for("freeze the picture").send("Escape").wait_for("Cannot show")
    window.send("Escape").wait_for("TPU idle").send("q").wait_for("\nended 0")
    assert window.ask(FLAGS) == AS_FOUND


@pytest.mark.real
def test_ctrl_z_and_fg(tmux):
    """While it is stopped the terminal is the shell's; then the whole picture is back."""
    window = tmux(columns=100)
    window.type(tpumon(*SIMULATED)).wait_for("LIVE").send("C-z").wait_for("Stopped")
    assert window.ask(FLAGS) == AS_FOUND
    window.type("echo still here").wait_for("\nstill here")
    window.type("fg").wait_for(lambda: complete(window.lines, 24) and "still" not in window.text)
    assert window.ask(FLAGS) == TAKEN
    window.send("C-z").wait_for("still here").type("bg; echo in the background")
    window.wait_for("\nin the background").type("sleep 1; jobs").wait_for("Running")
    assert window.ask(FLAGS) == AS_FOUND
    window.type("fg").wait_for(lambda: complete(window.lines, 24) and "still" not in window.text)
    window.send("C-c").wait_for(lambda: window.ask(FLAGS) == AS_FOUND)
    window.wait_for("still here").type("echo status $?").wait_for("status 130")


@pytest.mark.real
def test_in_the_background_it_is_text_and_is_not_stopped(tmux):
    """`tpumon &` does not stop for the terminal: it prints."""
    window = tmux(columns=100)
    window.type(f"{tpumon(*SIMULATED)} &").wait_for(lambda: window.text.count("Timestamp") > 1)
    window.type("jobs").wait_for("Running")
    assert window.ask(FLAGS) == AS_FOUND
    window.type("kill %1; wait %1; echo ended $?").wait_for("\nended 143")


def test_keys(terminal):
    """Help and back, a pause of the picture and its end, and quitting."""
    screen = terminal(*SIMULATED).wait_for("LIVE")
    screen.send("?").wait_for("Keys").send("\x1b").wait_for(lambda: "Keys" not in screen.text)
    screen.send("p").wait_for("FROZEN").send("p").wait_for(lambda: "FROZEN" not in screen.text)
    assert screen.send("q").end() == 0
    assert screen.as_found


def test_a_terminal_that_stands_still_stops_nothing_else(terminal, home):
    """Nobody reads the pty: another output gets its samples all the same, and a signal ends it."""
    file = home / "samples.jsonl"
    options = [*SIMULATED, "--scenario", "steady", "--export", f"jsonl={file}"]
    screen = terminal(*options, columns=400, lines=150, reading=False)

    def samples():
        return file.read_text().count("\n") if file.exists() else 0

    wait_until(lambda: samples() > 20, 60, "no samples")
    for _ in range(6):  # a whole picture each: more than a pty holds
        before = samples()
        screen.send("r")
        wait_until(lambda before=before: samples() > before + 2, 60, "no more samples")
    screen.signal(signal.SIGTERM)
    assert screen.end(2) == 128 + signal.SIGTERM
    screen.resume().wait_for(lambda: screen.as_found)


@pytest.mark.parametrize("more", [pytest.param((), marks=pytest.mark.nightly), ("--with-ops", "2")])
def test_outputs_beside_the_view_have_operations_only_if_asked_for(terminal, home, more):
    """The view shows them either way."""
    recorded, file = home / "recorded", home / "samples.jsonl"
    screen = terminal(*SIMULATED, "--record", str(recorded), "--export", f"jsonl={file}", *more).wait_for("LIVE")
    screen.send("o").wait_for("OPERATION")
    wait_until(lambda: file.exists() and file.read_text().count("\n") > 1, 60, "no samples")
    assert screen.send("q").end() == 0
    replayed = run_tpumon("--from", str(recorded), "--output", "jsonl", "--with-ops", "9").samples
    for samples in (replayed, [json.loads(line) for line in file.read_text().splitlines()]):
        counts = {None if each["ops"] is None else len(each["ops"]) for each in samples if each["source"] == "trace"}
        assert counts == ({2} if more else {None})
    view = terminal("--from", str(recorded))
    view.wait_for("RECORDED").send("o").wait_for("OPERATION" if more else "they are not taken where these samples come")
    assert view.send("q").end() == 0


@pytest.mark.real
def test_looking_back_at_a_recording_in_tmux(tmux, home):
    """It opens where the straggler was found; keys go to its end and beginning, to the change, and to a time."""
    recorded = home / "recorded"
    run_tpumon(
        *SIMULATED[:2], "--simulate", "v5e-16", "--scenario", "straggler@4+60:worker=2", "--interval", "0.5",
        "--num-queries", "40", "--record", str(recorded), "--output", "jsonl",
    )  # fmt: skip
    window = tmux(columns=80, lines=24)
    window.type(f"{tpumon('--from', str(recorded))}; echo ended $?")
    window.wait_for("RECORDED stopped").wait_for("X sim-v5e-16-w2")
    window.send(">").wait_for("RECORDED end")
    window.send("<").wait_for("RECORDED beginning").wait_for(lambda: "X sim-" not in window.text)
    window.send("]").wait_for(lambda: "RECORDED beginning" not in window.text)
    window.send("t", "-", "0", "s").wait_for("go to: -0s_").send("Enter").wait_for("RECORDED end")
    window.send("q").wait_for("\nended 0")


def test_what_goes_wrong_at_the_end_can_be_read(terminal):
    """Nobody ever answers: the line is on the screen that was there before."""
    screen = terminal("--level", "2", "--service-addr", "127.0.0.1:1", "--num-queries", "1", "--output", "live")
    assert screen.end() == 3
    assert screen.as_found
    assert b"ever answered" in screen.raw.rpartition(b"\x1b[?1049l")[2]


def test_nothing_gets_onto_the_picture_from_elsewhere(terminal):
    """A worker that does not answer is told on the screen and not across it."""
    screen = terminal("--level", "2", "--service-addr", "127.0.0.1:1", GRPC_VERBOSITY="debug", columns=120)
    screen.wait_for("127.0.0.1:1")
    wait_until(lambda: "DOWN" in screen.text, 60, lambda: screen.text)
    begin = screen.raw.index(b"\x1b[?1049h")
    outside = re.sub(rb"\x1b\[\?2026h.*?\x1b\[\?2026l", b"", screen.raw[begin:], flags=re.DOTALL)
    assert outside.partition(b"\x1b[?2026h")[0] == b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h\x1b[?1000h\x1b[?1006h"
    assert screen.send("q").end() == 0


def test_ascii_where_the_locale_is_not_utf_8(terminal):
    """Of a terminal that knows no UTF-8 nothing else is asked."""
    screen = terminal(*SIMULATED, LC_ALL="POSIX", LC_CTYPE="", LANG="en_US.UTF-8")
    screen.wait_for("LIVE").wait_for(lambda: screen.raw.count(b"\x1b[?2026h") > 3)
    assert screen.raw.isascii()
    assert screen.send("q").end() == 0


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_be_drawn_on_gets_text(terminal, term):
    """As ever; and who insists on the live view is told why not."""
    screen = terminal(*SIMULATED, TERM=term)
    screen.wait_for(lambda: b"Infeed percentage" in screen.raw)
    assert b"\x1b" not in screen.raw
    screen.send("\x03")
    assert screen.end() == 130
    insisting = terminal(*SIMULATED, "--output", "live", TERM=term)
    assert insisting.end() == 2
    assert insisting.raw.count(b"\n") == 1
    assert b"TERM=" in insisting.raw


def test_without_a_terminal_it_cannot_be_live(home):
    """A usage error that says why."""
    done = subprocess.run(
        [sys.executable, "-m", "tpumon", *SIMULATED, "--output", "live"],
        capture_output=True, text=True, timeout=60, cwd=home, env=environment(home),
    )  # fmt: skip
    assert done.returncode == 2
    assert "stdout is not a terminal" in done.stderr
    assert done.stderr.count("\n") == 1

"""What a view says of states, since when, and before: seen on a terminal, on stdout and in exit statuses only."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import sys
import time
from contextlib import ExitStack

import pytest

from fakes.run import Tpumon, environment
from fakes.tpu_node import LEVEL_2, Answer, Figures, TpuNode
from support import require
from support.terminal import Tmux

pytestmark = pytest.mark.real

QUICK = ("--duration-ms", "100", "--interval", "0.3", "--no-runtime-metrics")


def told(*, infeed=0.0, mxu=42.5):
    """A node's answer, in percent, at once."""
    return Answer(text=LEVEL_2, figures=Figures(infeed=(infeed,) * 3, mxu=mxu), after_s=0)


@pytest.fixture
def node():
    """Starts a node that follows a script."""
    with ExitStack() as stack:
        yield lambda *steps, **more: stack.enter_context(TpuNode(*([steps] if steps else []), **more))


@pytest.fixture
def view(tmp_path):
    """Starts tpumon in tmux."""
    require(shutil.which("tmux"), "tmux")
    for name in ("home", "run"):
        (tmp_path / name).mkdir(mode=0o700)
    variables = environment(tmp_path) | {"TZ": "UTC"}
    with ExitStack() as stack:

        def start(*arguments, columns=100, lines=40):
            command = [sys.executable, "-m", "tpumon", *arguments]
            size = {"columns": columns, "lines": lines}
            return stack.enter_context(Tmux(command, environment=variables, cwd=tmp_path, **size))

        yield start


def row_of(window, node):
    """A worker's line on the list: its mark comes first. One worker of this host has the host's name alone."""
    names = (f":{node.port} ", f" {socket.gethostname()} ")
    lines = (line for name in names for line in window.lines if name in line and "·" not in line)
    return next(lines, "").lstrip(" ▌▸>")


def since(window, word):
    """The time after `WORD since` on the screen; None if it is not there."""
    found = re.search(rf"\b{word}\b[^\n:]*? since (\d\d:\d\d:\d\d)", window.text)
    return found and found[1]


def seconds(begin_unix_s, end_unix_s):
    """All times between, as views write them."""
    return {time.strftime("%H:%M:%S", time.gmtime(second)) for second in range(int(begin_unix_s), int(end_unix_s) + 1)}


def asked(node, times):
    """Waits until a node was asked so often."""
    node.wait_for(lambda: len(node.of("Monitor")) >= times)


def test_a_view_that_attaches_late_is_right_at_once_and_when_the_exporter_goes(node, view):
    """Since when somebody is critical or down, and graphs, are the exporter's; its end is nobody's end."""
    sick, dying = node(told(infeed=50)), node(told())
    begun_s = time.time()
    workers = ("--service-addr", f"{sick.address},{dying.address}", "--num-tracing-attempts", "1")
    with Tpumon("serve", *workers, "--listen", "127.0.0.1:0", *QUICK) as exporter:
        exporter.wait_for(lambda: "listening on" in exporter.err)
        asked(dying, 5)
        dying.stop()
        died_s = time.time()
        asked(sick, len(sick.of("Monitor")) + 16)

        window = view("--from", re.search(r"listening on (http://\S+)/metrics", exporter.err)[1])
        window.wait_for(lambda: since(window, "DOWN") and row_of(window, sick)[:1] == "X")
        right = {
            "down since": since(window, "DOWN") in seconds(died_s - 1, died_s + 2),
            "graph of one that is down": "MXU  42.5% – 42.5%" in window.text,
            "it had figures": "no figures now" in window.text,
        }
        window.send("Down", "Down").wait_for(lambda: since(window, "critical"))
        right["critical since"] = since(window, "critical") in seconds(begun_s, died_s + 2)
        exporter.signal(signal.SIGTERM).end().ended(0)
    window.wait_for("EXPORTER DOWN")
    right["exporter gone"] = "STALE" in row_of(window, sick)
    assert all(right.values()), right

"""The signals that end a run."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

IN_A_CALLBACK = """
import signal, time, weakref
from tpumon.system.signals import StoppedError, stop_on_signals

class One: pass

stop_on_signals()
one = One()
reference = weakref.ref(one, lambda _: (signal.raise_signal(signal.{name}), time.sleep(0)))
try:
    del one
    time.sleep(60)
except StoppedError as stopped:
    raise SystemExit(stopped.exit_status)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_that_python_drops_ends_the_run_all_the_same(name):
    """In a callback of a weak reference, Python prints what is raised and goes on."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CALLBACK.format(name=name)], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stderr) == (128 + signal.Signals[name], "")


def test_what_else_python_drops_is_printed_as_usual():
    code = "import weakref\nfrom tpumon.system.signals import stop_on_signals\nclass One: pass\nstop_on_signals()\n"
    code += "one = One()\nreference = weakref.ref(one, lambda _: 1 / 0)\ndel one"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert "ZeroDivisionError" in done.stderr


def test_a_signal_that_another_thread_gets_ends_the_main_thread_that_waits_for_updates():
    """The system chooses the thread, and Python handles the signal in the main one, which must not wait for ever."""
    code = (
        "import signal, threading, time\n"
        "from tpumon.system.mailbox import Mailbox\n"
        "from tpumon.system.signals import StoppedError, stop_on_signals\n"
        "stop_on_signals()\n"
        "def other():\n"
        "    time.sleep(0.5)\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Thread(target=other, daemon=True).start()\n"
        "try:\n"
        "    next(Mailbox().batches())\n"
        "except StoppedError as stopped:\n"
        "    print(stopped.exit_status)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.stdout, ended.stderr) == ("143\n", "")

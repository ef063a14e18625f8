"""What a test session keeps away from tests: how it was started, and what else runs on the host."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from support import REPOSITORY, own_network

pytestmark = pytest.mark.slow

IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def test_programs_of_tests_ignore_no_signal():
    """Whatever this session was started to ignore."""
    shown = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    masks = dict(line.split(":\t", 1) for line in shown.splitlines() if line.startswith(("SigIgn", "SigBlk")))
    every = sum(1 << number - 1 for number in signal.valid_signals())  # the others are the C library's own
    assert {name: int(mask, 16) & every for name, mask in masks.items()} == {"SigIgn": 0, "SigBlk": 0}


def test_settings_of_the_caller_are_gone():
    """Those of tpumon, of a proxy and of a terminal; times are in UTC."""
    assert [name for name in os.environ if name.startswith("TPUMON_")] == ["TPUMON_PAUSE_DIR", "TPUMON_CONFIG"]
    assert not {"https_proxy", "HTTP_PROXY", "NO_COLOR", "COLUMNS"} & os.environ.keys()
    assert time.localtime(0).tm_hour == 0


def test_a_session_that_was_started_in_the_background_is_no_different(request):
    """As by `nohup make test &`: signals ignored, no stdin, somebody's settings; and a port is taken."""

    def ignore():
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        os.close(0)

    if request.config.args == [__file__]:
        return  # this is that session
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        cwd=REPOSITORY,
        env=os.environ
        | {"TPUMON_LEVEL": "0", "https_proxy": "http://127.0.0.1:1", "NO_COLOR": "1", "TZ": "Asia/Tokyo"},
        preexec_fn=ignore,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ports_of_the_host_are_not_the_tests():
    """In a network of its own, a process may listen where another listens outside of it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        program = (
            "import socket, sys; from support import own_network; print(own_network.enter());"
            "socket.create_server(('127.0.0.1', int(sys.argv[1]))); print('listens')"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(taken.getsockname()[1])],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY / "tests")},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    if not done.stdout.startswith("None\n"):
        pytest.skip(f"no network of its own: {done.stdout}")
    assert done.stdout == "None\nlistens\n", done.stderr


def test_threads_do_not_stay_behind():
    """They would be in the network of the host."""
    import threading

    gate = threading.Event()
    thread = threading.Thread(target=gate.wait)
    thread.start()
    try:
        assert "threads" in own_network.enter()
    finally:
        gate.set()
        thread.join()

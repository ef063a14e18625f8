"""stderr that nobody reads, and the files that outputs write."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from fakes.run import environment
from fakes.tpu_node import LEVEL_2, Answer, Figures, TpuNode
from support import free_port, wait_until
from tpumon.outputs import Context
from tpumon.system import console
from tpumon_exporters.textfile import TextFile

_F_SETPIPE_SZ = 1031


class FullPipe:
    """A pipe that nobody reads, and what writes into it."""

    def __init__(self):
        self.read_end, self.write_end = os.pipe()
        fcntl.fcntl(self.write_end, _F_SETPIPE_SZ, 4096)

    def fill(self):
        os.set_blocking(self.write_end, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.write_end, b"." * 4096)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.write_end, b".")
        os.set_blocking(self.write_end, True)

    def close(self):
        for end in (self.read_end, self.write_end):
            os.close(end)


@pytest.fixture
def pipe():
    with contextlib.closing(FullPipe()) as pipe:
        yield pipe


@pytest.fixture
def serving(pipe, tmp_path):
    """Starts a service whose stderr is the pipe; it follows a file of workers."""
    for name in ("home", "run"):
        (tmp_path / name).mkdir()
    port, targets = free_port(), tmp_path / "targets.json"
    with TpuNode(Answer(text=LEVEL_2, figures=Figures())) as node, contextlib.ExitStack() as stack:
        targets.write_text(json.dumps([{"targets": [node.address]}]))

        def start():
            process = subprocess.Popen(
                [sys.executable, "-m", "tpumon", "serve", "--targets", str(targets), "--listen", f"127.0.0.1:{port}",
                 "--duration-ms", "50", "--interval", "0.1"],
                env=environment(tmp_path), cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=pipe.write_end,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process, port, targets

        yield start


def page(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return None


def wait_for_samples(port, number):
    """Waits until it has taken so many more samples."""

    def taken():
        samples = page(port, "/samples")
        return samples and json.loads(samples)["sequence"]

    before = taken() or 0
    wait_until(lambda: (taken() or 0) >= before + number, 60, "it goes on sampling")


def test_sampling_starts_and_ends_though_stderr_is_full(serving, pipe):
    """Its first line already cannot be written."""
    pipe.fill()
    process, port, _ = serving()
    wait_for_samples(port, 5)
    assert page(port, "/-/healthy")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_sampling_goes_on_when_stderr_is_no_longer_read(serving, pipe):
    """The sampling loop itself has something to say: the file of workers is broken."""
    process, port, targets = serving()
    wait_for_samples(port, 2)
    pipe.fill()
    targets.write_text("[")
    said_s = time.monotonic() + 8.0  # it looks every 2 s, and waits 3 s until the file has settled
    while time.monotonic() < said_s:
        wait_for_samples(port, 3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_a_message_delays_nobody_while_stderr_takes_nothing(pipe, monkeypatch):
    """The newest lines come out, and how many were lost, once it is read again."""
    handler = console.StderrHandler()
    with os.fdopen(os.dup(pipe.write_end), "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        pipe.fill()
        for number in range(3000):  # if each waited for its turn: 25 minutes
            handler.handle(logging.makeLogRecord({"msg": f"message {number}"}))
        assert handler._lines.qsize() == 1000
        read = bytearray()
        reader = threading.Thread(target=lambda: drain(pipe.read_end, read))
        reader.start()
        assert handler.wait(20)
        os.write(pipe.write_end, b"end")
        reader.join(20)
    said = read.decode().lstrip(".").removesuffix("end").splitlines()
    assert said[0] == "tpumon: message 0"
    assert said[1] == "tpumon: 1999 messages were not shown: nothing read stderr"
    assert said[2:] == [f"tpumon: message {number}" for number in range(2000, 3000)]


def drain(read_end, into):
    while not into.endswith(b"end"):
        into += os.read(read_end, 65536)


def test_a_message_precedes_what_is_printed_next():
    """Where both go to the same terminal."""
    program = (
        "import logging; from tpumon.system.console import set_up; set_up(); log = logging.getLogger('tpumon')\n"
        "for n in range(300):\n log.info(f'm{n}'); print(n, flush=True)"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.stdout.split() == [word for n in range(300) for word in ("tpumon:", f"m{n}", str(n))]


@pytest.mark.parametrize("kind", ["symlink", "file", "hard link"])
def test_what_lies_at_the_temporary_name_of_the_text_file_is_not_written_to(tmp_path, kind):
    """Put there by whoever may write to the directory."""
    victim, beside = tmp_path / "victim", tmp_path / ".tpumon.prom.tmp"
    victim.write_text("precious")
    match kind:
        case "symlink":
            beside.symlink_to(victim)
        case "hard link":
            beside.hardlink_to(victim)
        case "file":
            beside.write_text("left by a kill")
            beside.chmod(0o400)
    with contextlib.closing(TextFile(tmp_path / "tpumon.prom", Context())):
        assert victim.read_text() == "precious"
        assert not (tmp_path / "tpumon.prom").is_symlink()
        assert stat.S_IMODE((tmp_path / "tpumon.prom").stat().st_mode) == 0o644
        assert "tpumon" in (tmp_path / "tpumon.prom").read_text()

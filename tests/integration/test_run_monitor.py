"""`tpumon run --monitor-file`: figures of the program beside it, until it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fakes.run import environment
from fakes.tpu_node import LEVEL_2, Answer, TpuNode
from support import wait_until

PROGRAM = """
import os, sys
from tpumon_attach import announcement
announcement.announce(int(sys.argv[1]), "JAX")
print("reads", input(), flush=True)
try:
    print(os.wait())
except ChildProcessError:
    print("no child")
input()
sys.exit(5)
"""


def test_it_starts_when_there_is_a_server_and_ends_with_the_program(tmp_path: Path) -> None:
    """The program has its stdin for itself and no child that it did not start."""
    for name in ("home", "run"):
        (tmp_path / name).mkdir()
    figures = tmp_path / "figures"
    with TpuNode(Answer(text=LEVEL_2)) as node:
        port = node.address.rpartition(":")[2]
        command = [
            sys.executable,
            "-m",
            "tpumon",
            "run",
            "--monitor-file",
            figures,
            "--",
            sys.executable,
            "-c",
            PROGRAM,
        ]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen([*command, port], env=environment(tmp_path), **streams) as process:  # type: ignore[call-overload]
            try:
                wait_until(
                    lambda: figures.exists() and "higher is better" in figures.read_text(),
                    60,
                    "there are figures in the file",
                )
                assert _monitors(node.address)
                out, err = process.communicate("a line\n\n", timeout=60)
            finally:
                process.kill()
        wait_until(lambda: not _monitors(node.address), 60, "the monitor has ended")
    assert (out, process.returncode) == ("reads a line\nno child\n", 5)
    assert "Traceback" not in err


def _monitors(address: str) -> list[bytes]:
    """The command lines on this host that name the address."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        found += [line] if address.encode() in line else []
    return found


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """Before the program starts."""
    (tmp_path / "home").mkdir()
    command = [sys.executable, "-m", "tpumon", "run", "--monitor-file", tmp_path / "none" / "file", "echo", "started"]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"tpumon: {tmp_path}/none/file: No such file or directory\n"

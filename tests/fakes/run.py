"""The command line as a process of its own: nothing but what the test gives it in its environment."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Result:
    """How a command ended and what it printed."""

    command: str
    rc: int
    out: str
    err: str

    @property
    def samples(self) -> list[dict[str, Any]]:
        """The lines of `--output jsonl`; NaN and Infinity are no JSON."""
        return [json.loads(line, parse_constant=_not_json) for line in self.out.splitlines()]

    @property
    def messages(self) -> list[str]:
        """The lines on stderr."""
        return [line for line in self.err.splitlines() if line.strip()]

    @property
    def said(self) -> str:
        """All that it printed."""
        return self.out + self.err

    def ended(self, rc: int) -> Self:
        """Fails the test with all that was printed unless the command ended so."""
        assert self.rc == rc, f"{self}"
        return self

    def __str__(self) -> str:
        return f"{self.command}\nended with {self.rc}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Tpumon:
    """A running tpumon; leaving the block ends it.

    However it ends: no traceback, nothing for a terminal in a pipe, nothing left in its working directory.
    With `head` the reader of its stdout goes away after so many lines. `program` is Python's arguments that start it.
    """

    def __init__(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        head: int | None = None,
        program: Sequence[str] = ("-m", "tpumon"),
    ) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="tpumon-test-")
        self.cwd = Path(self._home.name, "cwd")
        for name in ("cwd", "home", "run"):
            Path(self._home.name, name).mkdir(mode=0o700)
        self.args = args
        self._process = subprocess.Popen(
            [sys.executable, *program, *args],
            cwd=self.cwd,
            env=environment(Path(self._home.name)) | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._parts: dict[str, list[bytes]] = {"out": [], "err": []}
        self._changed = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=("out", self._process.stdout, head), daemon=True),
            threading.Thread(target=self._read, args=("err", self._process.stderr), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, stream: IO[bytes], head: int | None = None) -> None:
        lines = 0
        while (head is None or lines < head) and (data := os.read(stream.fileno(), 65536)):
            lines += data.count(b"\n")
            with self._changed:
                self._parts[name].append(data)
                self._changed.notify_all()
        stream.close()

    @property
    def out(self) -> str:
        """What is on stdout by now."""
        return b"".join(self._parts["out"]).decode()

    @property
    def err(self) -> str:
        """What is on stderr by now."""
        return b"".join(self._parts["err"]).decode()

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def wait_for(self, condition: Callable[[], object], timeout_s: float = 60) -> Self:
        """Returns once the condition holds; fails the test when the command ends before, or it takes too long."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            over = not self.running and not any(reader.is_alive() for reader in self._readers)
            assert not over or condition(), f"it ended before\n{self._result()}"
            assert time.monotonic() < deadline, f"waited in vain\n{self.args}\n{self.out}\n{self.err}"
            with self._changed:
                self._changed.wait(0.05)
        return self

    def signal(self, number: signal.Signals) -> Self:
        """Sends a signal."""
        self._process.send_signal(number)
        return self

    def end(self, timeout_s: float = 60) -> Result:
        """Waits for the end."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"still running after {timeout_s} s\n{self._result()}") from None
        for reader in self._readers:
            reader.join()
        result = self._result()
        assert "Traceback" not in result.said, result
        assert not CONTROL.search(result.said), result
        assert not list(self.cwd.iterdir()), f"left {list(self.cwd.iterdir())} in its working directory\n{result}"
        return result

    def _result(self) -> Result:
        return Result(" ".join(["tpumon", *self.args]), self._process.returncode, self.out, self.err)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.running:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join()
        self._home.cleanup()


def tpumon(*args: str, env: Mapping[str, str] | None = None, timeout_s: float = 60) -> Result:
    """Runs a command to its end."""
    with Tpumon(*args, env=env) as process:
        return process.end(timeout_s)


def each(commands: Sequence[Sequence[str]], env: Mapping[str, str] | None = None) -> list[Result]:
    """Runs commands that do not depend on each other, two at a time; the results stand in their order."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda args: tpumon(*args, env=env), commands))


def environment(home: Path) -> dict[str, str]:
    """A user's environment with nothing in it that could change what tpumon does."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home / "home"),
        "XDG_RUNTIME_DIR": str(home / "run"),
        "TPUMON_PAUSE_DIR": str(home / "run"),  # somebody may have paused this host
        "TPUMON_ATTACH_DIR": str(home / "run"),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "COLUMNS": "400",
    }


def _not_json(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")

"""Commands on terminals: in a pty whose screen pyte keeps, and in a tmux server of their own."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import pyte

from support import wait_until

_WAIT_S = 20.0

# Makes the terminal on fd 1 the controlling one, then becomes the command.
_TAKE = "import os, sys; os.close(os.open(os.ttyname(1), os.O_RDWR)); os.execvp(sys.argv[1], sys.argv[1:])"


_SWITCHED = (1000, 1006, 2004)  # the mouse, the form of its reports, marks around pasted text


class Terminal:
    """A command with a terminal of its own, as its session's leader; leaving the block kills it.

    Args:
        command: what to run.
        environment: all of its environment.
        reading: whether the terminal takes what is written to it from the start; see `stall`.
        stderr: as for Popen; None: the terminal.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        columns: int = 80,
        lines: int = 24,
        cwd: Path | None = None,
        reading: bool = True,
        stderr: int | None = None,
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.raw = b""
        """All that was written to the terminal."""
        self._stream = pyte.ByteStream(self.screen)
        self._changed = threading.Lock()
        self._master, slave = pty.openpty()
        self.resize(columns, lines)
        self.modes_before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [sys.executable, "-SEc", _TAKE, *command],
            stdin=slave, stdout=slave, stderr=slave if stderr is None else stderr,
            start_new_session=True, env=dict(environment), cwd=cwd,
        )  # fmt: skip
        os.close(slave)
        self._reading = threading.Event()
        if reading:
            self._reading.set()
        self._ending = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._ending:
            if not self._reading.wait(0.05) or not select.select([self._master], [], [], 0.05)[0]:
                continue
            try:
                data = os.read(self._master, 65536)
            except OSError:  # nobody has the terminal any more
                return
            with self._changed:
                self.raw += data
                self._stream.feed(data)

    @property
    def lines(self) -> list[str]:
        """What the screen shows, line by line."""
        with self._changed:
            return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        """What the screen shows."""
        return "\n".join(self.lines)

    @property
    def alternate(self) -> bool:
        """Whether the alternate screen is on."""
        return self.raw.rfind(b"\x1b[?1049h") > self.raw.rfind(b"\x1b[?1049l")

    @property
    def cursor(self) -> bool:
        """Whether the cursor can be seen."""
        return not self.screen.cursor.hidden

    @property
    def modes(self) -> list[object]:
        """The terminal's modes, as tcgetattr tells them."""
        return termios.tcgetattr(self._master)

    @property
    def as_found(self) -> bool:
        """Whether the terminal is as it was before the command."""
        with self._changed:
            wraps = pyte.modes.DECAWM in self.screen.mode
            raw = self.raw
        switched = any(raw.rfind(b"\x1b[?%dh" % mode) > raw.rfind(b"\x1b[?%dl" % mode) for mode in _SWITCHED)
        return not self.alternate and self.cursor and wraps and not switched and self.modes == self.modes_before

    def send(self, keys: str | bytes) -> Self:
        """Types."""
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)
        return self

    def resize(self, columns: int, lines: int) -> Self:
        """Gives the terminal another size; the command gets SIGWINCH."""
        with self._changed:
            self.screen.resize(lines, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        return self

    def signal(self, number: signal.Signals) -> Self:
        """Sends the command a signal."""
        self.process.send_signal(number)
        return self

    def stall(self) -> Self:
        """From here on the terminal takes nothing, once its buffer is full."""
        self._reading.clear()
        return self

    def resume(self) -> Self:
        """The terminal takes everything again."""
        self._reading.set()
        return self

    def hang_up(self) -> Self:
        """The terminal goes away, as when a window is closed."""
        self._ending = True
        self._reader.join(_WAIT_S)
        os.close(self._master)
        self._master = -1
        return self

    def wait_for(self, what: str | Callable[[], object], timeout_s: float = _WAIT_S) -> Self:
        """Returns once the screen shows this text, or the condition holds."""
        condition = (lambda: what in self.text) if isinstance(what, str) else what
        wait_until(condition, timeout_s, lambda: f"{what}; on the screen:\n{self.text}\nraw: {self.raw[-2000:]!r}")
        return self

    def end(self, timeout_s: float = _WAIT_S) -> int:
        """Waits for the end and for all that was written; the exit status, -N for signal N."""
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s} s; on the screen:\n{self.text}") from None
        if self._reading.is_set():
            self._reader.join(_WAIT_S)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()
        if self._master >= 0:
            self.hang_up()


class Tmux:
    """A tmux server of its own with one window, in which a command runs; leaving the block ends it.

    Args:
        command: what to run, for example `bash --norc`.
        environment: what the command gets in addition to tmux's TERM.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        columns: int = 80,
        lines: int = 24,
        cwd: Path | None = None,
    ) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="tpumon-tmux-")
        variables = [f"-e{name}={value}" for name, value in environment.items() if name not in {"TERM", "COLUMNS"}]
        self._environment = dict(environment) | {"TERM": "xterm-256color"}
        self.ask_server(
            "start-server", ";", "set", "-g", "status", "off", ";", "set", "-g", "remain-on-exit", "on", ";",
            "set", "-g", "default-terminal", "screen-256color", ";",
            "new-session", "-d", "-x", str(columns), "-y", str(lines), "-c", str(cwd or Path.cwd()),
            *variables, *command,
        )  # fmt: skip

    def ask_server(self, *command: str) -> str:
        """Runs a tmux command."""
        done = subprocess.run(
            ["tmux", "-S", f"{self._directory.name}/socket", "-f", "/dev/null", *command],
            capture_output=True, text=True, env=self._environment, timeout=_WAIT_S,
        )  # fmt: skip
        assert done.returncode == 0, f"tmux {command}: {done.stderr}"
        return done.stdout

    def ask(self, form: str) -> str:
        """What tmux says of the pane, for example `#{alternate_on} #{cursor_flag}`."""
        return self.ask_server("display-message", "-p", form).rstrip("\n")

    @property
    def lines(self) -> list[str]:
        """What the screen shows, line by line."""
        return [line.rstrip() for line in self.ask_server("capture-pane", "-p").split("\n")[:-1]]

    @property
    def text(self) -> str:
        """What the screen shows."""
        return "\n".join(self.lines)

    def send(self, *keys: str) -> Self:
        """Types keys, by tmux's names: `q`, `C-c`, `Enter`, `Down`."""
        self.ask_server("send-keys", *keys)
        return self

    def type(self, text: str) -> Self:
        """Types a line, Enter included."""
        self.ask_server("send-keys", "-l", text)
        return self.send("Enter")

    def resize(self, columns: int, lines: int) -> Self:
        """Gives the window another size."""
        self.ask_server("resize-window", "-x", str(columns), "-y", str(lines))
        return self

    def wait_for(self, what: str | Callable[[], object], timeout_s: float = _WAIT_S) -> Self:
        """Returns once the screen shows this text, or the condition holds."""
        condition = (lambda: what in self.text) if isinstance(what, str) else what
        wait_until(condition, timeout_s, lambda: f"{what}; on the screen:\n{self.text}")
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.ask_server("kill-server")
        self._directory.cleanup()

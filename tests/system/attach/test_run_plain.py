"""Programs under `tpumon run` behave as without it: output, exit status, signals, terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fakes.run import environment
from support import wait_until

RUN = [sys.executable, "-m", "tpumon", "run"]


@dataclass(frozen=True)
class End:
    """How a program ended."""

    rc: int
    out: str
    err: str


@contextmanager
def started(tmp_path: Path, command: list[str], *, run: bool, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A program, ended for sure."""
    for name in ("home", "run", "cwd"):
        (tmp_path / name).mkdir(exist_ok=True)
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    program = [*(RUN if run else []), *command]
    with subprocess.Popen(program, cwd=tmp_path / "cwd", env=environment(tmp_path), text=True, **streams) as process:
        try:
            yield process
        finally:
            process.kill()


def both(tmp_path: Path, command: list[str], stdin: str | None = None) -> tuple[End, End]:
    """The end under `tpumon run`, and without."""
    ends = []
    for run in (True, False):
        with started(tmp_path, command, run=run, stdin=subprocess.PIPE) as process:
            out, err = process.communicate(stdin, timeout=60)
        ends.append(End(process.returncode, out, err))
    return ends[0], ends[1]


PYTHON = sys.executable
SCRIPTS = {
    "arguments.py": "import sys; print(sys.argv); sys.exit(3)",
    "uncaught.py": "import json\ndef f():\n    json.loads('x')\nf()",
    "exec.py": "import os, sys; os.execvp(sys.executable, [sys.executable, '-c', 'print(1); raise SystemExit(9)'])",
    "crash.py": "import os, signal; print('before', flush=True); os.kill(os.getpid(), signal.SIGSEGV)",
    "exit.py": "import atexit, os; atexit.register(print, 'end'); print(sorted(os.environ.keys() - {'PYTHONPATH'}))",
    "workers.py": "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n"
    "    for how in ('fork', 'spawn'):\n        with m.get_context(how).Pool(2) as p: print(p.map(f, range(4)))",
    "shell.sh": "echo from the shell; python3 -c 'import sys; print(sys.argv)' a b; yes | head -1; exit 4",
    "shebang": '#!/bin/sh\necho "$0" "$@"; exit 5',
    "entry": f"#!{PYTHON}\nimport sys; print(sys.argv[1:]); sys.exit(6)",
    "noshebang": "echo by the shell; exit 8",
    "files.py": "import os; print(sorted(os.listdir('/proc/self/fd')), os.getcwd(), os.umask(0), os.nice(0))",
    "signals.py": "print([l for l in open('/proc/self/status') if l.startswith('Sig') and 'SigQ' not in l])",
}
COMMANDS = {
    "arguments": [PYTHON, "arguments.py", "--port", "1", "--", "-h"],
    "-m": [PYTHON, "-m", "arguments", "x"],
    "-c": [PYTHON, "-c", "import sys; print(sys.argv, sys.path[0]); raise SystemExit('why')", "x"],
    "stdin": [PYTHON, "-", "x"],
    "no site": [PYTHON, "-S", "-I", "arguments.py"],
    "uncaught exception": [PYTHON, "uncaught.py"],
    "execs another": [PYTHON, "exec.py"],
    "crash": [PYTHON, "crash.py"],
    "exit": [PYTHON, "exit.py"],
    "multiprocessing": [PYTHON, "workers.py"],
    "shell": ["sh", "shell.sh"],
    "shebang": ["./shebang", "a b"],
    "console entry point": ["./entry", "a"],
    "open files": [PYTHON, "files.py"],
    "signals": [PYTHON, "signals.py"],
    "no Python": ["sed", "-n", "2p", "uncaught.py"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_program_ends_as_it_would(tmp_path: Path, name: str) -> None:
    """The same bytes on both streams, and the same status."""
    (tmp_path / "cwd").mkdir()
    for script, content in SCRIPTS.items():
        (tmp_path / "cwd" / script).write_text(content)
        (tmp_path / "cwd" / script).chmod(0o755)
    with_it, without = both(tmp_path, COMMANDS[name], "print('typed', __name__); 1 / 0" if name == "stdin" else None)

    assert with_it == without
    assert with_it.out or with_it.err


def test_a_script_without_a_name_of_an_interpreter_is_the_shells(tmp_path: Path) -> None:
    """As a shell would do it."""
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "noshebang").write_text(SCRIPTS["noshebang"])
    (tmp_path / "cwd" / "noshebang").chmod(0o755)
    with started(tmp_path, ["./noshebang"], run=True) as process:
        assert process.communicate(timeout=60) == ("by the shell\n", "")
    assert process.returncode == 8


@pytest.mark.parametrize(
    ("name", "rc"), [("no-such-program", 127), ("./plain", 126), ("./folder", 126), ("./none", 127)]
)
def test_what_cannot_be_run_is_said_in_one_line(tmp_path: Path, name: str, rc: int) -> None:
    """With the statuses that shells use."""
    (tmp_path / "cwd" / "folder").mkdir(parents=True)
    (tmp_path / "cwd" / "plain").write_text("echo")
    with started(tmp_path, [name], run=True) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == rc
    assert err.startswith(f"tpumon: cannot run {name}: ")
    assert err.count("\n") == 1


WAITS = (
    "import os, signal, sys, time\n"
    "signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'caught\\n'))\n"
    "print(os.getpid(), flush=True)\n"
    "while True: time.sleep(0.05)\n"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL])
def test_signals_reach_the_program_itself(tmp_path: Path, number: signal.Signals) -> None:
    """It is the process that was started: the same number, the same end."""
    with started(tmp_path, [PYTHON, "-c", WAITS], run=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "caught\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=60)

    assert process.returncode == -number
    assert ("KeyboardInterrupt" in err) == (number is signal.SIGINT)
    assert "tpumon" not in err


def test_ctrl_c_in_a_terminal_is_the_programs(tmp_path: Path) -> None:
    """It has the terminal, and what is typed there."""
    leader, follower = pty.openpty()
    program = "import sys, time\nassert sys.stdin.isatty()\nprint('ready', input(), flush=True)\ntime.sleep(60)"
    shown = b""

    def read_until(word: bytes) -> bool:
        nonlocal shown
        shown += os.read(leader, 1000)
        return word in shown

    with started(
        *(tmp_path, [PYTHON, "-c", program]),
        run=True,
        stdin=follower,
        stdout=follower,
        preexec_fn=lambda: _own_terminal(follower),
    ) as process:
        os.close(follower)
        os.write(leader, b"typed\n")
        wait_until(lambda: read_until(b"ready typed"), 60, lambda: str(shown))
        os.write(leader, b"\x03")
        _, err = process.communicate(timeout=60)
    os.close(leader)

    assert process.returncode == -signal.SIGINT
    assert err.rstrip().endswith("KeyboardInterrupt")


def _own_terminal(terminal: int) -> None:
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def test_switched_off_it_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    env = {**environment(tmp_path), "TPUMON_ATTACH": "0", "TPUMON_PORT": "tcp://10.0.0.1:80"}  # a service of that name
    done = subprocess.run([*RUN, "env"], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert sorted(done.stdout.splitlines()) == sorted(f"{name}={value}" for name, value in env.items())


@pytest.mark.parametrize("attach", ["1", "0"])
@pytest.mark.parametrize("locale", [{}, {"LANG": "C"}, {"LC_CTYPE": "POSIX"}, {"LC_CTYPE": "C.UTF-8"}, {"LC_ALL": "C"}])
def test_the_locale_is_the_one_that_was_given(tmp_path: Path, locale: dict[str, str], attach: str) -> None:
    """In the C locale, Python sets LC_CTYPE for itself; a program would inherit that."""
    (tmp_path / "home").mkdir()
    given = {name: value for name, value in environment(tmp_path).items() if name != "LANG"}
    env = {**given, **locale, "TPUMON_ATTACH": attach}
    done = subprocess.run([*RUN, "env"], env=env, cwd=tmp_path, capture_output=True, text=True)
    shown = [line for line in done.stdout.splitlines() if not line.startswith("PYTHONPATH=")]
    assert sorted(shown) == sorted(f"{name}={value}" for name, value in env.items())

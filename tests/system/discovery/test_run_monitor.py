"""`tpumon run --monitor`: figures of the program beside it, until it ends, whatever surrounds it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from fakes.run import environment
from fakes.tpu_node import LEVEL_2, Answer, TpuNode
from support import wait_until
from tpumon.discovery.host.processes import ancestors_of

TPUMON = [sys.executable, "-m", "tpumon"]
PROGRAM = """
import os, signal, sys
from tpumon_attach import announcement
announcement.announce(int(sys.argv[1]), "JAX")
if sys.stdin is None:
    signal.pause()
print("reads", input(), flush=True)
try:
    print(os.wait())
except ChildProcessError:
    print("no child")
input()
sys.exit(5)
"""


@contextlib.contextmanager
def node() -> Iterator[TpuNode]:
    with TpuNode(Answer(text=LEVEL_2)) as one:
        yield one


@contextlib.contextmanager
def monitored(
    tmp_path: Path,
    address: str,
    *,
    tpumon: Sequence[str] = TPUMON,
    more: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """A program with its figures in tmp_path/figures; its profiler server is said to be at the address.

    Args:
        tmp_path: where its directories are.
        address: of its server.
        tpumon: starts tpumon.
        more: what else its environment holds.
    """
    for name in ("home", "run", "cwd"):
        (tmp_path / name).mkdir(exist_ok=True)
    command = [
        *(*tpumon, "run", "--monitor-file", tmp_path / "figures", "--"),
        *(sys.executable, "-P", "-c", PROGRAM, address.rpartition(":")[2]),
    ]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    env = {**environment(tmp_path), **(more or {})}
    with subprocess.Popen(command, cwd=tmp_path / "cwd", env=env, **streams) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def wait_for_figures(tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    wait_until(lambda: figures.exists() and "higher is better" in figures.read_text(), 60, "there are figures")


def test_it_starts_when_there_is_a_server_and_ends_with_the_program(tmp_path: Path) -> None:
    """The program has its stdin for itself and no child that it did not start."""
    with node() as server:
        with monitored(tmp_path, server.address) as process:
            wait_for_figures(tmp_path)
            assert _monitors(server.address)
            out, err = process.communicate("a line\n\n", timeout=60)
        wait_until(lambda: not _monitors(server.address), 60, "the monitor has ended")
    assert (out, process.returncode) == ("reads a line\nno child\n", 5)
    assert err == ""


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path) -> None:
    """What lies there would run as the user; an empty entry of PYTHONPATH, often a slip, names it, too."""
    (tmp_path / "cwd").mkdir()
    for name in ("grpc", "typer"):
        (tmp_path / "cwd" / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')")
    installed = [str(Path(sys.executable).with_name("tpumon"))]  # `python -m` itself looks there
    more = {"PYTHONPATH": ":"}
    with node() as server, monitored(tmp_path, server.address, tpumon=installed, more=more) as process:
        wait_for_figures(tmp_path)
        process.communicate("\n\n", timeout=60)
    assert not (tmp_path / "imported").exists()


def test_what_is_meant_for_others_does_not_change_it(tmp_path: Path) -> None:
    """Variables for a tpumon that the user starts, or for the job; a configuration that names what there is not."""
    (tmp_path / "config.toml").write_text('from = "http://127.0.0.1:9"\nno-such-option = 1\n')
    more = {
        "TPUMON_CONFIG": str(tmp_path / "config.toml"),
        "TPUMON_FROM": "http://127.0.0.1:9",
        "TPUMON_OUTPUT": "jsonl", "TPUMON_LISTEN": "nonsense", "TPUMON_EXPORT": "nonsense",
        "TPUMON_LEVEL": "0", "TPUMON_LOGDIR": "/nowhere", "TPUMON_NUM_QUERIES": "x",
    }  # fmt: skip
    with node() as server, monitored(tmp_path, server.address, more=more) as process:
        wait_for_figures(tmp_path)
        process.communicate("\n\n", timeout=60)


def test_streams_that_are_closed_are_nothing_to_it(tmp_path: Path) -> None:
    """The file for figures is not mistaken for one of them."""
    shell = ("sh", "-c", 'exec "$@" 0<&- 2>&-', "sh", *TPUMON)
    with node() as server:
        with monitored(tmp_path, server.address, tpumon=shell):
            wait_for_figures(tmp_path)
        wait_until(lambda: not _monitors(server.address), 60, "the monitor has ended")


def test_what_the_program_closes_is_closed(tmp_path: Path) -> None:
    """Whoever waits for that, or for a lock on it, does not wait for the monitor."""
    for folder in ("home", "run"):
        (tmp_path / folder).mkdir()
    reader, writer = os.pipe()
    program = [sys.executable, "-c", "import os, sys; os.close(int(sys.argv[1])); input()", str(writer)]
    with subprocess.Popen(
        [*TPUMON, "run", "--monitor-file", tmp_path / "figures", *program],
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        pass_fds=[writer],
    ) as process:
        os.close(writer)
        ready, _, _ = select.select([reader], [], [], 30)
        assert ready
        assert os.read(reader, 1) == b""
        assert process.poll() is None
        process.communicate(b"\n", timeout=60)
    os.close(reader)


def test_it_ends_when_what_waits_for_the_program_is_ended(tmp_path: Path) -> None:
    """As a service manager may do; nothing else would end it."""
    with node() as server, monitored(tmp_path, server.address) as process:
        wait_for_figures(tmp_path)
        (monitor,) = _monitors(server.address)
        os.kill(ancestors_of(monitor)[0], signal.SIGTERM)
        wait_until(lambda: not _monitors(server.address), 60, "the monitor has ended")
        assert process.communicate("a line\n\n", timeout=60)[0] == "reads a line\nno child\n"


WITHOUT = """
import errno, os, sys
def refuse(*_args):
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
setattr(os, sys.argv[1], refuse)
sys.argv = sys.argv[1:]
from tpumon.__main__ import main
main()
"""


@pytest.mark.parametrize("name", ["fork", "setsid"])
def test_where_the_system_refuses_the_program_runs_all_the_same(tmp_path: Path, name: str) -> None:
    """Without figures, and with one line that says so."""
    for folder in ("home", "run"):
        (tmp_path / folder).mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT, name, "run", "--monitor", "echo", "started"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "started\n")
    assert done.stderr == "tpumon: cannot monitor the program: Resource temporarily unavailable\n"


def test_an_old_kernel_will_do(tmp_path: Path) -> None:
    """One without pidfd_open, or a sandbox that does not allow it."""
    without = [sys.executable, "-P", "-c", WITHOUT, "pidfd_open"]
    with node() as server, monitored(tmp_path, server.address, tpumon=without) as process:
        wait_for_figures(tmp_path)
        process.communicate("\n\n", timeout=60)


def _monitors(address: str) -> list[int]:
    """The processes of this host whose command lines name the address."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [int(path.parent.name)] if address.encode() in path.read_bytes() else []
    return found


_ADVICE = "; give a file that can be written"


def said_of_file(tmp_path: Path, file: Path) -> tuple[int, str, str]:
    (tmp_path / "home").mkdir()
    command = [*TPUMON, "run", "--monitor-file", file, "echo", "started"]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """Before the program starts."""
    file = tmp_path / "none" / "file"
    assert said_of_file(tmp_path, file) == (
        1,
        "",
        f"tpumon: --monitor-file {file}: No such file or directory{_ADVICE}\n",
    )


def test_a_pipe_that_nobody_reads_holds_nothing_up(tmp_path: Path) -> None:
    file = tmp_path / "pipe"
    os.mkfifo(file)
    assert said_of_file(tmp_path, file) == (
        1,
        "",
        f"tpumon: --monitor-file {file}: No such device or address{_ADVICE}\n",
    )


def test_a_full_disk_is_said_and_the_program_runs_on(tmp_path: Path) -> None:
    (tmp_path / "figures").symlink_to("/dev/full")
    with node() as server, monitored(tmp_path, server.address) as process:
        assert process.stderr is not None
        assert "No space left on device" in process.stderr.readline()
        assert process.communicate("a line\n\n", timeout=60)[0] == "reads a line\nno child\n"
    assert process.returncode == 5

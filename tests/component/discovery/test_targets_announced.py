"""What attached jobs announce: believed only as far as their processes bear it out."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import REPOSITORY, require
from tpumon.discovery.host.announced import announced_environment, attached_processes
from tpumon.discovery.host.listening import Listener, Owner
from tpumon.discovery.host.port_survey import why_not_approached
from tpumon.discovery.host.processes import is_running, start_ticks_of
from tpumon.discovery.identity import VARIABLES

with pytest.MonkeyPatch.context() as patch:
    patch.setenv("TPUMON_ATTACH", "0")  # this process itself is not to be attached
    import tpumon.attach  # noqa: F401 - makes the next line possible

from tpumon_attach import announcement

UID, PID = os.geteuid(), os.getpid()
PORT = 9999


def listener(port: int = PORT, uid: int = UID) -> Listener:
    return Listener(port=port, address=f"127.0.0.1:{port}", inodes=frozenset({1}), uid=uid)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this user's jobs announce themselves."""
    monkeypatch.setenv("TPUMON_ATTACH_DIR", str(tmp_path))
    monkeypatch.setattr(announcement, "_announced", None)
    yield tmp_path / f"tpumon-run-{UID}"
    announcement.withdraw()


def test_an_announcement_is_found_until_it_is_withdrawn(folder: Path) -> None:
    announcement.announce(PORT, "JAX")
    assert attached_processes([listener(1), listener()]) == {PORT: PID}
    announcement.announce(PORT + 1, "JAX")
    assert attached_processes([listener(), listener(PORT + 1)]) == {PORT + 1: PID}
    announcement.withdraw()
    assert attached_processes([listener(PORT + 1)]) == {}
    assert list(folder.iterdir()) == []


def test_what_names_its_job_is_announced_and_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is when the server starts: a program may set it."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SECRET", "s")
    monkeypatch.setenv("TPUMON_JOB", "gemma\nTPUMON_SLICE=9\x1b[31m")
    monkeypatch.setenv("TPU_NAME", "x" * 5000)
    monkeypatch.setenv("TPU_PROCESS_ADDRESSES", ",".join(["10.0.0.1:8476"] * 2304))
    announcement.announce(PORT, "JAX")

    assert attached_processes([listener()]) == {PORT: PID}
    assert announced_environment(PID) == {
        "TPUMON_JOB": "gemmaTPUMON_SLICE=9[31m",
        "TPU_NAME": "x" * 200,
        "TPUMON_LISTED_WORKERS": "2304",
    }
    assert announcement._NAMING == VARIABLES


def test_an_announcement_of_another_process_names_no_job(folder: Path) -> None:
    folder.mkdir()
    named(folder, PID).write_text(f"{start() - 1} {PORT} JAX\nTPUMON_JOB=theirs\n")
    assert announced_environment(PID) == {}
    named(folder, PID).write_text(f"{start()} {PORT} JAX\nTPUMON_JOB=ours\n")
    assert announced_environment(PID) == {"TPUMON_JOB": "ours"}


def named(folder: Path, pid: int) -> Path:
    """The file of a process of this host."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return folder / f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}-{pid}"


def test_files_of_processes_that_were_killed_are_removed(folder: Path) -> None:
    """And are believed no more, whoever has their number now."""
    folder.mkdir()
    named(folder, PID).write_text(f"{start_ticks_of(PID)} {PORT} JAX\n")
    named(folder, 1).write_text(f"1 {PORT} JAX\n")  # there is such a process, but it did not start then
    named(folder, 4194305).write_text(f"1 {PORT} JAX\n")  # beyond the largest number
    announcement.announce(PORT, "JAX")

    assert list(folder.iterdir()) == [named(folder, PID)]


def start() -> int:
    ticks = start_ticks_of(PID)
    assert ticks is not None
    return ticks


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1",
        b"\xff\xfe",
        b"START",
        b"START 99999999999999999999",
        b"START PORT1 JAX",
        b"1 PORT JAX",
        b"-START PORT JAX",
    ],
)
def test_what_is_not_true_does_not_count(folder: Path, content: bytes) -> None:
    folder.mkdir()
    filled = content.replace(b"START", str(start()).encode()).replace(b"PORT1", b"1").replace(b"PORT", b"9999")
    named(folder, PID).write_bytes(filled)
    assert attached_processes([listener()]) == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(
    before=st.sampled_from(["", named(Path(), 0).name.removesuffix("0")]),
    name=st.text("0123456789.x-", min_size=1, max_size=30).filter(lambda name: name.strip(".")),
    content=st.binary(),
)
def test_any_file_may_lie_there(folder: Path, before: str, name: str, content: bytes) -> None:
    """Nothing is raised, and nothing is found that is not this process."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{before}{name}"
    path.write_bytes(content)
    assert attached_processes([listener()]) == {}
    path.unlink()


def test_only_plain_files_of_the_user_count(folder: Path, tmp_path: Path) -> None:
    """No link, no pipe, no socket; a listener of another user is not vouched for."""
    announcement.announce(PORT, "JAX")
    assert attached_processes([listener(uid=UID + 1)]) == {}
    file = named(folder, PID)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert attached_processes([listener()]) == {}
    file.unlink()
    os.mkfifo(file)
    assert attached_processes([listener()]) == {}
    file.unlink()
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(tmp_path / "socket"))  # a path for it must be short
        (tmp_path / "socket").rename(file)
        assert attached_processes([listener()]) == {}


def test_a_place_of_somebody_else_is_not_used(tmp_path: Path, folder: Path) -> None:
    """A link there, which anybody may make: nothing is written behind it, nothing is believed."""
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="belongs to somebody else"):
        announcement.announce(PORT, "JAX")
    named(tmp_path / "elsewhere", PID).write_text(f"{start()} {PORT} JAX\n")
    assert attached_processes([listener()]) == {}
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1


IN_A_CONTAINER = """
import os, sys
port, hook, repository = sys.argv[1:]
sys.path += [hook, repository]
os.environ["TPUMON_ATTACH"] = "0"
from tpumon_attach import announcement
announcement.announce(int(port), "JAX")
print(os.getpid(), flush=True)
sys.stdin.readline()
from tpumon.discovery.host.announced import attached_processes
from tpumon.discovery.host.listening import Listener
all_ports = [Listener(port=one, address="h", inodes=frozenset(), uid=os.geteuid()) for one in range(1, 5)]
print(attached_processes(all_ports), flush=True)
sys.stdin.readline()
announcement.withdraw()
"""


@contextlib.contextmanager
def container(port: int) -> Iterator[subprocess.Popen[str]]:
    """A process that announces a port, as the first one of a container; each line to it has it go on."""
    hook = REPOSITORY / "tpumon" / "attach" / "pythonpath"
    with subprocess.Popen(
        [*CONTAINER, sys.executable, "-c", IN_A_CONTAINER, str(port), hook, REPOSITORY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        try:
            yield process
        finally:
            process.kill()


CONTAINER = ["unshare", "--map-current-user", "--pid", "--fork", "--kill-child", "--mount-proc"]


def told(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    return process.stdout.readline().strip()


def test_containers_with_one_directory_leave_each_other_alone(folder: Path) -> None:
    """Their processes have the same numbers; to each, and to this host, those of the others are nobody's."""
    able = shutil.which("unshare") and subprocess.run([*CONTAINER, "true"], stderr=subprocess.DEVNULL).returncode == 0
    require(able, "unshare, and namespaces of processes")
    with container(1) as first, container(2) as second:
        announcement.announce(3, "JAX")
        files = list(folder.iterdir())
        assert len(files) == 3
        assert attached_processes([listener(port) for port in range(1, 5)]) == {3: PID}
        assert told(first) == "{1: 1}"
        assert told(second) == "{2: 1}"
        assert told(first) == ""
        assert told(second) == ""
    announcement.withdraw()
    assert list(folder.iterdir()) == []


def test_processes_of_another_boot_are_nobodys(folder: Path) -> None:
    """Another machine may share the directory; what it says is neither believed nor removed."""
    announcement.announce(PORT, "JAX")
    (own,) = folder.iterdir()
    assert own == named(folder, PID)
    other = own.rename(own.with_name(f"0f0e0d0c{own.name[8:]}"))
    assert attached_processes([listener()]) == {}
    announcement._announced = None
    announcement.announce(PORT, "JAX")
    assert other.exists()


def test_a_full_disk_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file."""

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(OSError, match="No space left on device: '/") as caught:
        announcement.announce(PORT, "JAX")
    assert str(folder) in caught.value.filename
    assert list(folder.iterdir()) == []


def test_a_process_that_nobody_waited_for_has_ended() -> None:
    """It keeps its number and its start until then."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        ticks = start_ticks_of(process.pid)
        assert ticks is not None
        assert is_running(process.pid, ticks)
        assert not is_running(process.pid, ticks + 1)
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert start_ticks_of(process.pid) == ticks
        assert not is_running(process.pid, ticks)


def test_an_attached_job_says_where_to_call_it() -> None:
    """Whatever port it is, and although its process is hidden; its other ports are left alone, usual ones too."""
    attached = {23456: 7}
    job = Owner(pid=7, program="python3", runs_xla=True)

    assert why_not_approached(23456, None, attached=attached) is None
    assert why_not_approached(8476, job, attached={8476: 7}) is None
    assert "is on port 23456" in str(why_not_approached(9999, job, attached=attached))
    assert why_not_approached(9999, job, asked_for=True, attached=attached) is None
    assert why_not_approached(9999, Owner(pid=8, program="python3"), attached=attached) is None

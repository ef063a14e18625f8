"""The edge between a job and what runs in it: whatever fails there, the job goes on as alone."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fakes.run import environment
from support import free_port

with pytest.MonkeyPatch.context() as patch:
    patch.setenv("TPUMON_ATTACH", "0")  # this process itself is not to be attached
    from tpumon.attach import HOOK

from tpumon_attach import announcement, harmless, marks, messages, ports, profiler_sessions, resource_limits, server

JAX = {  # a version that is not known: a line is said of each module
    "jax/__init__.py": "from jax._src import xla_bridge, profiler",
    "jax/_src/__init__.py": "",
    "jax/_src/xla_bridge.py": "executed = 1",
    "jax/_src/profiler.py": "",
}


def run(tmp_path: Path, program: str, redirect: str = "", hook: Path = HOOK) -> subprocess.CompletedProcess[str]:
    """Runs a program that has JAX above, by a shell that redirects what it is told."""
    for name, content in JAX.items():
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / name).write_text(content)
    for name in ("home", "run"):
        (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / "program.py").write_text(program)
    paths = {"PYTHONPATH": f"{hook}:{tmp_path / 'own'}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["sh", "-c", f'exec "$0" program.py {redirect}', sys.executable]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={**environment(tmp_path), **paths}, timeout=60
    )


# Lines on stderr.


def test_a_file_of_the_job_has_no_line_of_ours(tmp_path: Path) -> None:
    """Where stderr is closed, the first file that a job opens has its number."""
    program = (
        "data = open('data', 'w'); print(data.fileno())\nimport jax\ndata.write('mine'); data.close(); print('end')"
    )
    done = run(tmp_path, program, "2>&-")

    assert done.stdout == "2\nend\n"
    assert (tmp_path / "data").read_text() == "mine"


def test_a_log_that_replaces_stderr_has_none(tmp_path: Path) -> None:
    """It might as well be data."""
    program = "import os\nlog = open('data', 'w'); os.dup2(log.fileno(), 2)\nimport jax\nos.write(2, b'mine')"
    done = run(tmp_path, program)

    assert (done.stderr, done.returncode) == ("", 0)
    assert (tmp_path / "data").read_text() == "mine"


def test_stderr_has_one(tmp_path: Path) -> None:
    """The same program with stderr as it was."""
    done = run(tmp_path, "import jax")
    assert done.stderr.count("is not known") == 2


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
def test_a_broken_copy_does_not_keep_python_from_starting(tmp_path: Path, redirect: str) -> None:
    copy = tmp_path / "copy"
    (copy / "tpumon_attach").mkdir(parents=True)
    (copy / "sitecustomize.py").write_text((HOOK / "sitecustomize.py").read_text())
    (copy / "tpumon_attach" / "__init__.py").write_text("1 / 0")
    done = run(tmp_path, "print('runs')", redirect, copy)

    assert (done.stdout, done.returncode) == ("runs\n", 0)


# Loaders.

FINDER = """
import importlib.machinery, importlib.util, sys

class Wrapping:
    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and name.startswith("jax._src."):
            spec = importlib.util.spec_from_loader(name, make(spec.loader), origin=spec.origin)
        return spec

sys.meta_path.insert(1, Wrapping())
"""
LOADERS = {
    "slots": """
class Loader:
    __slots__ = ("alone",)
    def __init__(self, alone): self.alone = alone
    def create_module(self, spec): return None
    def exec_module(self, module): exec(self.alone.get_code(module.__name__), vars(module))
make = Loader
""",
    "load_module only": """
class Loader:
    def __init__(self, alone): self.alone = alone
    def load_module(self, name):
        module = sys.modules[name] = type(sys)(name)
        module.__loader__ = self
        exec(self.alone.get_code(name), vars(module))
        return module
make = Loader
""",
    "a class": """
class Loader:
    alone = {}
    def create_module(spec): return None
    def exec_module(module): exec(Loader.alone[module.__name__].get_code(module.__name__), vars(module))
def make(alone):
    Loader.alone[alone.name] = alone
    return Loader
""",
}


@pytest.mark.parametrize("name", LOADERS)
def test_what_an_odd_loader_loads_is_left_alone(tmp_path: Path, name: str) -> None:
    """With a line; the import succeeds, and again after a reload."""
    program = (
        f"{FINDER}{LOADERS[name]}import jax, importlib\nimportlib.reload(jax._src.xla_bridge)\n"
        "print(jax._src.xla_bridge.executed)"
    )
    done = run(tmp_path, program)

    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr
    assert "tpumon: this program is not fully attached: jax._src.xla_bridge cannot be watched: " in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_a_loader_of_many_modules_keeps_what_it_had(tmp_path: Path) -> None:
    """Each module is acted on once, and the loader's own `exec_module` is there afterwards."""
    loader = """
class Loader:
    alone = {}
    def create_module(self, spec): return None
    def exec_module(self, module): 1 / 0
def execute(module): exec(Loader.alone[module.__name__].get_code(module.__name__), vars(module))
one = Loader()
one.exec_module = execute
def make(alone):
    Loader.alone[alone.name] = alone
    return one
"""
    program = (
        "import jax, importlib\nbridge = sys.modules.pop('jax._src.xla_bridge')\n"
        "for _ in range(2): importlib.util.find_spec('jax._src.xla_bridge')\n"
        "sys.modules['jax._src.xla_bridge'] = bridge\nimportlib.reload(bridge)\n"
        "print(vars(one) == {'exec_module': execute})"
    )
    done = run(tmp_path, FINDER + loader + program)

    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
    assert len(done.stderr.splitlines()) == done.stderr.count("is not known") == 3


def test_what_another_finder_raises_is_for_the_program(tmp_path: Path) -> None:
    """Once, without a line of ours."""
    program = """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name == "jax._src.xla_bridge":
            print("asked")
            raise ImportError("not here")
sys.meta_path.insert(1, Refusing())
try:
    import jax
except ImportError as error:
    print(error)
"""
    done = run(tmp_path, program)
    assert (done.stdout, done.stderr) == ("asked\nnot here\n", "")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 does not ask such finders")
def test_a_finder_of_the_old_kind_finds_what_it_would(tmp_path: Path) -> None:
    """One with `find_module` only comes before those behind it; one that does not find it is passed over."""
    finder = """
import importlib.machinery, sys
class Loader:
    def load_module(self, name):
        module = sys.modules[name] = type(sys)(name)
        module.__loader__, module.executed = self, "by the old kind"
        return module
class Finder:
    def find_module(self, name, path=None):
        return Loader() if name == "jax._src.xla_bridge" else None
sys.meta_path.insert(1, Finder())
import jax
print(jax._src.xla_bridge.executed)
"""
    done = run(tmp_path, finder)

    assert (done.stdout, done.returncode) == ("by the old kind\n", 0), done.stderr
    assert [line.count("is not known") for line in done.stderr.splitlines()] == [1]  # of the other module


# Functions that the program or a framework calls.


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(harmless, "_told", set())
    monkeypatch.setattr(harmless, "say", lines.append)
    return lines


def fail(*_args: object, **_kwargs: object) -> Any:
    raise RuntimeError("ours")


def test_a_hook_says_once_why_it_failed(said: list[str]) -> None:
    hook = harmless.harmless("it runs without", instead=7)(fail)

    assert [hook(1), hook(), hook(a=2)] == [7, 7, 7]
    assert said == ["this program is not fully attached: it runs without: RuntimeError: ours"]


def test_a_failure_that_cannot_be_said_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise self

    def odd() -> None:
        raise OddError

    harmless.harmless("it runs without")(odd)()


def test_ctrl_c_in_a_hook_is_the_programs() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        harmless.harmless("it runs without")(interrupted)()


class WatchDog:
    """What a program does when its time is up."""

    def bark(self, *_given: object) -> None:
        raise TimeoutError("bark")

    __call__ = bark


@pytest.mark.parametrize("how", ["function", "method", "object", "partial"])
def test_what_the_handler_of_a_signal_raises_is_the_programs(one: server.Server, said: list[str], how: str) -> None:
    """A program that starts a server itself may wait for ours, and may set a limit to that."""
    dog = WatchDog()
    handlers: dict[str, Callable[..., None]] = {
        "function": lambda *_: dog.bark(),
        "method": dog.bark,
        "object": dog,
        "partial": partial(dog.bark, 1),
    }
    before = signal.signal(signal.SIGALRM, handlers[how])
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with one._lock, pytest.raises(TimeoutError, match="bark"):
            one.of_program(str, str)(1234)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert said == []


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> server.Server:
    monkeypatch.setattr(server, "_servers", [])
    monkeypatch.setattr(announcement, "_announced", None)
    monkeypatch.setenv("TPUMON_ATTACH_DIR", str(tmp_path))
    monkeypatch.setenv("TPUMON_ATTACH_PORT", str(free_port()))
    return server.Server("JAX", lambda port: f"server on {port}")


def test_a_thread_that_cannot_start_is_a_line(
    one: server.Server, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not an error out of what made the framework start its devices."""
    monkeypatch.setattr(server._thread, "start_new_thread", fail)
    one.start_when(lambda: True)

    assert len(said) == 1
    assert "its profiler server cannot be started: RuntimeError: ours" in said[0]


@pytest.mark.parametrize(
    ("groups", "limits", "left"),
    [
        ("8:pids:/a/b\n0::/\n", {"pids/a/b": ("max", 5), "pids/a": ("50", 20), "pids": ("90", 20)}, 30),
        ("0::/a/b\n", {"a/b": ("70", 20), "a": ("max", 90)}, 50),
        ("8:pids:/not/seen/in/a/container\n", {"pids": ("9", 9)}, 0),
        ("4:memory:/\n", {"": ("9", 9)}, float("inf")),
        ("", {}, float("inf")),
    ],
)
def test_where_few_threads_may_start_there_is_no_server(
    one: server.Server,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    groups: str,
    limits: dict[str, tuple[str, int]],
    left: float,
) -> None:
    """gRPC would end the process; of several limits the nearest counts."""
    (tmp_path / "own").write_text(groups)
    for name, (most, current) in limits.items():
        (tmp_path / "groups" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name / "pids.max").write_text(f"{most}\n")
        (tmp_path / "groups" / name / "pids.current").write_text(f"{current}\n")
    lines: list[str] = []
    started: list[object] = []
    monkeypatch.setattr(resource_limits, "_OWN_GROUPS", str(tmp_path / "own"))
    monkeypatch.setattr(resource_limits, "_GROUPS", str(tmp_path / "groups"))
    monkeypatch.setattr(server, "say", lines.append)
    monkeypatch.setattr(server._thread, "start_new_thread", lambda *given: started.append(given))
    one.start_when(lambda: True)

    assert resource_limits._threads() == left
    assert bool(started) == (left >= resource_limits._NEEDED)
    assert [line.partition(" more")[0] for line in lines] == ([] if started else [f"only {left}"])


def test_where_few_files_may_be_opened_there_is_no_server(one: server.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they were used up after the thread had begun to wait. gRPC would end the process."""
    lines: list[str] = []
    monkeypatch.setattr(server, "say", lines.append)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 50, hard))
    try:
        one._start_once()
        one.start_when(lambda: True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert one._port is None
    assert len(lines) == 2
    pattern = r"only \d\d more files may be opened here \(ulimit -n\): JAX gets no profiler server"
    assert all(re.fullmatch(pattern, line) for line in lines)


@pytest.mark.parametrize(("megabytes", "enough"), [(100, False), (100_000, True)])
def test_where_little_memory_may_be_mapped_there_is_no_server(
    monkeypatch: pytest.MonkeyPatch, megabytes: int, enough: bool
) -> None:
    """Each of gRPC's threads takes some, and the process ends where one cannot start."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    real = resource.getrlimit
    limits = {resource.RLIMIT_AS: (used + megabytes * 1_000_000, -1)}
    monkeypatch.setattr(resource_limits.resource, "getrlimit", lambda which: limits.get(which) or real(which))

    assert ("MB more memory may be mapped here (ulimit -v)" in str(resource_limits.lacking())) != enough


@pytest.mark.parametrize(("most", "said"), [(60, True), (19_000, False)])
def test_where_a_user_may_start_few_threads_there_is_no_server(tmp_path: Path, most: int, said: bool) -> None:
    """Those that run count, with the threads of this process."""
    program = f"""
import ctypes, os, resource, sys, threading
sys.path.append({str(HOOK)!r})
from tpumon_attach import resource_limits
if os.getuid() == 0:
    os.setuid(54321)
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: as a process is that did not change its user
over = threading.Event()
for _ in range(9): threading.Thread(target=over.wait).start()
resource.setrlimit(resource.RLIMIT_NPROC, ({most}, {most}))
print(resource_limits.lacking())
over.set()
"""
    found = re.fullmatch(r"only (\d+) more threads may start here \(ulimit -u\)\n", run(tmp_path, program).stdout)
    assert (found is not None) == said
    assert found is None or int(found[1]) <= 50


def test_the_thread_that_waits_is_none_of_the_programs(tmp_path: Path) -> None:
    """A program may wait for all threads of its own, and trace them; ours may wait for as long as the program runs."""
    program = f"""
import os, sys, threading
sys.path.append({str(HOOK)!r})
os.environ["TPUMON_ATTACH"] = "0"
from tpumon_attach.server import Server
asked = threading.Lock()
asked.acquire()
def is_ready():
    if asked.locked(): asked.release()
    return False
threading.settrace(lambda frame, *_: print("traced", frame.f_code.co_name))
Server("JAX", lambda port: None).start_when(is_ready)
asked.acquire()
print([thread.name for thread in threading.enumerate()])
"""
    done = run(tmp_path, program)
    assert (done.stdout, done.stderr, done.returncode) == ("['MainThread']\n", "", 0)


@pytest.mark.parametrize("broken", ["listens_here", "_lock"])
def test_the_programs_own_server_starts_once_whatever_fails(
    one: server.Server, said: list[str], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(ports, "listens_here", fail)
    if broken == "_lock":
        monkeypatch.setattr(one, "_lock", None)
    started: list[int] = []

    def start(port: int) -> str:
        started.append(port)
        return "the program's"

    assert one.of_program(start, str)(1234) == "the program's"
    assert started == [1234]
    assert said


def test_what_the_framework_raises_is_unchanged(one: server.Server, said: list[str]) -> None:
    error = ValueError("Only one profiler server can be active at a time.")
    called: list[int] = []

    def start(port: int) -> None:
        called.append(port)
        raise error

    with pytest.raises(ValueError, match="Only one") as raised:
        one.of_program(start, str)(1)
    assert raised.value is error
    assert called == [1]
    assert said == []


class Session:
    def __init__(self, *_options: object) -> None:
        self.stopped = 0

    def stop(self) -> None:
        self.stopped += 1
        raise AttributeError("gone")


def test_a_trace_begins_whatever_fails(said: list[str]) -> None:
    """First it cannot be asked whether somebody traces, then the session cannot be ended."""
    answers: list[Callable[[], bool]] = [lambda: False, fail, fail]

    def is_tracing() -> bool:
        return answers.pop(0)()

    sessions = profiler_sessions.Sessions(Session, is_tracing)

    assert sessions.begin().stopped == 0
    assert len(said) == 2


def test_what_a_session_raises_is_for_the_program() -> None:
    """A wrong option, for example."""
    sessions = profiler_sessions.Sessions(fail, lambda: False)
    with pytest.raises(RuntimeError, match=r"^ours$"):
        sessions.begin("option")


def test_an_error_that_cannot_be_explained_is_the_frameworks(said: list[str]) -> None:
    """And the program gets it as well if the framework cannot be made to forget the session."""

    class NativeError(RuntimeError):
        def __init__(self, code: int, text: str) -> None:
            super().__init__(f"{code} {text}")

    error = NativeError(6, "Another profiling session active.")

    def stop() -> None:
        raise error

    with pytest.raises(NativeError) as raised:
        profiler_sessions.healing(stop, fail)()
    assert raised.value is error
    assert len(said) == 2


def test_a_step_that_cannot_be_marked_is_a_step(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_mark", fail)
    marks.step(1)

    assert list(marks.steps("abc")) == ["a", "b", "c"]
    assert len(said) == 1


# Forks.


def test_a_fork_does_not_keep_the_turn(one: server.Server, tmp_path: Path) -> None:
    """A child that lives long, forked while a port is chosen; it would hold up all other processes of the user."""
    child_end, parent_end = os.pipe()
    forked, in_child = os.pipe()
    with announcement.turn():
        child = os.fork()
        if child == 0:
            os.close(parent_end)
            os.write(in_child, b"x")
            os.read(child_end, 1)
            os._exit(0)
        os.read(forked, 1)
    try:
        folder = os.open(announcement._folder(), os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if somebody has it
        os.close(folder)
    finally:
        for descriptor in (parent_end, child_end, forked, in_child):
            os.close(descriptor)
        assert os.waitpid(child, 0)[1] == 0


def test_a_child_closes_no_descriptor_of_the_job(one: server.Server) -> None:
    """After the turn, its number is another file's."""
    with announcement.turn():
        pass
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os._exit(os.write(writer, b"x") - 1)
    assert os.waitpid(child, 0)[1] == 0
    os.close(writer)
    assert os.read(reader, 1) == b"x"
    os.close(reader)


def test_what_the_thread_does_imports_nothing(tmp_path: Path) -> None:
    """A child that is forked meanwhile would wait for ever for the lock of the module."""
    program = f"""
import os, socket, sys
sys.path.append({str(HOOK)!r})
import tpumon_attach.server
from tpumon_attach import announcement, messages, resource_limits
before = set(sys.modules)
with announcement.turn(): announcement.announce(1, "JAX")
resource_limits.lacking()
messages.say("said")
print(sorted(set(sys.modules) - before))
"""
    done = run(tmp_path, program)
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "tpumon: said\n", 0)


def test_stderr_is_known_from_the_start() -> None:
    """By device and inode."""
    found = os.fstat(1)
    assert messages._file_of(1) == (found.st_dev, found.st_ino)
    assert messages._file_of(10**6) is None

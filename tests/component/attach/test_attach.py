"""What runs in a job's own process, without the frameworks: how it gets there, and how it keeps sessions apart."""

from __future__ import annotations

import ast
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.run import environment
from support import free_port
from support.modules import imports

with pytest.MonkeyPatch.context() as patch:
    patch.setenv("TPUMON_ATTACH", "0")  # this process itself is not to be attached
    from tpumon.attach import HOOK

from tpumon_attach import announcement, marks, messages, ports, profiler_sessions, server

FILES = sorted(HOOK.rglob("*.py"))
REFUSED = "ALREADY_EXISTS: Another profiling session active."


def python(tmp_path: Path, program: str, *, hook: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a Python of its own, with the hook or without."""
    for name in ("home", "run"):
        (tmp_path / name).mkdir(exist_ok=True)
    path = [str(HOOK)] if hook else []
    path += [more.pop("PYTHONPATH")] if "PYTHONPATH" in more else []
    env = {**environment(tmp_path), "PYTHONPATH": ":".join(path), "PYTHONDONTWRITEBYTECODE": "1", **more}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, cwd=tmp_path)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_runs_in_the_python_of_the_job(file: Path) -> None:
    """The syntax of 3.9, and nothing but the standard library: the job's Python is not ours."""
    ast.parse(file.read_text(), feature_version=(3, 9))
    allowed = {*sys.stdlib_module_names, "tpumon_attach"}
    assert not [what for _, what in imports(file) if what.split(".")[0] not in allowed]


# How it gets there.


def test_a_program_sees_nothing_of_it(tmp_path: Path) -> None:
    """The same search path, finders but one, and no module called sitecustomize if there is none."""
    program = (
        "import sys, threading; print(sys.path, sys.argv, threading.active_count(), [str(type(f)) for f in "
        "sys.meta_path if type(f).__module__ != 'tpumon_attach.imports']); import importlib.util; "
        "print(importlib.util.find_spec('sitecustomize'))"
    )
    with_hook, without = python(tmp_path, program), python(tmp_path, program, hook=False)

    assert (with_hook.stdout, with_hook.stderr, with_hook.returncode) == (without.stdout, without.stderr, 0)


@pytest.mark.parametrize("content", ["print('mine', __name__, __file__)", "raise ValueError('mine')"])
def test_the_users_own_sitecustomize_runs(tmp_path: Path, content: str) -> None:
    """As if it were the only one, its error included; it is what `import sitecustomize` finds."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(content)
    program = "import sys; print(getattr(sys.modules.get('sitecustomize'), '__file__', None), 'end')"
    with_hook = python(tmp_path, program, PYTHONPATH=str(own))
    without = python(tmp_path, program, PYTHONPATH=str(own), hook=False)

    assert (with_hook.stdout, with_hook.stderr, with_hook.returncode) == (without.stdout, without.stderr, 0)
    assert "mine" in with_hook.stdout + with_hook.stderr


def test_it_is_switched_off(tmp_path: Path) -> None:
    done = python(tmp_path, "import sys; print('tpumon_attach' in sys.modules)", TPUMON_ATTACH="0")
    assert done.stdout == "False\n"


def test_a_failure_of_ours_is_one_line(tmp_path: Path) -> None:
    """The program runs on."""
    copy = tmp_path / "hook"
    (copy / "tpumon_attach").mkdir(parents=True)
    (copy / "sitecustomize.py").write_text((HOOK / "sitecustomize.py").read_text())
    (copy / "tpumon_attach" / "__init__.py").write_text("1 / 0")
    done = python(tmp_path, "print('runs')", hook=False, PYTHONPATH=str(copy))

    assert (done.stdout, done.returncode) == ("runs\n", 0)
    assert done.stderr == "tpumon: not attached: ZeroDivisionError: division by zero\n"


MODULES = {
    "jax/__init__.py": "from jax._src import xla_bridge, profiler",
    "jax/_src/__init__.py": "",
    "jax/version.py": "__version__ = '99.1'",
    "jax/_src/xla_bridge.py": "",
    "jax/_src/profiler.py": "import jax.version\nprint('executed', __spec__.loader.__dict__.get('exec_module'))",
}


def test_a_version_that_is_not_known_is_left_alone(tmp_path: Path) -> None:
    """With one line for each thing that it lacks; the modules are what they would be."""
    for name, content in MODULES.items():
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / name).write_text(content)
    program = (
        "import jax, sys; m = sys.modules['jax._src.profiler']; "
        "print(type(m.__loader__).__name__, sorted(m.__loader__.__dict__), sorted(n for n in vars(m) if n[:2] != '__'))"
    )
    with_hook = python(tmp_path, program, PYTHONPATH=str(tmp_path / "own"))
    without = python(tmp_path, program, PYTHONPATH=str(tmp_path / "own"), hook=False)

    assert (with_hook.stdout, with_hook.returncode) == (without.stdout, 0)
    assert "executed None" in with_hook.stdout
    assert with_hook.stderr.count("\n") == with_hook.stderr.count("is not known") == 2
    assert "jax 99.1 is not known" in with_hook.stderr


def test_asking_for_a_module_is_not_importing_it(tmp_path: Path) -> None:
    """Programs look whether a framework is installed; nothing acts on that, and nothing is said."""
    (tmp_path / "own" / "torch_xla").mkdir(parents=True)
    (tmp_path / "own" / "torch_xla" / "__init__.py").write_text("")
    (tmp_path / "own" / "torch_xla" / "runtime.py").write_text("import no_such_module")
    program = "import importlib.util as u; print(u.find_spec('torch_xla.runtime') is not None, u.find_spec('jax'))"
    done = python(tmp_path, program, PYTHONPATH=str(tmp_path / "own"))

    assert (done.stdout, done.stderr) == ("True None\n", "")


# Sessions.


class Process:
    """A process with one profiling session at a time, as JAX's: a refused session fails when it is ended."""

    def __init__(self, sample_looks: float, *, traces_host: bool = True) -> None:
        self.sample_looks = sample_looks  # how often the sample is still seen
        self.traces_host = traces_host  # both by the sample and by the owner
        self.active: Session | None = None
        self.begun = 0

    def is_tracing(self) -> bool:
        self.sample_looks -= 1
        return self.traces_host and (self.sample_looks > 0 or self.active is not None)

    def begin(self) -> Session:
        self.begun += 1
        return Session(self)


class Session:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.refused = process.sample_looks > 0 or process.active is not None
        if not self.refused:
            process.active = self

    def stop(self) -> None:
        if self.refused:
            raise RuntimeError(REFUSED)
        self.process.active = None


@pytest.mark.parametrize("traces_host", [True, False])
@pytest.mark.parametrize("looks", [0, 1, 2, 5])
def test_a_trace_waits_for_the_sample(looks: int, traces_host: bool) -> None:
    """And has begun when it returns, also where neither traces the host, as on a TPU."""
    process = Process(looks, traces_host=traces_host)
    session = profiler_sessions.Sessions(process.begin, process.is_tracing).begin()

    assert process.active is session
    session.stop()


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Of a session without end there is one line, and the trace is what it would have been."""
    monkeypatch.setattr(profiler_sessions, "PATIENCE_S", 0.02)
    monkeypatch.setattr(messages, "_stderr", messages._file_of(2))  # pytest has put a file there
    process = Process(float("inf"))
    sessions = profiler_sessions.Sessions(process.begin, process.is_tracing)

    with pytest.raises(RuntimeError, match="ALREADY_EXISTS"):
        sessions.begin().stop()
    assert capfd.readouterr().err.count("the trace that this program begins now will be lost") == 1


def test_what_cannot_be_asked_is_left_alone() -> None:
    """That is found out when the program is attached, not when it traces itself."""

    def is_tracing() -> bool:
        raise TypeError("other arguments")

    with pytest.raises(TypeError):
        profiler_sessions.Sessions(object, is_tracing)


def test_after_a_lost_trace_the_next_can_begin() -> None:
    """The error keeps its kind and its words, and says what happened."""
    forgotten = []

    class FrameworkError(RuntimeError):
        pass

    def stop_trace(session: str) -> None:
        """Ends it."""
        raise FrameworkError(REFUSED if session == "lost" else "disk full")

    stop = profiler_sessions.healing(stop_trace, forgotten.append)
    assert stop.__doc__ == "Ends it."
    with pytest.raises(FrameworkError, match=r"Another profiling session active.*this trace is lost"):
        stop("lost")
    with pytest.raises(FrameworkError, match=r"^disk full$"):
        stop("other")
    assert forgotten == ["lost"]


# The server.


class FakeServers:
    """A framework that starts servers: which ports were asked for."""

    def __init__(self) -> None:
        self.started: list[int] = []

    def start(self, port: int) -> object:
        self.started.append(port)
        return f"server on {port}"


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeServers:
    monkeypatch.setattr(server, "_servers", [])
    monkeypatch.setattr(announcement, "_announced", None)
    monkeypatch.setattr(ports, "listens_here", lambda _port: True)
    monkeypatch.setenv("TPUMON_ATTACH_DIR", str(tmp_path))
    monkeypatch.setenv("TPUMON_ATTACH_PORT", str(free_port()))
    return FakeServers()


def test_the_program_may_start_its_own_where_ours_is(servers: FakeServers) -> None:
    """It then has ours; a second call is the framework's again."""
    one = server.Server("JAX", servers.start)
    one._start_once()
    (port,) = servers.started
    start_server = one.of_program(servers.start, lambda ours: f"adopted {ours}")

    assert start_server(port) == f"adopted server on {port}"
    assert servers.started == [port]
    assert start_server(port=1) == "server on 1"


def test_if_the_program_was_first_there_is_no_other(servers: FakeServers, tmp_path: Path) -> None:
    one = server.Server("JAX", servers.start)
    assert one.of_program(servers.start, str)(1234) == "server on 1234"
    one._start_once()

    assert servers.started == [1234]
    (file,) = (tmp_path / f"tpumon-run-{os.geteuid()}").iterdir()
    assert file.name.endswith(f"-{os.getpid()}")
    assert file.read_text().split()[1:] == ["1234", "JAX"]


def test_a_call_that_fails_changes_nothing(servers: FakeServers, tmp_path: Path) -> None:
    """The server that was there is the one that is announced."""
    one = server.Server("JAX", servers.start)
    one._start_once()

    def refuse(port: int) -> None:
        raise ValueError("Only one profiler server can be active at a time.")

    with pytest.raises(ValueError, match="Only one"):
        one.of_program(refuse, str)(1)
    (file,) = (tmp_path / f"tpumon-run-{os.geteuid()}").iterdir()
    assert file.read_text().split()[1] == str(servers.started[0])


def test_one_framework_has_the_server(servers: FakeServers) -> None:
    """TensorFlow feeds a JAX program: only JAX's server is started."""
    jax, tensorflow = server.Server("JAX", servers.start), server.Server("TensorFlow", servers.start)
    assert not tensorflow._is_first()
    assert jax._is_first()
    jax._start_once()
    assert tensorflow._is_first()
    tensorflow._start_once()

    assert len(servers.started) == 1


def test_taken_ports_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("TPUMON_ATTACH_PORT", str(port))
        assert port not in itertools.islice(ports.candidates(), 1)
        assert ports.listens_here(port)
    assert not ports.listens_here(port)


@pytest.mark.parametrize("given", ["", "0", "x", "tcp://10.0.0.1:80", "65536", "99999999"])
def test_a_port_that_is_none_is_the_usual_one(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes sets such a variable to an address in every pod for a service called tpumon-attach."""
    monkeypatch.setenv("TPUMON_ATTACH_PORT", given)
    monkeypatch.setattr(ports, "_is_free", lambda _port: True)
    assert next(ports.candidates()) == ports.USUAL_PORT


# Steps.


def test_without_a_framework_steps_are_nothing() -> None:
    """The items come as they are."""
    marks.step(3)
    assert list(marks.steps("abc")) == ["a", "b", "c"]


def test_each_step_ends_where_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the loop is left early."""
    seen: list[str] = []

    class Mark:
        def __init__(self, name: str, step_num: int) -> None:
            self.number = step_num

        def __enter__(self) -> None:
            seen.append(f"begin {self.number}")

        def __exit__(self, *error: object) -> None:
            seen.append(f"end {self.number}")

    class Profiler:
        StepTraceAnnotation = Mark

    monkeypatch.setitem(sys.modules, "jax.profiler", Profiler)
    for item in (loop := marks.steps("abc", first=5)):
        if item == "b":
            break
    loop.close()
    marks.step(9)
    marks._end()

    assert seen == ["begin 5", "end 5", "begin 6", "end 6", "begin 9", "end 9"]

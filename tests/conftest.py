"""What holds for every test: it does not notice what else runs on the host, nor how it was started; golden files."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from support import own_network, virtual_time
from support.golden import GOLDEN, Golden
from tpumon.system import console

# How long an example takes is the machine's business; no test here times code.
# Where others wait for the result, the examples are the same each time; elsewhere new ones are tried.
hypothesis.settings.register_profile(
    "tpumon", deadline=None, max_examples=50, derandomize=os.environ.get("CI") == "true"
)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("tpumon")

_UNSET_VARIABLES = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PYTHONUNBUFFERED")
_DESELECTED = pytest.StashKey[bool]()
_GOLDEN_TEST = re.compile(r"^def test_\w+\([^)]*\bgolden\b", re.MULTILINE)
_GOLDEN = pytest.StashKey[Golden]()
_COMPLETE = pytest.StashKey[bool]()
_STALE = pytest.StashKey[list[str]]()


def _undo_ignored_signals() -> None:
    """Lets the programs that tests start receive signals that this session was started to ignore.

    `nohup` and a shell's `&` start a command with signals ignored, which its children inherit. They do not inherit a
    handler, so one that does nothing restores the default for them while the session itself still ignores the signal.
    """
    of_python = {signal.SIGPIPE, signal.SIGXFSZ}  # it ignores these itself, and restores them for its children
    for number in signal.valid_signals() - of_python:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())  # blocked ones are inherited, too


def _forget_settings() -> None:
    """Removes settings that are meant for the caller's own programs: of tpumon, terminal and proxy; the zone is UTC."""
    for name in list(os.environ):
        if name.startswith("TPUMON_") or name.lower().endswith("_proxy") or name in _UNSET_VARIABLES:
            del os.environ[name]
    # A pause of this host is no pause of the jobs of tests, and what others trace is none of theirs.
    directory = tempfile.mkdtemp(prefix="tpumon-tests-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    os.environ["TPUMON_PAUSE_DIR"] = directory
    os.environ["TPUMON_CONFIG"] = ""  # nor is somebody's configuration that of tests
    os.environ["TZ"] = "UTC"
    time.tzset()


_undo_ignored_signals()
_forget_settings()
console.set_up()
_shared_network = own_network.enter()


def pytest_report_header() -> str | None:
    """Says so if others are on the network of the tests."""
    return None if _shared_network is None else f"the network is shared with this host's programs: {_shared_network}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the flag that rewrites golden files."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the files in tests/golden/ instead of comparing with them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Makes what the fixture `golden` gives."""
    config.stash[_GOLDEN] = Golden(update=config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def _hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for those of all tests: pytest looks through its own whenever it makes one in it."""
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(autouse=True)
def _ledger_of_its_own(monkeypatch: pytest.MonkeyPatch, _hosts: Path) -> None:
    """Has no test pay for what another one has traced at the same port."""
    monkeypatch.setenv("TPUMON_PAUSE_DIR", tempfile.mkdtemp(dir=_hosts))


@pytest.fixture(autouse=True)
def _lines_of_its_own() -> Iterator[None]:
    """Has no test read what a program's thread still had to print in the one before."""
    yield
    console.flush(5)
    console.set_up()  # it may have become verbose


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The messages of tpumon from now on, but for where it listens."""
    lines: list[str] = []

    def take(line: str) -> None:
        if not line.startswith("listening on "):
            lines.append(line)

    with console.shown_by(take, alone=False):
        yield lines


@pytest.fixture
def quiet(said: list[str]) -> Iterator[None]:
    """Fails the test if it makes tpumon say something."""
    yield
    assert said == []


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares texts with the files in tests/golden/: `golden.check("help/serve.txt", text)`."""
    return request.config.stash[_GOLDEN]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine, in virtual time if it is marked so."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    run = virtual_time.run if pyfuncitem.get_closest_marker("virtual_time") else asyncio.run
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes over what the tests in another process have compared."""
    told = getattr(node, "workeroutput", {}).get("golden")  # a process that died tells nothing
    if told:
        node.config.stash[_GOLDEN].take(told["checked"], told["changed"])
        node.config.stash[_COMPLETE] = told["complete"]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fails the session if a golden file was compared by no test, though all of them ran."""
    config, golden = session.config, session.config.stash[_GOLDEN]
    complete = config.stash.get(_COMPLETE, False) or _all_golden_tests_ran(session)
    if hasattr(config, "workeroutput"):  # one of several processes
        told = {"checked": list(golden.checked), "changed": golden.changed, "complete": complete}
        config.workeroutput["golden"] = told
    elif complete and golden.checked and exitstatus == pytest.ExitCode.OK and (stale := golden.stale()):
        config.stash[_STALE] = stale
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the golden files that were written or removed, and those that nothing compares."""
    stash = terminalreporter.config.stash
    for name in stash[_GOLDEN].changed:
        terminalreporter.write_line(f"updated: tests/golden/{name}")
    if stale := stash.get(_STALE, None):
        names = ", ".join(stale)
        terminalreporter.write_line(f"no test compares {names} in tests/golden; run pytest --update-golden", red=True)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Notes that not all tests of golden files run, whatever the reason: `-k`, `-m`, `--lf`, `--deselect`."""
    for item in items:
        if "golden" in getattr(item, "fixturenames", ()):
            item.session.stash[_DESELECTED] = True


def _all_golden_tests_ran(session: pytest.Session) -> bool:
    """Tells if every golden file must have been compared by now, here or in another process of this session."""
    collected = {item.path for item in session.items}
    return (
        all(path in collected for path in GOLDEN.parent.rglob("test_*.py") if _GOLDEN_TEST.search(path.read_text()))
        and not session.stash.get(_DESELECTED, False)
        and not any("::" in argument for argument in session.config.args)
    )

"""`tpumon run`: its command line, and the environment that it makes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import tpumon
from tpumon.cli.commands.run import _environment, attached, run
from tpumon.cli.process import command_of
from tpumon.errors import TpumonError, UsageError

HOOK = str(Path(tpumon.__file__).parent / "attach" / "pythonpath")


def given(program: list[str], port: int | None = None, *, monitor: bool = False) -> dict[str, Any]:
    return {"program": program, "port": port, "monitor": monitor, "monitor_file": None}


def settings(*words: str) -> dict[str, Any]:
    value: dict[str, Any] = command_of(["run", *words]).keywords  # type: ignore[attr-defined]
    return value


@pytest.mark.parametrize(
    ("words", "program", "port"),
    [
        (["--monitor", "--port", "1", "x", "--monitor"], ["x", "--monitor"], 1),
        (["python", "train.py", "--port", "1", "-h"], ["python", "train.py", "--port", "1", "-h"], None),
        (["--", "-odd-name", "--"], ["-odd-name", "--"], None),
        (["--port", "9001", "--", "python", "-m", "trainer"], ["python", "-m", "trainer"], 9001),
        (["--port=9001", "python", "--", "x"], ["python", "--", "x"], 9001),
        (["x", "--service_addr=a", "--display_timestamp"], ["x", "--service_addr=a", "--display_timestamp"], None),
        (["x", "--help", "--version", ""], ["x", "--help", "--version", ""], None),
    ],
)
def test_what_follows_the_program_is_the_programs(words: list[str], program: list[str], port: int | None) -> None:
    assert settings(*words) == given(program, port, monitor=words[0] == "--monitor")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "argument 'PROGRAM"),
        (["--"], "argument 'PROGRAM"),
        (["--port", "1"], "argument 'PROGRAM"),
        (["--port"], "'--port' requires an argument"),
        (["--port=", "x"], "^--port : give a whole number of at least 1 and at most 65535$"),
        (["--port", "0", "x"], "^--port 0: give a whole number of at least 1"),
        (["--prot=1", "x"], "--prot"),
        (["--monitor-file"], "'--monitor-file' requires an argument"),
    ],
)
def test_a_command_line_that_starts_nothing_is_an_error(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        settings(*words)


@pytest.mark.parametrize("executable", [False, True])
@pytest.mark.parametrize(("script", "interpreter"), [("train.py", "python"), ("train.sh", "bash")])
def test_a_script_without_its_interpreter_is_met_with_a_command_that_works(
    executable: bool,
    script: str,
    interpreter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By its name, which is no program, or by its path, which may not be executed."""
    monkeypatch.chdir(tmp_path)
    Path(script).touch()
    name = f"./{script}" if executable else script
    assert run(program=[name]) == (126 if executable else 127)
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN, "a message that nobody reads would end this process"
    assert f"; to run the script: tpumon run {interpreter} {name}" in capsys.readouterr().err


def test_a_file_for_figures_that_cannot_be_written_is_named_with_its_option(tmp_path: Path) -> None:
    with pytest.raises(TpumonError, match=f"^--monitor-file {tmp_path}: Is a directory; give a file that can be "):
        run(program=["true"], monitor_file=str(tmp_path))


@pytest.mark.parametrize(("text", "port"), [("9001", 9001), ("", None), ("tcp://10.0.0.1:80", None)])
def test_a_variable_gives_the_port(text: str, port: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes sets it to an address in every pod if a service is called tpumon. What is typed comes first."""
    monkeypatch.setenv("TPUMON_PORT", text)
    assert settings("x") == given(["x"], port)
    assert settings("--port", "1", "x") == given(["x"], 1)


@pytest.mark.parametrize("given", ["0", "x", "65536", "99999999"])
def test_a_variable_with_no_port_is_an_error(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUMON_PORT", given)
    with pytest.raises(UsageError, match=r"^TPUMON_PORT=.*: give a whole number"):
        settings("x")


def test_what_is_meant_for_other_commands_does_not_stop_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a wrong variable nor a wrong file."""
    (tmp_path / "config.toml").write_text("no-such-option = 1")
    monkeypatch.setenv("TPUMON_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("TPUMON_NUM_QUERIES", "x")
    assert settings("x") == given(["x"])


@pytest.mark.parametrize("program", [["x"], ["python", "-h"], ["--port", "1", "x", "--version"]])
def test_a_misspelled_variable_is_named_and_stops_no_program(
    program: list[str], monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """As for each other command; not beside a page of help."""
    monkeypatch.setenv("TPUMON_INTERVALL", "5")
    assert settings(*program)["program"][-1] == program[-1]
    assert said == ["TPUMON_INTERVALL is no variable of tpumon; did you mean TPUMON_INTERVAL?"]
    said.clear()
    assert command_of(["run", "--help"])() == 0
    assert command_of(["--help", "run", "x"])() == 0
    assert said == []


def test_the_environment_is_the_users_own_but_for_the_hook() -> None:
    """An empty entry of PYTHONPATH would be the current directory: there is none that was not there."""
    assert attached({"A": "1"}, None) == {"A": "1", "PYTHONPATH": HOOK}
    assert attached({"PYTHONPATH": ""}, None) == {"PYTHONPATH": HOOK}
    assert attached({"PYTHONPATH": "/a::/b"}, 1234) == {"PYTHONPATH": f"{HOOK}:/a::/b", "TPUMON_ATTACH_PORT": "1234"}
    assert attached({"TPUMON_ATTACH": "0", "B": "2"}, 1234) == {"TPUMON_ATTACH": "0", "B": "2"}


def test_the_directory_on_the_path_hides_no_module_of_the_program() -> None:
    """Everything in there would hide one that has its name."""
    names = {path.name for path in Path(HOOK).iterdir()}
    assert names - {"__pycache__"} == {"sitecustomize.py", "tpumon_attach"}


def test_the_monitor_has_what_is_not_meant_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither options, nor how the job's Python is to behave, nor what would attach it."""
    theirs = {"TPUMON_FROM": "x", "TPUMON_ATTACH_PORT": "1", "PYTHONWARNINGS": "error", "PYTHONINSPECT": "1"}
    ours = {"TPUMON_PAUSE_DIR": "/p", "TPUMON_ATTACH_DIR": "/a", "TPUMON_DEBUG": "1", "PYTHONHOME": "/h", "A": "1"}
    monkeypatch.setattr(os, "environ", {**theirs, **ours})
    assert _environment() == {**ours, "TPUMON_ATTACH": "0", "TPUMON_CONFIG": ""}

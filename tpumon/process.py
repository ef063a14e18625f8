"""Runs the command line; the only place that prints errors and chooses the exit status."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, cast

from tpumon import __version__
from tpumon.system.signals import StoppedError, stop_on_signals

_SHOWING = frozenset({"--help", "-h", "--version"})
_FLUSH_S = 0.5
_MESSAGES_S = 2.0  # stderr may be a pipe that is never read


def main() -> None:
    """Runs the command line that this process was started with, and ends it."""
    patience_s = None  # a slow reader of stdout gets everything
    try:
        stop_on_signals()  # before the rest is loaded, so that an early Ctrl-C prints no traceback either
        status = _run(sys.argv[1:])
    except StoppedError as stopped:
        status, patience_s = stopped.exit_status, _FLUSH_S
    _leave(status, patience_s)


def _leave(status: int, patience_s: float | None) -> NoReturn:
    """Ends the process now: a thread that reads a big trace, or waits for a disk, must not delay the exit.

    Args:
        status: the exit status.
        patience_s: how long to wait for the readers of stdout and stderr; None: as long as stdout's takes, 2 s for
            stderr's.
    """
    with contextlib.suppress(StoppedError):
        flushing = threading.Thread(target=_flush, daemon=True)
        flushing.start()
        flushing.join(patience_s)
    os._exit(status)


def _flush() -> None:
    from tpumon.system import console

    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    if console.flush(_MESSAGES_S):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()


def _run(arguments: list[str]) -> int:
    from tpumon.errors import TpumonError
    from tpumon.system.console import say

    _prepare_streams()
    try:
        command = _command(arguments)
        status = command()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader is done. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except TpumonError as error:
        say(str(error))
        return error.exit_status
    except OSError as error:
        say(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
        return 1
    except Exception as error:
        if os.environ.get("TPUMON_DEBUG"):
            raise
        say(f"a bug in tpumon: {type(error).__name__}: {error}; please report it; TPUMON_DEBUG=1 shows the traceback")
        return 1
    return status


def _prepare_streams() -> None:
    """Makes stdout and stderr usable: closed ones discard what is written, odd encodings do not raise."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - stays open
        else:
            stream.reconfigure(errors="replace")


def _command(arguments: list[str]) -> Callable[[], int]:
    """Returns what the command line asks for, to be called.

    Typer only parses: run by it, a command would have its signals and broken pipes handled Typer's way.

    Raises:
        UsageError: the command line is wrong.
    """
    if arguments[:1] == ["run"]:
        from tpumon.commands import run

        settings = run.parse(arguments[1:])
        if settings is not None:
            return partial(run.run, settings)

    if arguments == ["--version"]:  # the parser, which knows it too, takes ten times as long to load
        return _show_version

    from typer.core import TyperGroup
    from typer.main import get_command

    from tpumon.cli import app
    from tpumon.command_line.config_file import read_config
    from tpumon.command_line.legacy import translate
    from tpumon.errors import UsageError
    from tpumon.system.console import say

    # Kubernetes sets this to an address in every pod if a service is called tpumon.
    if os.environ.get("TPUMON_PORT", "").startswith("tcp://"):
        del os.environ["TPUMON_PORT"]
    translated, notes = translate(arguments)
    for note in notes:
        say(note)
    group = cast("TyperGroup", get_command(app))
    config = {} if _SHOWING.intersection(translated) else read_config(group)
    _prepare_completion()
    try:
        command = group.main(translated, prog_name="tpumon", standalone_mode=False, default_map=config)
    except Exception as error:
        if not hasattr(error, "format_message"):  # only the parser's own errors have this
            raise
        path = getattr(getattr(error, "ctx", None), "command_path", "tpumon")
        raise UsageError(f"{_explanation(error, group)} (see {path} --help)") from error
    return cast("Callable[[], int]", command) if callable(command) else lambda: 0


def _show_version() -> int:
    sys.stdout.write(f"tpumon {__version__}\n")
    return 0


def _prepare_completion() -> None:
    """Lets the parser answer a shell that asks how a command line may go on (`tpumon completion`)."""
    if "_TPUMON_COMPLETE" in os.environ:
        from typer import completion

        completion.completion_init()  # type: ignore[attr-defined]


def _explanation(error: Any, group: Any) -> str:
    """What the parser found wrong, in our words where its own are long-winded."""
    if hasattr(error, "possibilities"):
        return _nearest(error.option_name, error.possibilities or [])
    option, message = getattr(error, "param", None), getattr(error, "message", "").rstrip(".")
    if option is None or not message:
        return _without_option(error, group)
    source = error.ctx.get_parameter_source(option.name) if error.ctx is not None else None
    name = option.opts[0]
    if source is not None and source.name == "ENVIRONMENT":
        name = option.envvar
    elif source is not None and source.name == "DEFAULT_MAP":
        from tpumon.command_line.config_file import given_in_file

        name = given_in_file(option)
    given, found, _ = message.partition(" is not ")
    if found and (numbers := _numbers(getattr(option, "type", None))):
        return f"{name} must be {numbers}, not {given}"
    return f"{name} {message}"


def _without_option(error: Any, group: Any) -> str:
    """An error that names no option, or one whose value is missing, or a command that does not exist."""
    explanation: str = error.format_message().rstrip(".")
    if "requires an argument" in explanation:
        options = [one for command in (group, *group.commands.values()) for one in command.params]
        metavar = next((one.metavar for one in options if error.option_name in one.opts), None)
        return f"{error.option_name} requires a value: {metavar or 'see its help'}"
    if match := re.fullmatch(r"No such command '([^']+)'.*", explanation):
        return explanation[:1].lower() + explanation[1:] + _hint_for(match[1])
    return explanation[:1].lower() + explanation[1:]


def _hint_for(word: str) -> str:
    """What someone may have meant by a word that is no command."""
    if re.match(r"https?://", word):
        return f"; to show an exporter: tpumon --from {word}"
    if re.fullmatch(r"(grpc://)?(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d+(-\d+)?(,.*)?", word):
        return f"; to watch a worker: tpumon --service-addr {word}; to show an exporter: tpumon --from {word}"
    if word.endswith(".xplane.pb"):
        return f"; to show a profile's figures: tpumon analyze {word}"
    if re.fullmatch(r".*\.jsonl(\.gz)?", word) or os.path.isdir(word):  # noqa: PTH112 - Path is not loaded yet
        return f"; to show recorded samples: tpumon --from {word}"
    return ""


def _numbers(kind: Any) -> str | None:
    """The numbers that an option takes; None if it takes something else."""
    least, most = getattr(kind, "min", None), getattr(kind, "max", None)
    if least is None:
        return None
    number = "a whole number" if isinstance(least, int) and "int" in kind.name else "a number"
    return f"{number} of {least} or more" if most is None else f"{number} from {least} to {most}"


def _nearest(unknown: str, possibilities: Sequence[str]) -> str:
    import difflib  # here: few command lines are wrong

    near = difflib.get_close_matches(unknown.replace("_", "-"), possibilities, n=1)
    return f"no such option: {unknown}" + (f"; did you mean {near[0]}?" if near else "")

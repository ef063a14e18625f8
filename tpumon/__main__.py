"""Runs the command line; the only place that prints an error and chooses the exit status."""

from __future__ import annotations

import difflib
import os
import sys
from typing import cast

from tpumon.background import StoppedError, stop_on_signals
from tpumon.cli import app
from tpumon.commands.console import say
from tpumon.errors import TpumonError
from tpumon.legacy import translate


def main() -> None:
    """Entry point of the `tpumon` script."""
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        stop_on_signals()
        translated, notes = translate(arguments)
        for note in notes:
            say(note)
        # Typer only parses: run under it, a command would have its signals and broken pipes handled Typer's way.
        command = app(translated, prog_name="tpumon", standalone_mode=False)
        status = cast("int", command()) if callable(command) else 0
        sys.stdout.flush()
    except StoppedError as stopped:
        return stopped.exit_status
    except BrokenPipeError:
        # The reader has what it wanted. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except TpumonError as error:
        say(str(error))
        return error.exit_status
    except Exception as error:  # noqa: BLE001 - the last line of defence against tracebacks
        return _unexpected(error)
    return status


def _unexpected(error: Exception) -> int:
    """Usage errors that the option parser found, and bugs."""
    explain = getattr(error, "format_message", None)
    if explain is not None:
        unknown = getattr(error, "option_name", None)
        words = _nearest(unknown, error) if unknown else explain().rstrip(".")
        say(f"{words} (see tpumon --help)")
        return int(getattr(error, "exit_code", 2))
    if os.environ.get("TPUMON_DEBUG"):
        raise error
    say(f"a bug in tpumon: {type(error).__name__}: {error}; TPUMON_DEBUG=1 shows where; please report it")
    return 1


def _nearest(unknown: str, error: Exception) -> str:
    near = difflib.get_close_matches(unknown.replace("_", "-"), getattr(error, "possibilities", None) or [], n=1)
    return f"no such option: {unknown}" + (f"; did you mean {near[0]}?" if near else "")


if __name__ == "__main__":
    main()

"""Runs the command line; the only place that prints an error and chooses the exit status."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn, cast

from tpumon.system.signals import StoppedError, stop_on_signals

_FLUSH_S = 0.5


def main() -> None:
    """Entry point of the `tpumon` script."""
    patience_s = None  # a reader that is slow gets all there is
    try:
        stop_on_signals()  # before the rest is loaded, so that an early Ctrl-C is no traceback either
        status = _run(sys.argv[1:])
    except StoppedError as stopped:
        status, patience_s = stopped.exit_status, _FLUSH_S
    _leave(status, patience_s)


def _leave(status: int, patience_s: float | None) -> NoReturn:
    """Ends the process now: a thread that reads a big trace, or waits for a disk, must not hold up the way out.

    Args:
        status: what the process ends with.
        patience_s: how long to wait for the readers of stdout and stderr; None: as long as they take.
    """
    with contextlib.suppress(StoppedError):
        flushing = threading.Thread(target=_flush, daemon=True)
        flushing.start()
        flushing.join(patience_s)
    os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _run(arguments: list[str]) -> int:
    from tpumon.commands.console import say
    from tpumon.errors import TpumonError

    _prepare_streams()
    try:
        status = _command(arguments)()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has what it wanted. Python would complain once more when it flushes at exit.
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
        say(f"a bug in tpumon: {type(error).__name__}: {error}; TPUMON_DEBUG=1 shows where; please report it")
        return 1
    return status


def _prepare_streams() -> None:
    """Makes stdout and stderr usable: closed ones swallow, odd encodings do not raise."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - stays open
        else:
            stream.reconfigure(errors="replace")


def _command(arguments: list[str]) -> Callable[[], int]:
    """What the command line asks for.

    Typer only parses: under it, a command would have its signals and broken pipes handled Typer's way.

    Raises:
        UsageError: it asks for nothing that can be done.
    """
    from tpumon.cli import app
    from tpumon.commands.console import say
    from tpumon.errors import UsageError
    from tpumon.legacy import translate

    # Kubernetes puts such an address there for every pod beside a service that is called tpumon.
    if os.environ.get("TPUMON_PORT", "").startswith("tcp://"):
        del os.environ["TPUMON_PORT"]
    translated, notes = translate(arguments)
    for note in notes:
        say(note)
    try:
        command = app(translated, prog_name="tpumon", standalone_mode=False)
    except Exception as error:
        explain = getattr(error, "format_message", None)  # the parser's own errors have it, whatever their class
        if explain is None:
            raise
        unknown = getattr(error, "option_name", None)
        words = _nearest(unknown, error) if unknown else explain().rstrip(".")
        raise UsageError(f"{words} (see tpumon --help)") from error
    return cast("Callable[[], int]", command) if callable(command) else lambda: 0


def _nearest(unknown: str, error: Exception) -> str:
    near = difflib.get_close_matches(unknown.replace("_", "-"), getattr(error, "possibilities", None) or [], n=1)
    return f"no such option: {unknown}" + (f"; did you mean {near[0]}?" if near else "")


if __name__ == "__main__":
    main()

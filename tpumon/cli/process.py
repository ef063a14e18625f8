"""Runs the command line; the only place that prints errors and chooses the exit status."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, cast

from tpumon.system.signals import StoppedError, stop_on_signals

if TYPE_CHECKING:
    from tpumon.errors import UsageError

_log = logging.getLogger(__name__)

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
    from tpumon.errors import TpumonError, UsageError
    from tpumon.system import console

    _prepare_streams()
    console.set_up()
    try:
        command = command_of(arguments)
        status = command()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader is done. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UsageError as error:
        _log.error("%s%s", error, _set_by(arguments, error))
        for other in error.others:
            _log.error("%s", other)
        return error.exit_status
    except TpumonError as error:
        _log.error("%s", error)
        return error.exit_status
    except OSError as error:
        _log.error("%s", f"{error.filename}: {error.strerror}" if error.filename else error.strerror or error)
        return 1
    except Exception as error:
        if os.environ.get("TPUMON_DEBUG"):
            raise
        _log.error(
            "a bug in tpumon: %s: %s; please report it; TPUMON_DEBUG=1 shows the traceback", type(error).__name__, error
        )
        return 1
    return status


def _set_by(arguments: list[str], error: UsageError) -> str:
    """The variable or key of the configuration file that an error is about; empty: none."""
    import typer.main

    from tpumon.cli.app import app
    from tpumon.cli.config_file import set_by_words

    return set_by_words(typer.main.get_group(app), arguments, error)


def _prepare_streams() -> None:
    """Makes stdout and stderr usable: closed ones discard what is written, odd encodings do not raise."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - stays open
        else:
            stream.reconfigure(errors="replace")


def command_of(arguments: list[str]) -> Callable[[], int]:
    """Returns what the command line asks for, to be called outside of Typer, which handles broken pipes its own way.

    Raises:
        UsageError: the command line is wrong.
    """
    import typer

    from tpumon.cli.app import app
    from tpumon.cli.completion import join_options
    from tpumon.cli.group import explanation
    from tpumon.errors import UsageError

    join_options()
    try:
        command = app(args=arguments, prog_name="tpumon", standalone_mode=False)
    except typer.TyperException as error:
        raise UsageError(explanation(error, arguments)) from error
    except SystemExit as ended:  # how Typer ends where the reader of its help went away
        if isinstance(ended.__context__, BrokenPipeError):
            raise BrokenPipeError from None
        raise
    return cast("Callable[[], int]", command) if callable(command) else lambda: 0

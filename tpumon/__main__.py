"""Entry point."""

from __future__ import annotations

import contextlib
import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - a checkout can be run by any Python
    found = ".".join(map(str, sys.version_info[:3]))
    sys.exit("tpumon: needs Python 3.11 or newer; " + sys.executable + " is Python " + found)


def main() -> None:
    """Entry point of the `tpumon` script."""
    if sys.argv[1:2] == ["run"]:
        _leave_out_working_directory()
    from tpumon.cli import process

    process.main()


def _leave_out_working_directory() -> None:
    """Imports nothing from a program's directory, which an empty entry of PYTHONPATH, often a slip, names."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    with contextlib.suppress(OSError):  # it was removed
        sys.path[:] = [place for place in sys.path if place == package or place not in {"", os.getcwd()}]  # noqa: PTH109


if __name__ == "__main__":
    main()

"""Entry point."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - a checkout can be run by any Python
    found = ".".join(map(str, sys.version_info[:3]))
    sys.exit("tpumon: needs Python 3.11 or newer; " + sys.executable + " is Python " + found)


def main() -> None:
    """Entry point of the `tpumon` script."""
    from tpumon import process

    process.main()


if __name__ == "__main__":
    main()

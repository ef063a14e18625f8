"""Prints the table of all fleets, or of some kinds: `PYTHONPATH=tests python -m support.fleets [KIND ...]`."""

from __future__ import annotations

import multiprocessing
import sys

from support.fleets.catalogue import KINDS
from support.fleets.table import Row, markdown, rows_of, wrong


def _rows(kind: str) -> list[Row]:
    return [row for fleet in KINDS[kind]() for row in rows_of(fleet)]


def main() -> None:
    """Prints it, and then what is wrong, fleet by fleet."""
    with multiprocessing.Pool() as pool:
        rows = [row for each in pool.imap_unordered(_rows, sys.argv[1:] or KINDS, chunksize=1) for row in each]
    print(len({row.fleet for row in rows}), "fleets\n")
    print(markdown(rows))
    for row in wrong(rows):
        print(f"- {row.result}: {row.finding} of [{row.kind}] {row.fleet}: {row.detail}")


if __name__ == "__main__":
    main()

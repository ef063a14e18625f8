"""Processes that read traces, for tests: a trace with one of these marks takes all the time or memory it may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tpumon.xspace
from tpumon.sources import readers
from tpumon.xspace import reading

ENDLESS, HUNGRY = "takes for ever", "takes all memory"

_read_trace = tpumon.xspace.read_trace


def _odd(xspace: bytes) -> Any:
    kept = []
    while ENDLESS.encode() in xspace:
        pass
    while HUNGRY.encode() in xspace:
        kept.append(bytearray(1 << 20))
    return _read_trace(xspace)


@contextmanager
def odd_readers() -> Iterator[None]:
    """Traces are read by such processes."""
    usual = readers._pools
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_PROGRAM", "support.odd_reading")
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        patch.setattr(readers, "_pools", {nice: readers._Pool(nice) for nice in (0, *usual)})
        try:
            yield
        finally:
            for pool in readers._pools.values():
                pool.end_all()


if __name__ == "__main__":
    tpumon.xspace.read_trace = _odd
    reading.main()

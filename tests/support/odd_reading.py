"""Processes that read traces, for tests: a trace with one of these marks takes all the time or memory it may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from tpumon.sources import readers
from tpumon.xspace import reading
from tpumon.xspace.profile import top_ops

ENDLESS, HUNGRY = "takes for ever", "takes all memory"

_read_figures = top_ops.read_figures


def _odd(xspace: memoryview | FileIO, most_ops: int) -> Any:
    kept, small = [], bytes(xspace) if isinstance(xspace, memoryview) else b""  # a large one is a file, without a mark
    while ENDLESS.encode() in small:
        pass
    while HUNGRY.encode() in small:
        kept.append(bytearray(1 << 20))
    return _read_figures(xspace, most_ops)


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
    top_ops.read_figures = _odd
    reading.main()

"""Processes that read traces, for tests: a trace with one of these marks takes all the time or memory it may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tpumon.collection.sources.traces import readers
from tpumon.errors import SourceError
from tpumon.xspace import reader_process as reading
from tpumon.xspace import trace_figures
from tpumon.xspace.trace_figures import TraceFigures

ENDLESS, HUNGRY = "takes for ever", "takes all memory"

_read_figures = trace_figures.read_figures


def _odd(xspace: bytes, most_ops: int) -> Any:
    kept = []
    while ENDLESS.encode() in xspace:
        pass
    while HUNGRY.encode() in xspace:
        kept.append(bytearray(1 << 20))
    return _read_figures(xspace, most_ops)


class VirtualReaderPool:
    """As `readers.ReaderPool`, in virtual time.

    Args:
        count: how many traces are read at the same time.
        takes_s: how long a trace takes.
        result: of every trace that takes no longer than it may.
        cpu_s: how long that is.
    """

    def __init__(
        self, count: int, takes_s: Callable[[bytes], float], result: TraceFigures, *, cpu_s: float = 1.0
    ) -> None:
        self.cpu_s = cpu_s
        self.given_up = 0
        self._free = asyncio.Semaphore(count)
        self._takes_s = takes_s
        self._result = result

    async def read(self, xspace: bytes, _ops: int) -> tuple[TraceFigures, float]:
        async with self._free:
            took_s = self._takes_s(xspace)
            await asyncio.sleep(min(took_s, self.cpu_s))
            if took_s > self.cpu_s:
                self.given_up += 1
                raise SourceError("too-large", "given up")
            return self._result, took_s


def _refuse(*_args: object, **_options: object) -> None:
    raise OSError


@contextmanager
def own_readers(*, cpu_s: float) -> Iterator[None]:
    """Traces are read by processes of this test alone, with such a limit."""
    own = {
        "QUICK": (2, readers.ReaderPool(2, cpu_s=cpu_s, nice=0)),
        "SLOW": (1, readers.ReaderPool(1, cpu_s=cpu_s, nice=10)),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, (_, these) in own.items():
            patch.setattr(readers, name, these)
        try:
            yield
        finally:
            patch.setattr(readers.own_python, "start", _refuse)
            for count, these in own.values():
                for _ in range(count):  # those that still read come back; who waited for one finds none
                    if (process := these._free.get(timeout=60)) is not None:
                        readers._end(process)
                for _ in range(count):
                    these._free.put(None)


@contextmanager
def odd_readers(*, cpu_s: float = 0.3) -> Iterator[None]:
    """Traces are read by processes that obey marks."""
    with pytest.MonkeyPatch.context() as patch, own_readers(cpu_s=cpu_s):
        patch.setattr(readers, "_PROGRAM", "support.odd_reading")
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        yield


if __name__ == "__main__":
    trace_figures.read_figures = _odd
    reading.main()

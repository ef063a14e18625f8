"""Processes that read traces: one whose trace takes too much time or memory is ended and replaced.

No library does this: in Pebble's ProcessPool an idle worker that is killed ends the whole pool, one that hangs before
it takes a task is never ended, and Ctrl-C while one starts prints tracebacks; in loky, one dead worker fails the tasks
of all, and workers stay behind when the parent ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import queue
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from tpumon.collection.sources.traces.slots import QUICK_BYTES
from tpumon.errors import SourceError
from tpumon.system import own_python
from tpumon.system.limits import give_back_memory, memory_limit_bytes
from tpumon.system.threads import in_thread

if TYPE_CHECKING:
    from tpumon.xspace.trace_figures import TraceFigures

_CPU_S_PER_MB = 0.1  # beside the limit of the readers; ordinary traces take less
_WALL_S = 60.0  # beyond that: for a process that waits for the processor, or hangs
_MEMORY_PER_BYTE = 8  # three times what an ordinary trace takes
_MOST_MEMORY = 0.15  # of the machine's, for each trace that is being read
_PROGRAM = "tpumon.xspace.reader_process"


class ReaderPool:
    """A fixed number of processes that read traces; each is started when it is first needed.

    Args:
        count: how many traces are read at the same time, at most.
        cpu_s: processor time for one trace, besides what grows with its size.
        nice: how much more than this process they yield to others.
    """

    def __init__(self, count: int, *, cpu_s: float, nice: int) -> None:
        self.cpu_s = cpu_s
        self._nice = nice
        self._free: queue.LifoQueue[subprocess.Popen[bytes] | None] = queue.LifoQueue()
        for _ in range(count):
            self._free.put(None)

    async def read(self, xspace: bytes | memoryview, ops: int = 0) -> tuple[TraceFigures, float]:
        """Reads a trace in one of the processes; waits until one is free.

        Args:
            xspace: a serialized XSpace.
            ops: how many top operations are wanted.

        Returns:
            its figures, and the processor time that they took, in seconds.

        Raises:
            SourceError: as `read_figures`; `too-large`, reading takes longer or more memory than allowed; `internal`,
                no process can be started.
        """
        return await in_thread(lambda: self._read(xspace, ops), timeout_s=None)

    def end(self) -> None:
        """Ends all idle processes; a busy one ends when its stdin ends. No process starts again."""
        with contextlib.suppress(queue.Empty):
            while True:
                if (process := self._free.get_nowait()) is not None:
                    _end(process)

    def _read(self, xspace: bytes | memoryview, ops: int) -> tuple[TraceFigures, float]:
        process = self._free.get()
        try:
            if process is None or process.poll() is not None:
                process = self._replaced(process)
            result, took_cpu_s = self._ask(process, xspace, ops)
        except BaseException:
            if process is not None:
                _end(process)
            raise
        finally:
            self._free.put(process)
        if isinstance(result, tuple):
            raise SourceError(*result)
        return result, took_cpu_s  # type: ignore[return-value]

    def _replaced(self, process: subprocess.Popen[bytes] | None) -> subprocess.Popen[bytes]:
        """Starts a process, in place of one that has ended, for example because the system ran out of memory."""
        if process is not None:
            _end(process)
        try:
            # In a session of its own: Ctrl-C on a terminal is this process's to handle.
            started = own_python.start(
                [_PROGRAM],
                {**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            message = f"cannot start a process that reads traces: {error.strerror or error}"
            raise SourceError("internal", message) from error
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, started.pid, os.getpriority(os.PRIO_PROCESS, 0) + self._nice)
        return started

    def _ask(self, process: subprocess.Popen[bytes], xspace: bytes | memoryview, ops: int) -> tuple[object, float]:
        """Sends a trace to a process, and returns its answer. Ends the process if that takes too long."""
        assert process.stdin is not None
        assert process.stdout is not None
        cpu_s = self.cpu_s + _CPU_S_PER_MB * len(xspace) / 1e6
        memory = int(min(_MEMORY_PER_BYTE * len(xspace), _MOST_MEMORY * memory_limit_bytes()))
        start_s = time.monotonic()
        watchdog = threading.Timer(_WALL_S + cpu_s, process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            pickle.dump((cpu_s, memory, ops), process.stdin)
            pickle.dump(pickle.PickleBuffer(xspace), process.stdin, protocol=5)
            process.stdin.flush()
            if len(xspace) > QUICK_BYTES:
                give_back_memory()  # what receiving it took
            answer: tuple[object, float] = pickle.load(process.stdout)  # noqa: S301 - ours
        except (EOFError, OSError, pickle.UnpicklingError):
            raise _failure(process, len(xspace), time.monotonic() - start_s) from None
        finally:
            watchdog.cancel()
        return answer


def _failure(process: subprocess.Popen[bytes], size: int, took_s: float) -> SourceError:
    """The error to raise for a process that ended instead of answering."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        if process.wait(1.0) > 0:  # negative: ended by a signal, as all limits do
            return SourceError("internal", "the process that reads traces does not start")
    message = (
        f"reading this trace of {size / 1e6:.1f} MB was given up after {took_s:.1f} s: it takes too long or too much "
        "memory; ask for a shorter window"
    )
    return SourceError("too-large", message)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process, whatever it does."""
    process.kill()
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # what it did not read
            stream.close()  # type: ignore[union-attr]
    process.wait()


QUICK = ReaderPool(2, cpu_s=0.5, nice=0)
"""For usual traces."""

SLOW = ReaderPool(1, cpu_s=1.0, nice=10)
"""For traces that are large, or took QUICK too long."""

atexit.register(QUICK.end)
atexit.register(SLOW.end)

"""Processes that read traces. A trace costs this process nothing but the passing on of its bytes.

A thread that reads a hostile trace cannot be stopped, and holds up all others meanwhile; a process can be ended.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from tpumon.errors import SourceError
from tpumon.system import own_python
from tpumon.system.memory import file_in_memory, give_back_memory, give_back_memory_soon
from tpumon.system.threads import in_thread
from tpumon.xspace.reading import LARGE_BYTES, REQUEST, RESULT

if TYPE_CHECKING:
    from tpumon.sources.sharing import Lane
    from tpumon.xspace import TraceFigures

_CPU_S_PER_MB = 0.1  # beside what the lane gives; ordinary traces take less
_WALL_S = 60.0  # beyond: for a process that waits for the processor, or hangs
_MEMORY_PER_BYTE = 8  # three times what an ordinary trace takes
_MOST_RESULT_BYTES = 32 << 20
_MOST_IDLE = 2
_PROGRAM = "tpumon.xspace.reading"


async def read(xspace: bytes | memoryview, lane: Lane, ops: int = 0) -> tuple[TraceFigures, float]:
    """The figures of a trace, from a process that reads it, and how many seconds of processor time that took.

    Args:
        xspace: a serialized XSpace.
        lane: whose traces wait for each other.
        ops: how many top operations are wanted.

    Raises:
        SourceError: as `read_trace`; `too-large`, reading takes longer or more memory than the lane allows; `internal`,
            no process can be started, or the trace cannot be handed to it.
    """
    pool = _pools.setdefault(lane.nice, _Pool(lane.nice))
    cpu_s = lane.cpu_s + _CPU_S_PER_MB * len(xspace) / 1e6
    async with lane.reader(), lane.reading.hold(_MEMORY_PER_BYTE * len(xspace)) as held:
        try:
            return await in_thread(lambda: pool.read(xspace, ops, cpu_s=cpu_s, memory=held.amount), timeout_s=None)
        finally:
            give_back_memory_soon()


def warm_up() -> None:
    """Starts a process if there is none, so that it is ready when the first trace comes; returns at once."""
    if _pools[0].is_cold:
        threading.Thread(target=_pools[0].warm_up, name="tpumon-warm-up", daemon=True).start()


class _Reader:
    """One process, and the file in memory from which it reads traces: a pipe would take 2 ms more for a usual one.

    Args:
        nice: how much it yields to others.
    """

    def __init__(self, nice: int) -> None:
        with contextlib.ExitStack() as stack:
            self._trace = stack.enter_context(file_in_memory())
            # In a session of its own: Ctrl-C on a terminal is this process's to handle.
            self._process = own_python.start(
                [_PROGRAM, str(self._trace.fileno())],
                {**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[self._trace.fileno()],
                start_new_session=True,
            )
            stack.pop_all()
        if nice:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, nice)

    def read(self, xspace: bytes | memoryview, ops: int, *, cpu_s: float, memory: int) -> tuple[object, float]:
        """What it makes of a trace, and the processor time that this took, in seconds.

        Raises:
            EOFError: the process ended, or was ended because it took too long.
            OSError: the trace cannot be handed to it.
        """
        assert self._process.stdin is not None
        self._hand_over(xspace)
        until_s = time.monotonic() + _WALL_S + cpu_s
        try:
            self._process.stdin.write(REQUEST.pack(cpu_s, memory, ops))
            size, took_cpu_s = RESULT.unpack(self._received(RESULT.size, until_s))
            if size > _MOST_RESULT_BYTES:
                raise EOFError
            result = pickle.loads(self._received(size, until_s))  # noqa: S301 - ours
        except OSError as error:
            raise EOFError from error
        if len(xspace) > LARGE_BYTES:
            os.ftruncate(self._trace.fileno(), 0)
        return result, took_cpu_s

    def _hand_over(self, xspace: bytes | memoryview) -> None:
        file, left = self._trace.fileno(), memoryview(xspace)
        while left:  # with its place: the process moves the position that both share
            left = left[os.pwrite(file, left, len(xspace) - len(left)) :]
        os.ftruncate(file, len(xspace))
        if len(xspace) > LARGE_BYTES:
            give_back_memory()  # what receiving it took

    def _received(self, size: int, until_s: float) -> bytearray:
        """So many bytes that the process writes."""
        assert self._process.stdout is not None
        stdout = self._process.stdout.fileno()
        ready, data = select.poll(), bytearray()
        ready.register(stdout, select.POLLIN)
        while len(data) < size:
            if not ready.poll(1000 * max(until_s - time.monotonic(), 0)):
                self._process.kill()
                raise EOFError
            piece = os.read(stdout, size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone, for example because the system ended it when memory ran out."""
        return self._process.poll() is not None

    @property
    def failed(self) -> bool:
        """Whether it ended by itself, which it should not; waits a moment for its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(1.0) > 0  # negative: by a signal
        return False

    def end(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout, self._trace):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()


def _why(error: OSError) -> str:
    return error.strerror or str(error)


class _Pool:
    """The processes that wait for a trace, at most two; more are started as they are needed.

    Args:
        nice: how much they yield to others.
    """

    def __init__(self, nice: int) -> None:
        self._nice = nice
        self._idle: list[_Reader] = []
        self._all: set[_Reader] = set()
        self._lock = threading.Lock()

    @property
    def is_cold(self) -> bool:
        """Whether there is no process yet."""
        return not self._all

    def warm_up(self) -> None:
        """Starts a process if there is none."""
        if self.is_cold:
            with contextlib.suppress(OSError):  # said when a trace is to be read
                self._put_back(self._take())

    def read(self, xspace: bytes | memoryview, ops: int, *, cpu_s: float, memory: int) -> tuple[TraceFigures, float]:
        """Reads a trace in so much processor time and memory at most; blocks."""
        try:
            reader = self._take()
        except OSError as error:
            message = f"cannot start a process that reads traces: {_why(error)}"
            raise SourceError("internal", message) from error
        start_s = time.monotonic()
        try:
            result, took_cpu_s = reader.read(xspace, ops, cpu_s=cpu_s, memory=memory)
        except EOFError:
            failed = reader.failed
            self._end(reader)
            if failed:
                raise SourceError("internal", "the process that reads traces does not start") from None
            took_s = time.monotonic() - start_s
            message = (
                f"reading this trace of {len(xspace) / 1e6:.1f} MB was given up after {took_s:.1f} s: it takes too "
                "long or too much memory; ask for a shorter window"
            )
            raise SourceError("too-large", message) from None
        except OSError as error:
            self._end(reader)
            message = (
                f"cannot hand this trace of {len(xspace) / 1e6:.1f} MB to the process that reads it: {_why(error)}"
            )
            raise SourceError("internal", message) from error
        except BaseException:
            self._end(reader)
            raise
        self._put_back(reader)
        if isinstance(result, tuple):
            raise SourceError(*result)
        return result, took_cpu_s  # type: ignore[return-value]

    def _take(self) -> _Reader:
        while (idle := self._idle_one()) is not None:
            if not idle.has_ended:
                return idle
            self._end(idle)
        reader = _Reader(self._nice)
        with self._lock:
            self._all.add(reader)
        return reader

    def _idle_one(self) -> _Reader | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _put_back(self, reader: _Reader) -> None:
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(reader)
                return
        self._end(reader)

    def _end(self, reader: _Reader) -> None:
        with self._lock:
            self._all.discard(reader)
        reader.end()

    def end_all(self) -> None:
        """Ends all processes, those that read included."""
        with self._lock:
            readers, self._all, self._idle = self._all, set(), []
        for reader in readers:
            reader.end()


_pools = {0: _Pool(0)}


@atexit.register
def _end_all() -> None:
    for pool in _pools.values():
        pool.end_all()

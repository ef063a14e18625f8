"""A process that reads traces, one after the other: serialized XSpaces in a file, their figures on stdout.

Its parent may end it at any moment. Each trace may take so much processor time and memory and no more: whatever a
trace is like, it holds nobody else up. `tpumon.sources.readers` starts it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import resource
import signal
import struct
import sys
import time
from io import FileIO
from pathlib import Path

from tpumon.errors import SourceError
from tpumon.system.memory import give_back_memory, reuse_memory
from tpumon.text import one_line

REQUEST = struct.Struct("<dQQ")
"""To read the trace that is in the file now: the processor time that this may take in seconds, the memory in bytes, and
how many top operations are wanted."""

RESULT = struct.Struct("<Qd")
"""Before a result: its bytes, and the processor time it took in seconds. It is a pickled TraceFigures, or the reason
and message of a SourceError."""

LARGE_BYTES = 8_000_000
"""Traces beyond this size are read piece by piece, and are worth giving their memory back."""

_OWN_BYTES = 256 << 20  # what the process takes without any trace, generously


def main() -> None:
    """Reads the trace in the file of this descriptor (first argument) for each request on stdin, until that ends."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out after all, this process goes first
    reuse_memory()
    import tpumon.xspace.profile.top_ops  # noqa: F401 - before any limit holds

    # Not buffered: a buffer would keep bytes of the trace before.
    with os.fdopen(int(sys.argv[1]), "rb", buffering=0) as file:
        mapped = memoryview(b"")
        while request := sys.stdin.buffer.read(REQUEST.size):
            cpu_s, memory, ops = REQUEST.unpack(request)
            start_s = time.process_time()
            _limit(cpu_s, memory)
            size = os.fstat(file.fileno()).st_size
            mapped = _mapped(file, size, mapped)
            result = pickle.dumps(_result(mapped[:size] if size <= len(mapped) else file, ops), protocol=5)
            signal.setitimer(signal.ITIMER_PROF, 0)
            sys.stdout.buffer.write(RESULT.pack(len(result), time.process_time() - start_s) + result)
            sys.stdout.buffer.flush()
            del result
            if size > LARGE_BYTES:
                give_back_memory()


def _limit(cpu_s: float, memory: int) -> None:
    # The signal's default action ends the process, also in the middle of a long operation of NumPy.
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (_OWN_BYTES + memory, hard))


def _mapped(file: FileIO, size: int, before: memoryview) -> memoryview:
    """The file's bytes without a copy, as a view; it may be longer than the file, and only `size` bytes may be touched.

    The view of before if that is long enough; also if the trace is large or the disk cannot map it.
    """
    if len(before) < size <= LARGE_BYTES:
        with contextlib.suppress(OSError):  # on a disk that cannot
            return memoryview(mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ))
    return before


def _result(xspace: memoryview | FileIO, ops: int) -> object:
    from tpumon.xspace.profile.top_ops import read_figures  # NumPy comes with it, which the parent does without

    try:
        return read_figures(xspace, ops)
    except SourceError as error:
        return error.reason, error.message
    except MemoryError:
        return "too-large", "reading this trace takes more memory than it may; ask for a shorter window"
    except Exception as error:  # noqa: BLE001 - a bug must not cost the process, nor read as a hostile trace
        return "internal", f"a bug in tpumon: {type(error).__name__}: {one_line(str(error))}"


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()

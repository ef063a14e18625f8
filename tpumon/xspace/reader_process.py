"""A process that reads traces, one after the other: serialized XSpaces on stdin, their figures on stdout.

Its parent may end it at any moment. Each trace may take only a certain amount of processor time and memory.
`tpumon.collection.sources.traces.readers` starts it.
"""

from __future__ import annotations

import contextlib
import pickle
import resource
import signal
import sys
import time
from pathlib import Path

from tpumon.errors import SourceError
from tpumon.untrusted_text import unexpected

_OWN_BYTES = 256 << 20  # what the process takes without any trace, generously


def main() -> None:
    """Reads traces until stdin ends.

    Each comes as two pickles: the limits (processor time in seconds, memory in bytes) with the number of top
    operations, then the bytes. The answer is one pickle: a TraceFigures, or the reason and message of a SourceError;
    and the processor time that it took, in seconds.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out after all, this process goes first
    import tpumon.xspace.trace_figures  # noqa: F401 - before any limit holds

    with contextlib.suppress(EOFError):
        while True:
            cpu_s, memory, ops = pickle.load(sys.stdin.buffer)  # noqa: S301 - ours
            start_s = time.process_time()
            _limit(cpu_s, memory)
            result = _result(pickle.load(sys.stdin.buffer), ops)  # noqa: S301
            signal.setitimer(signal.ITIMER_PROF, 0)
            pickle.dump((result, time.process_time() - start_s), sys.stdout.buffer)
            sys.stdout.buffer.flush()


def _limit(cpu_s: float, memory: int) -> None:
    # The signal's default action ends the process, also in the middle of a long operation of NumPy.
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (_OWN_BYTES + memory, hard))


def _result(xspace: bytes, ops: int) -> object:
    from tpumon.xspace.trace_figures import read_figures  # NumPy comes with it, which the parent does without

    try:
        return read_figures(xspace, ops)
    except SourceError as error:
        return error.reason, error.message
    except MemoryError:
        return "too-large", "reading this trace takes more memory than it may; ask for a shorter window"
    except Exception as error:  # noqa: BLE001 - a bug must not cost the process, nor read as a hostile trace
        return "internal", f"a bug in tpumon: {unexpected(error)}"


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()

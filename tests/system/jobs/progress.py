"""How a job tells the test about itself: lines on stdout, `READY` once it trains and serves, then its progress."""

from __future__ import annotations

import ctypes
import faulthandler
import signal
import time

PR_SET_PDEATHSIG = 1
REPORT_EVERY_S = 0.05


def die_with_parent() -> None:
    """Has the kernel kill this job when the test run ends in whatever way: a hung interpreter cannot do it itself."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # where it hangs, for the log


class Progress:
    """Prints `READY` at the first step and, about 20 times a second, `steps N` and when those ended: `ended T T`."""

    def __init__(self) -> None:
        self.steps = 0
        self._next_s = 0.0
        self._ended: list[str] = []

    def step_done(self) -> None:
        if self.steps == 0:
            print("READY", flush=True)
        self.steps += 1
        now_s = time.monotonic()
        self._ended.append(f"{time.time():.6f}")
        if now_s >= self._next_s:
            print(f"steps {self.steps}\nended {' '.join(self._ended)}", flush=True)
            self._ended.clear()
            self._next_s = now_s + REPORT_EVERY_S


def pace(step_started_s: float, step_ms: float) -> None:
    """Sleeps until the step has lasted `step_ms`."""
    rest_s = step_started_s + step_ms / 1000 - time.monotonic()
    if rest_s > 0:
        time.sleep(rest_s)

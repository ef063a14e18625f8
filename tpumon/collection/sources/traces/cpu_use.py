"""Whether the job's process computes, at no cost for it: where there is no device, nothing runs if it does not."""

from __future__ import annotations

import time
from collections.abc import Callable

HOST_CHECK_S = 0.2
"""A window in which a host without a device shows events, unless its job pauses or has an op under way."""

COMPUTES = "its process computes: so short a window need not show what runs"

_LEAST_S = 20.0  # from one measurement to the next: shorter, a pause between steps would be idle
_IDLE_CORES = 0.1  # a process that hangs still has threads that wake up now and then


class CpuUse:
    """Remembers the time that a process spent on the processors until it was last looked at.

    Args:
        cpu_s_of: that time of a process of this host; None: not known.
    """

    def __init__(self, cpu_s_of: Callable[[int], float | None]) -> None:
        self._cpu_s_of = cpu_s_of
        self._pid: int | None = None
        self._is_idle = False
        self._checked_s = self._cpu_s = 0.0

    def is_known(self, pid: int | None) -> bool:
        """True if a process says how much it computes."""
        return pid is not None and self._cpu_s_of(pid) is not None

    def is_idle(self, pid: int | None) -> bool:
        """True if the process has computed nothing lately; False, too, where that is not known."""
        cpu_s, now_s = None if pid is None else self._cpu_s_of(pid), time.monotonic()
        if cpu_s is None or pid != self._pid:
            self._pid = None if cpu_s is None else pid
            self._is_idle, self._checked_s, self._cpu_s = False, now_s, cpu_s or 0.0
        elif now_s - self._checked_s >= _LEAST_S:
            self._is_idle = cpu_s - self._cpu_s < _IDLE_CORES * (now_s - self._checked_s)
            self._checked_s, self._cpu_s = now_s, cpu_s
        return self._is_idle

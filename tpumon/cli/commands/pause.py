"""`tpumon pause`: no tpumon on this host samples for a while."""

from __future__ import annotations

from tpumon.errors import TpumonError, UsageError
from tpumon.model import LONGEST_WINDOW_S
from tpumon.quantities import seconds_of
from tpumon.system.console import show
from tpumon.system.pausing import LONGEST_S, current_pause, pause_for


def parse_duration(text: str) -> float:
    """Returns the seconds of `90`, `90s`, `10m` or `1.5h`; 0 ends a pause.

    Raises:
        UsageError: it is none of these, or longer than a day.
    """
    duration_s = seconds_of(text)
    if duration_s is None:
        raise UsageError(f"cannot pause for {text!r}; use a time such as 90s, 10m or 1.5h, or 0 to end a pause")
    if duration_s > LONGEST_S:
        raise UsageError(f"cannot pause for {text}: the maximum is {LONGEST_S / 3600:.0f}h")
    return duration_s


def run(duration_s: float) -> int:
    """Begins this user's pause, or ends it with 0, and prints the state of this host.

    Raises:
        TpumonError: the pause cannot be saved.
    """
    try:
        pause_for(duration_s)
    except OSError as error:
        raise TpumonError(f"cannot pause: {error.filename}: {error.strerror}") from error
    pause = current_pause()
    running = f"; a sample in progress may take {LONGEST_WINDOW_S:.0f} s more"
    show(f"sampling on this host is {pause}{running}" if pause else "sampling on this host is not paused")
    return 0

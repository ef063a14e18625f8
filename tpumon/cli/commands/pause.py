"""`tpumon pause`: no tpumon on this host samples for a while."""

from __future__ import annotations

import os
import time
from shlex import quote

from tpumon.errors import TpumonError, UsageError
from tpumon.model import LONGEST_WINDOW_S
from tpumon.quantities import Quantity
from tpumon.system.console import show
from tpumon.system.pausing import Pause, current_pause, pause_for

_DURATION = Quantity("time", "90s, 10m or 1h30m, or 0 to end a pause", most="24h", unit="s")

_MINUTES_S = 90.0


def parse_duration(text: str) -> float:
    """Returns the seconds of `90`, `90s`, `10m` or `1h30m`; 0 ends a pause.

    Raises:
        UsageError: it is none of these, or longer than a day.
    """
    try:
        return _DURATION.read(text.strip() or "''")
    except ValueError as error:
        raise UsageError(f"cannot pause for {error}") from None


def run(duration_s: float) -> int:
    """Begins this user's pause, or ends it with 0, and prints the state of this host.

    Raises:
        TpumonError: the pause cannot be saved.
    """
    try:
        pause_for(duration_s)
    except OSError as error:
        by_variable = bool(os.environ.get("TPUMON_PAUSE_DIR"))
        named = "; TPUMON_PAUSE_DIR is to name a directory that all users can write to" * by_variable
        raise TpumonError(f"cannot pause: {error.filename}: {error.strerror}{named}") from error
    pause = current_pause()
    if pause is None:
        show("sampling on this host is not paused")
        return 0
    left_s = pause.until_unix_s - time.time()
    left = f"{left_s / 60:.0f} min" if left_s >= _MINUTES_S else f"{left_s:.0f} s"  # 10 may have been meant as minutes
    more = f"a sample in progress may take {LONGEST_WINDOW_S:.0f} s more"
    if not duration_s:
        more = _who_ends(pause)
    show(f"sampling on this host is {pause}, for {left}; {more}")
    return 0


def _who_ends(pause: Pause) -> str:
    """Words for who can end the pause of another user, and by which command."""
    if pause.account == "root":
        return "only root can end that: `sudo tpumon pause 0`"
    command = f"`sudo -u {quote(pause.account)} tpumon pause 0`"
    return f"{command} ends that" if os.geteuid() == 0 else f"only {pause.who} can end that, or root: {command}"

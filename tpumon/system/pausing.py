"""Pauses every tpumon on this host, by files that expire: one per user.

The owner of a job runs `tpumon pause 10m` before profiling it: their profiler call fails if it overlaps a sample.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import time

from msgspec import Struct

from tpumon.system.host_files import HostFiles, boot, since_boot_s
from tpumon.system.threads import in_thread

LONGEST_S = 24 * 3600.0
"""The longest pause; a forgotten one ends by itself."""

_FILES = HostFiles("tpumon-pause-", most_of_one_user=10, most_bytes=200)
_FRESH_S = 0.5  # a sample in progress may take longer
_LOOK_S = 2.0
_LOOKING_RATIO = 0.05  # of a core, if the directory is full of files


class Pause(Struct, frozen=True, kw_only=True):
    """A pause in effect.

    Attributes:
        until_unix_s: when it ends.
        who: name of the user who started it.
        account: that user, as sudo takes it.
    """

    until_unix_s: float
    who: str
    account: str = ""

    def __str__(self) -> str:
        return f"paused by {self.who} until {time.strftime('%H:%M:%S', time.localtime(self.until_unix_s))}"


def pause_for(duration_s: float) -> Pause | None:
    """Pauses every tpumon on this host; 0 ends this user's own pause.

    Args:
        duration_s: how long, at most LONGEST_S.

    Returns:
        The new pause; None if it was ended.

    Raises:
        OSError: the file cannot be written.
    """
    older = _FILES.own()
    pause = _write(min(duration_s, LONGEST_S)) if duration_s > 0 else None
    for path in older:
        path.unlink(missing_ok=True)
    return pause


def _write(duration_s: float) -> Pause:
    until_unix_s = time.time() + duration_s
    _FILES.write(_FILES.new_path(), f"{until_unix_s:.3f} {since_boot_s() + duration_s:.3f} {boot()}\n")
    return _pause_of(os.getuid(), until_unix_s)


def current_pause() -> Pause | None:
    """The pause that lasts longest, of any user; None if there is none, or none can be read."""
    try:
        pauses = [pause for file in _FILES.listed() if (read := _FILES.read(file.path)) and (pause := _pause(*read))]
    except OSError:
        return None
    return max(pauses, key=lambda pause: pause.until_unix_s, default=None)


class PauseWatch:
    """`current_pause` for many workers: looked up in a thread, twice a second at most."""

    def __init__(self) -> None:
        self._look: asyncio.Task[None] | None = None
        self._next_s = float("-inf")
        self._pause: Pause | None = None

    async def __call__(self) -> Pause | None:
        """The pause in effect, if any; the last one known if the directory does not answer."""
        if self._look is None and time.monotonic() >= self._next_s:
            self._look = asyncio.create_task(self._update(), name="look for a pause")
        if self._look is not None:
            await asyncio.wait([self._look], timeout=_LOOK_S)
        return self._pause

    async def _update(self) -> None:
        started_s = time.monotonic()
        try:
            self._pause = await in_thread(current_pause, timeout_s=None)
        finally:
            now_s = time.monotonic()
            self._next_s = now_s + max(_FRESH_S, (now_s - started_s) / _LOOKING_RATIO)
            self._look = None


def _pause(text: str, uid: int) -> Pause | None:
    """The pause that a file's text asks for; None: none, or it is over."""
    try:
        left_s = _left_s(text.split())
    except ValueError:
        return None
    if left_s is None or not 0 < left_s <= LONGEST_S + 1:
        return None
    return _pause_of(uid, time.time() + left_s)


def _left_s(words: list[str]) -> float | None:
    """Seconds that a pause still lasts: since this boot by a clock that cannot be set, otherwise by the wall clock."""
    if len(words) >= 3 and words[2] == boot() != "-":
        return float(words[1]) - since_boot_s()
    return float(words[0]) - time.time() if words else None


def _pause_of(uid: int, until_unix_s: float) -> Pause:
    """The pause of a user, named by the system, as what a file says of its owner may be made up."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = ""
    if name and name.isprintable():
        return Pause(until_unix_s=until_unix_s, who=name, account=name)
    return Pause(until_unix_s=until_unix_s, who=f"user {uid}", account=f"#{uid}")

"""Pauses every tpumon on this host, by files that expire: one per user.

The owner of a job runs `tpumon pause 10m` before profiling it: their profiler call fails if it overlaps a sample.
"""

from __future__ import annotations

import getpass
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

LONGEST_S = 24 * 3600.0
"""The longest pause; a forgotten one ends by itself."""

_DIRECTORY = Path("/tmp")  # noqa: S108 - one place for all users, whatever their TMPDIR; _read copes with what others put there
_PREFIX = "tpumon-pause-"
_MOST_BYTES = 200
_FRESH_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause in effect.

    Attributes:
        until_unix_s: when it ends.
        who: name of the user who started it.
    """

    until_unix_s: float
    who: str

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
    path = _directory() / f"{_PREFIX}{os.getuid()}"
    if duration_s <= 0:
        path.unlink(missing_ok=True)
        return None
    pause = Pause(until_unix_s=time.time() + min(duration_s, LONGEST_S), who=_user())
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    os.fchmod(descriptor, 0o644)  # whatever the umask: every user must be able to read it
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{pause.until_unix_s:.3f} {pause.who}\n")
    new.replace(path)
    return pause


def current_pause() -> Pause | None:
    """The pause that ends last, of any user; None if there is none, or none can be read."""
    now_unix_s = time.time()
    try:
        paths = list(_directory().glob(f"{_PREFIX}*"))
    except OSError:
        return None
    pauses = [pause for path in paths if (pause := _read(path)) is not None]
    running = [pause for pause in pauses if now_unix_s < pause.until_unix_s <= now_unix_s + LONGEST_S + 1]
    return max(running, key=lambda pause: pause.until_unix_s, default=None)


class PauseWatch:
    """Caches `current_pause` for 0.1 s, for many workers that ask."""

    def __init__(self) -> None:
        self._looked_s = float("-inf")
        self._pause: Pause | None = None

    def __call__(self) -> Pause | None:
        """The current pause, if any."""
        if time.monotonic() - self._looked_s > _FRESH_S:
            self._looked_s = time.monotonic()
            self._pause = current_pause()
        return self._pause


def _directory() -> Path:
    return Path(os.environ.get("TPUMON_PAUSE_DIR") or _DIRECTORY)


def _read(path: Path) -> Pause | None:
    """Reads a pause file; None if invalid. Anyone can put anything there: a pipe, a link, a huge file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            until, _, who = file.read(_MOST_BYTES).decode("utf-8", "replace").strip().partition(" ")
        return Pause(until_unix_s=float(until), who=who if who.isprintable() and who else "someone")
    except (OSError, ValueError):
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"

"""A pause for every tpumon of this host: files that expire, one a user.

The owner of a job says `tpumon pause 10m` while they profile it themselves: their call would fail if it met a sample.
"""

from __future__ import annotations

import getpass
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

LONGEST_S = 24 * 3600.0
"""A forgotten or mistaken pause ends by itself."""

_DIRECTORY = Path("/tmp")  # noqa: S108 - one place for all users, whatever their TMPDIR; see _read for what it costs
_PREFIX = "tpumon-pause-"
_MOST_BYTES = 200
_FRESH_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Attributes:
    until_unix_s: when it ends.
    who: the user who asked for it.
    """

    until_unix_s: float
    who: str

    def __str__(self) -> str:
        return f"paused by {self.who} until {time.strftime('%H:%M:%S', time.localtime(self.until_unix_s))}"


def pause_for(duration_s: float) -> Pause | None:
    """Pauses every tpumon of this host from now on, or ends this user's own pause with 0.

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
    os.fchmod(descriptor, 0o644)  # whatever the umask: everyone is to see it
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{pause.until_unix_s:.3f} {pause.who}\n")
    new.replace(path)
    return pause


def current_pause() -> Pause | None:
    """The pause that lasts longest, of whichever user; None where there is none, or none can be read."""
    now_unix_s = time.time()
    try:
        paths = list(_directory().glob(f"{_PREFIX}*"))
    except OSError:
        return None
    found = [pause for path in paths if (pause := _read(path)) is not None]
    running = [pause for pause in found if now_unix_s < pause.until_unix_s <= now_unix_s + LONGEST_S + 1]
    return max(running, key=lambda pause: pause.until_unix_s, default=None)


class PauseWatch:
    """`current_pause`, looked up ten times a second at most, however many workers ask."""

    def __init__(self) -> None:
        self._looked_s = float("-inf")
        self._pause: Pause | None = None

    def __call__(self) -> Pause | None:
        """The pause that is on, if any."""
        if time.monotonic() - self._looked_s > _FRESH_S:
            self._looked_s = time.monotonic()
            self._pause = current_pause()
        return self._pause


def _directory() -> Path:
    return Path(os.environ.get("TPUMON_PAUSE_DIR") or _DIRECTORY)


def _read(path: Path) -> Pause | None:
    """What a file says; anyone may put anything there, so it is not trusted to be a file, short, or sensible."""
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

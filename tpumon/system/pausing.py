"""Pauses every tpumon on this host, by files that expire: one per user.

The owner of a job runs `tpumon pause 10m` before profiling it: their profiler call fails if it overlaps a sample.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from tpumon.system.threads import in_thread

LONGEST_S = 24 * 3600.0
"""The longest pause; a forgotten one ends by itself."""

_DIRECTORY = Path("/tmp")  # noqa: S108 - one place for all users, whatever their TMPDIR; what others put there is bounded
_PREFIX = "tpumon-pause-"
_MOST_BYTES = 200
_MOST_LISTED = 200_000
_MOST_READ = 1_000
_MOST_OF_ONE_USER = 10  # the newest; so nobody's files can keep another user's pause from being seen
_FRESH_S = 0.1
_LOOK_S = 2.0
_LOOKING_RATIO = 0.05  # of a core, where somebody has filled the directory


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
    directory = _directory()
    older = [
        Path(entry.path) for entry in _entries(directory) if entry.stat(follow_symlinks=False).st_uid == os.getuid()
    ]
    pause = _write(directory, min(duration_s, LONGEST_S)) if duration_s > 0 else None
    for path in older:
        path.unlink(missing_ok=True)
    return pause


def _write(directory: Path, duration_s: float) -> Pause:
    """Adds a file. Nobody can have put anything else there before: its name is random."""
    path = directory / f"{_PREFIX}{os.getuid()}-{secrets.token_hex(8)}"
    until_unix_s = time.time() + duration_s
    new = path.with_name(f".{path.name}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    os.fchmod(descriptor, 0o644)  # whatever the umask: every user must be able to read it
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{until_unix_s:.3f} {_since_boot_s() + duration_s:.3f} {_boot()}\n")
    new.replace(path)
    return Pause(until_unix_s=until_unix_s, who=_name_of(os.getuid()))


def current_pause() -> Pause | None:
    """The pause that lasts longest, of any user; None if there is none, or none can be read."""
    try:
        pauses = [pause for path in _candidates(_directory()) if (pause := _read(path)) is not None]
    except OSError:
        return None
    return max(pauses, key=lambda pause: pause.until_unix_s, default=None)


class PauseWatch:
    """`current_pause` for many workers: looked up in a thread, ten times a second at most."""

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


def _directory() -> Path:
    return Path(os.environ.get("TPUMON_PAUSE_DIR") or _DIRECTORY)


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    """The regular files that may be pauses."""
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.startswith(_PREFIX) and entry.is_file(follow_symlinks=False):
                    yield entry


def _candidates(directory: Path) -> list[Path]:
    """The files to read: of each owner the newest few."""
    by_owner: dict[int, list[tuple[int, str]]] = {}
    for entry in islice(_entries(directory), _MOST_LISTED):
        with suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            by_owner.setdefault(status.st_uid, []).append((status.st_mtime_ns, entry.path))
    paths = [Path(path) for of_one in by_owner.values() for _, path in sorted(of_one)[-_MOST_OF_ONE_USER:]]
    return paths[:_MOST_READ]


def _read(path: Path) -> Pause | None:
    """Reads a pause. Any user may put anything there: not a file, endless, or nonsense."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            left_s = _left_s(file.read(_MOST_BYTES).decode("utf-8", "replace").split())
    except (OSError, ValueError):
        return None
    if left_s is None or not 0 < left_s <= LONGEST_S + 1:
        return None
    return Pause(until_unix_s=time.time() + left_s, who=_name_of(status.st_uid))


def _left_s(words: list[str]) -> float | None:
    """Seconds that a pause still lasts: since this boot by a clock that nobody sets, otherwise by the wall clock."""
    if len(words) >= 3 and words[2] == _boot() != "-":
        return float(words[1]) - _since_boot_s()
    return float(words[0]) - time.time() if words else None


def _since_boot_s() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # suspended time counts, where the system counts it
    return time.clock_gettime(clock)


@cache
def _boot() -> str:
    """What identifies the time since this machine was started; "-" if the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return "-"


def _name_of(uid: int) -> str:
    """The user's name: from the system, as what a file says of its owner may be made up."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
    return name if name.isprintable() else f"user {uid}"

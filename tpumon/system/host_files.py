"""Files by which all tpumons of a host, of all users, exchange what they know: in /tmp, with random names.

Files of other users are only read, never locked. The owner of a file is what the file system says. The contents may be
made up, and there may be any number of files: of each other user, only the newest few are read.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path

from msgspec import Struct

_DIRECTORY = Path("/tmp")  # noqa: S108 - one place for all users, whatever their TMPDIR
_MOST_LISTED = 200_000
_MOST_READ = 1_000
_MOST_OWN = 500


class HostFile(Struct, frozen=True):
    """A file as it was listed.

    Attributes:
        path: where it is.
        uid: its owner.
        changed_ns: when it was written, by a clock of some milliseconds.
        inode: another one than that of the file that it replaced.
    """

    path: Path
    uid: int
    changed_ns: int
    inode: int


class HostFiles:
    """The files of one kind.

    Args:
        prefix: how their names begin.
        most_of_one_user: how many of each other user are read, the newest.
        most_bytes: how much of each is read.
    """

    def __init__(self, prefix: str, *, most_of_one_user: int, most_bytes: int) -> None:
        self._prefix = prefix
        self._most_of_one_user = most_of_one_user
        self._most_bytes = most_bytes

    def new_path(self) -> Path:
        """New path for a file of this user; the name is random, so that no other user can have put a file there."""
        return directory() / f"{self._prefix}{os.getuid()}-{secrets.token_hex(8)}"

    def write(self, path: Path, text: str) -> None:
        """Writes a file of this user, or replaces it at once by another content.

        Raises:
            OSError: it cannot be written.
        """
        new = path.with_name(f".{path.name}")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, 0o644)  # whatever the umask: every user must be able to read it
                file.write(text)
            new.replace(path)
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise

    def listed(self) -> list[HostFile]:
        """The files to read: of each owner the newest few.

        Raises:
            OSError: the directory cannot be listed.
        """
        by_owner: dict[int, list[HostFile]] = {}
        for file in islice(self._all(), _MOST_LISTED):
            by_owner.setdefault(file.uid, []).append(file)
        for uid, files in by_owner.items():
            files.sort(key=lambda file: file.changed_ns)
            del files[: -(_MOST_OWN if uid == os.getuid() else self._most_of_one_user)]
        return [file for files in by_owner.values() for file in files][:_MOST_READ]

    def own(self) -> list[Path]:
        """All files of this user."""
        return [file.path for file in self._all() if file.uid == os.getuid()]

    def read(self, path: Path) -> tuple[str, int] | None:
        """The text of a file and its owner; None for what is not a regular file, or gone."""
        return read_anyones(path, self._most_bytes)

    def _all(self) -> Iterator[HostFile]:
        with suppress(FileNotFoundError), os.scandir(directory()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.name.startswith(self._prefix) and entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        yield HostFile(Path(entry.path), status.st_uid, status.st_mtime_ns, status.st_ino)


def read_anyones(path: Path, most_bytes: int) -> tuple[str, int] | None:
    """The text of a file and its owner; None for what is not a regular file, or gone.

    Any user may put anything there: not a file, endless, or nonsense.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            return file.read(most_bytes).decode("utf-8", "replace"), status.st_uid
    except OSError:
        return None


def directory() -> Path:
    """The directory with the files of all users."""
    return Path(os.environ.get("TPUMON_PAUSE_DIR") or _DIRECTORY)


def since_boot_s() -> float:
    """Seconds since this machine was started, by a clock that cannot be set."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # suspended time counts, where the system counts it
    return time.clock_gettime(clock)


def time_of_day(moment_s: float) -> str:
    """The time by the wall clock, as words, of a moment in seconds since this machine was started."""
    return time.strftime("%H:%M:%S", time.localtime(time.time() - (since_boot_s() - moment_s)))


@cache
def network() -> int:
    """A number of this process's network, in which alone addresses mean the same; 0: not known."""
    try:
        return Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return 0


@cache
def boot() -> str:
    """A name of the time since this machine was started; "-" if the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return "-"

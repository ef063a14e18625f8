"""Log directories: LOGDIR/plugins/profile/SESSION/HOST.xplane.pb, where TensorBoard and XProf look."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpumon.errors import TpumonError, UsageError
from tpumon.system.extras import how_to_install

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE_SUFFIX = ".xplane.pb"
SESSIONS = "plugins/profile"
"""Where a log directory keeps its sessions."""

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")


class LogDir(ABC):
    """A log directory.

    Its methods raise TpumonError, which says why, where something cannot be done.

    Args:
        root: LOGDIR/plugins/profile, absolute: a server's working directory differs from ours.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    @abstractmethod
    def prepare(self) -> None:
        """Makes `root` and proves that it is writable, before any worker is asked."""

    @abstractmethod
    def new_session(self) -> str:
        """Makes a new session, named after the local time, as TensorBoard sorts them; returns the name."""

    @abstractmethod
    def make_session(self, session: str) -> None:
        """Makes the directory of a session unless it exists."""

    @abstractmethod
    def save(self, session: str, file_name: str, content: bytes | memoryview) -> str:
        """Writes a file, whole or not at all; returns its path."""

    @abstractmethod
    def load(self, session: str, file_name: str) -> bytes | None:
        """Reads a file; None if there is none."""

    @abstractmethod
    def discard(self, session: str, file_name: str | None = None) -> None:
        """Removes a file if it exists, and its session where that is left empty, and closes. Never fails."""

    @abstractmethod
    def close(self) -> None:
        """Removes what was made above the sessions where that is left empty. Never fails."""


def open_logdir(where: str) -> LogDir:
    """Opens the log directory of `--logdir`.

    Raises:
        UsageError: it is a bucket, and TensorFlow, which can reach buckets, is not installed.
    """
    if not _REMOTE.match(where):
        return LocalLogDir(where)
    try:
        import tensorflow as tf
    except ImportError as error:
        raise UsageError(f"--logdir {where}: this needs TensorFlow: {how_to_install('tensorflow')}") from error
    return RemoteLogDir(where, tf.io.gfile)


def trace_file_name(address: str) -> str:
    """The name of a worker's trace file: `10.0.0.1:8466` -> `10.0.0.1_8466.xplane.pb`."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", address) + TRACE_SUFFIX


def _session_names() -> Iterator[str]:
    """Names to try: the local time, then the same with a number."""
    name = time.strftime("%Y_%m_%d_%H_%M_%S")
    yield name
    for number in itertools.count(2):
        yield f"{name}_{number}"


@contextlib.contextmanager
def _as_tpumon_error(doing: str, path: str | Path, error_type: type[Exception]) -> Iterator[None]:
    """Turns errors of a file system into one line that says what cannot be done."""
    try:
        yield
    except error_type as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        remedy = "; give a writable --logdir" if doing == "write" else ""
        raise TpumonError(f"cannot {doing} {path}: {reason}{remedy}") from error


class LocalLogDir(LogDir):
    """A directory in this host's file systems."""

    def __init__(self, where: str) -> None:
        try:
            self._root = Path(where).expanduser().absolute() / SESSIONS
        except RuntimeError as error:
            raise UsageError(f"--logdir {where}: {error}") from error
        super().__init__(str(self._root))
        self._made: list[Path] = []

    def _make(self, directory: Path, *, exist_ok: bool = True) -> None:
        """Makes a directory, and notes what was not there of those above the sessions."""
        self._made = self._made or [one for one in (self._root, *self._root.parents) if not one.exists()]
        directory.mkdir(parents=True, exist_ok=exist_ok)

    def prepare(self) -> None:
        with _as_tpumon_error("write", self.root, OSError):
            self._make(self._root)
            with tempfile.TemporaryFile(dir=self._root):
                pass

    def new_session(self) -> str:
        return next(name for name in _session_names() if self._is_made(name))

    def _is_made(self, session: str) -> bool:
        """Makes the directory of a session; False if it exists: another tpumon may begin in the same second."""
        with _as_tpumon_error("write", self._root / session, OSError):
            try:
                self._make(self._root / session, exist_ok=False)
            except FileExistsError:
                return False
        return True

    def make_session(self, session: str) -> None:
        with _as_tpumon_error("write", self._root / session, OSError):
            self._make(self._root / session)

    def save(self, session: str, file_name: str, content: bytes | memoryview) -> str:
        path = self._root / session / file_name
        partial = path.with_name(f".{file_name}.{os.getpid()}.partial")
        try:
            with _as_tpumon_error("write", path, OSError):
                self._make(path.parent)
                with partial.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()
        return str(path)

    def load(self, session: str, file_name: str) -> bytes | None:
        path = self._root / session / file_name
        with _as_tpumon_error("read", path, OSError):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def discard(self, session: str, file_name: str | None = None) -> None:
        directory = self._root / session
        with contextlib.suppress(OSError):  # it does not exist, or is not ours
            if file_name is not None:
                (directory / file_name).unlink()
        with contextlib.suppress(OSError):  # it holds other workers' files
            directory.rmdir()
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it holds sessions
            for made in self._made:
                made.rmdir()


class RemoteLogDir(LogDir):
    """A directory that TensorFlow's file systems reach, such as gs://BUCKET/DIR.

    Its errors share no base class.
    """

    def __init__(self, where: str, gfile: Any) -> None:
        super().__init__(f"{where.rstrip('/')}/{SESSIONS}")
        self._gfile = gfile

    def prepare(self) -> None:
        with _as_tpumon_error("write", self.root, Exception):
            self._gfile.makedirs(self.root)

    def new_session(self) -> str:
        session = next(name for name in _session_names() if not self._gfile.exists(f"{self.root}/{name}"))
        self.make_session(session)
        return session

    def make_session(self, session: str) -> None:
        path = f"{self.root}/{session}"
        with _as_tpumon_error("write", path, Exception):
            self._gfile.makedirs(path)

    def save(self, session: str, file_name: str, content: bytes | memoryview) -> str:
        # An object appears in a bucket when it is closed, whole: no renaming needed.
        path = f"{self.root}/{session}/{file_name}"
        with _as_tpumon_error("write", path, Exception):
            self._gfile.makedirs(f"{self.root}/{session}")
            with self._gfile.GFile(path, "wb") as file:
                file.write(bytes(content))  # TensorFlow takes no views
        return path

    def load(self, session: str, file_name: str) -> bytes | None:
        path = f"{self.root}/{session}/{file_name}"
        with _as_tpumon_error("read", path, Exception):
            if not self._gfile.exists(path):
                return None
            with self._gfile.GFile(path, "rb") as file:
                return bytes(file.read())

    def discard(self, session: str, file_name: str | None = None) -> None:
        if file_name is not None:
            with contextlib.suppress(Exception):
                self._gfile.remove(f"{self.root}/{session}/{file_name}")

    def close(self) -> None:
        """Does nothing: buckets have no empty directories."""

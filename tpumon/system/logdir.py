"""Where profiles go: LOGDIR/plugins/profile/SESSION/HOST.xplane.pb, where TensorBoard and XProf look."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tpumon.errors import TpumonError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE_SUFFIX = ".xplane.pb"
SESSIONS = "plugins/profile"
"""Where a log directory keeps its sessions."""

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")


class LogDir(Protocol):
    """A log directory, local or in a bucket."""

    @property
    def root(self) -> str:
        """LOGDIR/plugins/profile, absolute: a server's working directory differs from ours."""

    def new_session(self) -> str:
        """Makes a new session, named after the local time, as TensorBoard sorts them; returns the name.

        Raises:
            TpumonError: it cannot be done; says why.
        """

    def make_session(self, session: str) -> None:
        """Makes the directory of a session unless it exists.

        Raises:
            TpumonError: it cannot be done; says why.
        """

    def prepare(self) -> None:
        """Makes `root` and proves that it is writable, before any worker is asked.

        Raises:
            TpumonError: it cannot be done; says why.
        """

    def save(self, session: str, file_name: str, content: bytes | memoryview) -> str:
        """Writes a file, whole or not at all; returns its path.

        Raises:
            TpumonError: it cannot be done; says why.
        """

    def load(self, session: str, file_name: str) -> bytes | None:
        """Reads a file; None if there is none."""

    def discard(self, session: str, file_name: str | None = None) -> None:
        """Removes a file if it exists, and its session if that leaves it empty. Never fails."""


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
        raise UsageError(
            f"--logdir {where}: this needs TensorFlow; install it with: pip install 'tpumon[tensorflow]'"
        ) from error
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


class LocalLogDir:
    """A directory in this host's file systems."""

    def __init__(self, where: str) -> None:
        try:
            self._root = Path(where).expanduser().absolute() / SESSIONS
        except RuntimeError as error:
            raise UsageError(f"--logdir {where}: {error}") from error

    @property
    def root(self) -> str:
        return str(self._root)

    def new_session(self) -> str:
        for name in _session_names():
            try:
                (self._root / name).mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise _cannot_write(str(self._root / name), error) from error
            return name
        raise AssertionError

    def make_session(self, session: str) -> None:
        try:
            (self._root / session).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_write(str(self._root / session), error) from error

    def prepare(self) -> None:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._root):
                pass
        except OSError as error:
            raise _cannot_write(self.root, error) from error

    def save(self, session: str, file_name: str, content: bytes | memoryview) -> str:
        path = self._root / session / file_name
        partial = path.with_name(f".{file_name}.{os.getpid()}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError as error:
            raise _cannot_write(str(path), error) from error
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()
        return str(path)

    def load(self, session: str, file_name: str) -> bytes | None:
        path = self._root / session / file_name
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TpumonError(f"cannot read {path}: {error.strerror}") from error

    def discard(self, session: str, file_name: str | None = None) -> None:
        directory = self._root / session
        with contextlib.suppress(OSError):  # it does not exist, or is not ours
            if file_name is not None:
                (directory / file_name).unlink()
        with contextlib.suppress(OSError):  # it holds other workers' files
            directory.rmdir()


class RemoteLogDir:
    """A directory that TensorFlow's file systems reach, such as gs://BUCKET/DIR.

    Args:
        where: its URL.
        gfile: `tf.io.gfile`.
    """

    def __init__(self, where: str, gfile: Any) -> None:
        self._root = f"{where.rstrip('/')}/{SESSIONS}"
        self._gfile = gfile

    @property
    def root(self) -> str:
        return self._root

    def new_session(self) -> str:
        session = next(name for name in _session_names() if not self._gfile.exists(f"{self._root}/{name}"))
        self.make_session(session)
        return session

    def make_session(self, session: str) -> None:
        try:
            self._gfile.makedirs(f"{self._root}/{session}")
        except Exception as error:
            raise _cannot_write(f"{self._root}/{session}", error) from error

    def prepare(self) -> None:
        try:
            self._gfile.makedirs(self._root)
        except Exception as error:
            raise _cannot_write(self._root, error) from error

    def save(self, session: str, file_name: str, content: bytes | memoryview) -> str:
        # An object appears in a bucket when it is closed, whole: no renaming needed.
        path = f"{self._root}/{session}/{file_name}"
        try:
            self._gfile.makedirs(f"{self._root}/{session}")
            with self._gfile.GFile(path, "wb") as file:
                file.write(bytes(content))  # TensorFlow takes no views
        except Exception as error:
            raise _cannot_write(path, error) from error
        return path

    def load(self, session: str, file_name: str) -> bytes | None:
        path = f"{self._root}/{session}/{file_name}"
        try:
            if not self._gfile.exists(path):
                return None
            with self._gfile.GFile(path, "rb") as file:
                return bytes(file.read())
        except Exception as error:
            raise TpumonError(f"cannot read {path}: {error}") from error

    def discard(self, session: str, file_name: str | None = None) -> None:
        if file_name is None:
            return  # buckets have no empty directories
        try:
            self._gfile.remove(f"{self._root}/{session}/{file_name}")
        except Exception:  # noqa: BLE001 - TensorFlow's errors share no base class; nothing is lost
            return


def _cannot_write(path: str, error: Exception) -> TpumonError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return TpumonError(f"cannot write {path}: {reason}; give a writable --logdir")

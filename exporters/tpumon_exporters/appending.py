"""A text file that grows a line at a time, while others may move it away or empty it, as logrotate does."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from tpumon.errors import UsageError


class Appended:
    """Lines at the end of a file, or on stdout, each written at once.

    Args:
        where: the file, or `-` for stdout.
        header: the line that the file begins with; an emptied or new one gets it anew.

    Raises:
        UsageError: it cannot be opened, or begins with another line.
    """

    def __init__(self, where: str, *, header: str | None = None) -> None:
        self._path = None if where == "-" else Path(where)
        self._header = header
        self._file: int | None = None
        self._torn = False
        if self._path is None:
            if header is not None:
                self._print(header)
            return
        try:
            self._open(self._path)
            begins = self._first_line(self._path) if header is not None else None
        except OSError as error:
            raise UsageError(f"cannot write to {where}: {error.strerror}; give a file, or - for stdout") from None
        if begins not in {None, header}:
            self.close()
            raise UsageError(f"{where} holds something else, or other columns; give another file")

    def write(self, line: str) -> None:
        """One line, without its end.

        Raises:
            OSError: it cannot be written now. The next call begins on a line of its own.
        """
        if self._path is None:
            self._print(line)
            return
        if self._file is None or self._moved(self._file, self._path):
            self.close()
            self._open(self._path)
        elif self._header is not None and _is_empty(self._file):
            self._append(self._header)
        self._append(line)

    def close(self) -> None:
        """Leaves stdout alone."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    @staticmethod
    def _print(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def _open(self, path: Path) -> None:
        # A FIFO that nobody reads is refused instead of waited for.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o666)
        os.set_blocking(self._file, True)
        self._torn = _is_torn(path)
        if self._header is not None and (_is_empty(self._file) or not stat.S_ISREG(os.fstat(self._file).st_mode)):
            self._append(self._header)

    def _append(self, line: str) -> None:
        assert self._file is not None
        data = ("\n" if self._torn else "").encode() + f"{line}\n".encode(errors="backslashreplace")
        while data:
            written = os.write(self._file, data)
            data = data[written:]
            self._torn = bool(data)

    @staticmethod
    def _moved(file: int, path: Path) -> bool:
        """Whether the name now means another file, or none."""
        try:
            return not os.path.samestat(os.fstat(file), path.stat())
        except FileNotFoundError:
            return True

    @staticmethod
    def _first_line(path: Path) -> str | None:
        """None where there is nothing to be read."""
        if not path.is_file():
            return None
        with path.open(encoding="utf-8", errors="replace", newline="") as reader:
            return reader.readline(10_000).removesuffix("\n") or None


def _is_torn(path: Path) -> bool:
    """Whether the last line has no end: a full disk, or a kill."""
    try:
        if not path.is_file() or not path.stat().st_size:
            return False
        with path.open("rb") as reader:
            reader.seek(-1, os.SEEK_END)
            return reader.read(1) != b"\n"
    except OSError:  # not ours to read
        return False


def _is_empty(file: int) -> bool:
    status = os.fstat(file)
    return stat.S_ISREG(status.st_mode) and status.st_size == 0

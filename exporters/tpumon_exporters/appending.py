"""A text file that grows line by line and survives logrotate, and the output that writes a line for each sample."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tpumon.errors import UsageError

if TYPE_CHECKING:
    from tpumon.model import Sample, Workers


class SampleLines:
    """An output that writes each sample as one line, as it arrives.

    Args:
        lines: where the lines go.
        line_of: a sample as a line.
        note: what to tell the user at the start; empty: nothing.

    Attributes:
        say: takes that note.
    """

    def __init__(self, lines: Appended, line_of: Callable[[Sample], str], note: str = "") -> None:
        self._lines = lines
        self._line_of = line_of
        self._note = note
        self.say: Callable[[str], None] = lambda _line: None

    def follow(self, _workers: Workers) -> None:
        """Says the note, once; each line names its worker."""
        note, self._note = self._note, ""
        if note:
            self.say(note)

    def write(self, sample: Sample) -> None:
        """Writes one line.

        Raises:
            OSError: it cannot be written now.
        """
        self._lines.write(self._line_of(sample))

    def close(self) -> None:
        """Closes a file; leaves stdout open."""
        self._lines.close()


class Appended:
    """Appends lines to a file or stdout, each written immediately.

    Args:
        where: the file, or `-` for stdout.
        header: first line of the file; written to every new or emptied file.

    Raises:
        UsageError: the file cannot be opened, or begins with another line.
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
            begins = first_line(self._path) if header is not None else None
        except OSError as error:
            raise UsageError(f"cannot write to {where}: {error.strerror}; give a file, or - for stdout") from None
        if begins not in {None, header}:
            self.close()
            raise UsageError(f"{where} has other columns or other contents; give another file")

    def write(self, line: str) -> None:
        """Writes a line, given without its newline.

        Raises:
            OSError: it cannot be written now. The next call starts a new line.
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
        """Closes a file; leaves stdout open."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    @staticmethod
    def _print(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def _open(self, path: Path) -> None:
        # Without O_NONBLOCK, opening a FIFO would wait for its reader.
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
        """Whether the path now names another file, or none."""
        try:
            return not os.path.samestat(os.fstat(file), path.stat())
        except FileNotFoundError:
            return True


def first_line(path: Path) -> str | None:
    """The first line of a file; None if there is nothing to read.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace", newline="") as reader:
        return reader.readline(10_000).removesuffix("\n") or None


def _is_torn(path: Path) -> bool:
    """Whether the last line has no newline, as after a full disk or a kill."""
    try:
        if not path.is_file() or not path.stat().st_size:
            return False
        with path.open("rb") as reader:
            reader.seek(-1, os.SEEK_END)
            return reader.read(1) != b"\n"
    except OSError:  # not readable for us
        return False


def _is_empty(file: int) -> bool:
    status = os.fstat(file)
    return stat.S_ISREG(status.st_mode) and status.st_size == 0

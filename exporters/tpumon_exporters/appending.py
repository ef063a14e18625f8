"""A text file that grows line by line and survives logrotate, and the output that writes a line for each sample."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tpumon.errors import UsageError
from tpumon.outputs import Output

if TYPE_CHECKING:
    from tpumon.analysis import Update
    from tpumon.model import Sample

_log = logging.getLogger(__name__)


class SampleLines(Output):
    """An output that writes each sample as one line, as it arrives.

    Args:
        lines: where the lines go.
        line_of: a sample as a line.
        note: what to tell the user before the first line; empty: nothing.
    """

    def __init__(self, lines: Appended, line_of: Callable[[Sample], str], note: str = "") -> None:
        self._lines = lines
        self._line_of = line_of
        if note:
            _log.warning("%s", note)

    def on_update(self, update: Update) -> None:
        """Writes one line for a sample."""
        if update.sample is not None:
            self._lines.write(self._line_of(update.sample))

    def close(self) -> None:
        """Closes a file; leaves stdout open."""
        self._lines.close()


class OpenFile:
    """An open file to whose end data is written, all of it or nothing.

    A part that found room is taken back. Where it cannot be, as from a pipe, what follows begins on a line of its own.

    Args:
        number: its descriptor.
        torn: whether its last line has no end.

    Attributes:
        number: its descriptor.
    """

    def __init__(self, number: int, *, torn: bool = False) -> None:
        self.number = number
        self._torn = torn

    def append(self, data: bytes) -> None:
        """Writes data, at once.

        Raises:
            OSError: it cannot be written now.
        """
        if self._torn:
            data = b"\n" + data
        written = 0
        try:
            while written < len(data):
                written += os.write(self.number, data[written:])
        except OSError:
            if written and not self._removes(written):
                self._torn = not data[:written].endswith(b"\n")
            raise
        self._torn = False

    def close(self) -> None:
        """Closes it."""
        os.close(self.number)

    def _removes(self, size: int) -> bool:
        """Removes the last bytes, unless another has written behind them, or emptied the file; False: it could not."""
        try:
            end = os.lseek(self.number, 0, os.SEEK_CUR)
            if end != os.fstat(self.number).st_size:
                return False
            os.ftruncate(self.number, end - size)
            os.lseek(self.number, end - size, os.SEEK_SET)
        except OSError:  # a pipe or terminal
            return False
        return True


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
        self._file: OpenFile | None = None
        self._encoding = "utf-8"
        if self._path is None:
            self._file, self._encoding = OpenFile(sys.stdout.fileno()), sys.stdout.encoding
            if header is not None:
                self._append(header)
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
            OSError: it cannot be written now.
        """
        if self._path is None:
            self._append(line)
            return
        if self._file is None or self._moved(self._file.number, self._path):
            self.close()
            self._open(self._path)
        elif self._header is not None and _is_empty(self._file.number):
            self._append(self._header)
        self._append(line)

    def close(self) -> None:
        """Closes a file; leaves stdout open."""
        if self._path is not None and self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _open(self, path: Path) -> None:
        # Without O_NONBLOCK, opening a FIFO would wait for its reader.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o666)
        self._file = OpenFile(file, torn=_is_torn(path))
        os.set_blocking(file, True)
        if self._header is not None and (_is_empty(file) or not stat.S_ISREG(os.fstat(file).st_mode)):
            self._append(self._header)

    def _append(self, line: str) -> None:
        assert self._file is not None
        self._file.append(f"{line}\n".encode(self._encoding, "backslashreplace"))

    @staticmethod
    def _moved(file: int, path: Path) -> bool:
        """True if the path now names another file, or none."""
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
    """True if the last line has no newline, as after a full disk or a kill."""
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

"""A recording: samples in compressed files that replace each other, for `--from`."""

from __future__ import annotations

import calendar
import os
import re
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from tpumon.collection.recording import PACKED, is_workers, workers_line
from tpumon.errors import UsageError
from tpumon.model.documents import encoded
from tpumon.outputs import Context, Output, not_to_stdout, takes
from tpumon_exporters.appending import OpenFile

if TYPE_CHECKING:
    from tpumon.analysis import Update
    from tpumon.model import Workers

_GZIP = zlib.MAX_WBITS | 16
_TICK_S = 0.5
_MEMBER_S = 60.0
_FILE_S = 3600.0
_LONGEST_GAP_S = 2 * _FILE_S  # between the begins of two files, as far as it counts: a longer one may be a clock's
_SHARES = 16  # of what is kept, that one file may take
_MOST_FILE_BYTES = 64 << 20
_MOST_WAITING_BYTES = 16 << 20
_NAME = re.compile(r"tpumon-(\d{8}T\d{6})\.\d{3}Z-(\d{1,18})\.jsonl\.gz")
_TIME = "%Y%m%dT%H%M%S"


class RecordOptions(Struct, frozen=True, kw_only=True):
    """Options of this exporter.

    Attributes:
        keep_s: files after which so much has been recorded are removed.
        keep_mb: the files written first are removed when all together are larger.
    """

    keep_s: float = 7 * 86400.0
    keep_mb: float = 1000.0

    def __post_init__(self) -> None:
        if self.keep_s < 60:
            raise ValueError("keep_s must be at least 60")
        if self.keep_mb < 1:
            raise ValueError("keep_mb must be at least 1")


class Recorder(Output):
    """Writes samples into files of a directory, twice a second.

    If this process is killed, at most the last second is lost: what is written can be read without the file's end.

    Args:
        directory: where the files are; it is made if it is not there.
        options: how much is kept.
        clock: returns seconds since the epoch.
        pace: returns seconds of a monotonic clock.

    Attributes:
        tick_s: seconds between writes.

    Raises:
        UsageError: the directory cannot be written.
    """

    def __init__(
        self,
        directory: str,
        options: RecordOptions | None = None,
        clock: Callable[[], float] = time.time,
        pace: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tick_s = _TICK_S
        self._directory = Path(directory)
        self._options = options or RecordOptions()
        self._clock = clock
        self._pace = pace
        self._workers: Workers | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._file: _RecordingFile | None = None
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--record {directory}: {error.strerror}; give a directory") from None
        if not os.access(self._directory, os.W_OK | os.X_OK):
            raise UsageError(f"--record {directory}: permission denied; give a directory that you may write to")

    def on_update(self, update: Update) -> None:
        """Queues a sample, or the new list of workers, to be written at the next tick."""
        if update.workers is not None:
            self._workers = update.workers
            self._put(workers_line(update.workers, self._clock()))
        if update.sample is not None:
            self._put(encoded(update.sample.document()))

    def tick(self, now_unix_s: float) -> None:
        """Writes what came since the last one; what cannot be written now is kept for the next tick, up to 16 MB."""
        if not self._waiting:
            return
        now_s = self._pace()
        if self._file is None or self._file.is_full(now_unix_s, now_s, self._most_file_bytes):
            self._next_file(now_unix_s, now_s)
        assert self._file is not None
        self._file.append(b"".join(self._waiting), now_s)
        self._waiting.clear()
        self._waiting_bytes = 0

    def close(self) -> None:
        """Writes what is left, and ends the file."""
        try:
            self.tick(self._clock())
        finally:
            if self._file is not None:
                self._file.close()

    @property
    def _most_file_bytes(self) -> float:
        return min(self._options.keep_mb * 1e6 / _SHARES, _MOST_FILE_BYTES)

    def _put(self, line: str) -> None:
        self._waiting.append(_line(line))
        self._waiting_bytes += len(self._waiting[-1])
        while self._waiting_bytes > _MOST_WAITING_BYTES:
            self._waiting_bytes -= len(self._waiting.pop(0))

    def _next_file(self, now_unix_s: float, now_s: float) -> None:
        before, self._file = self._file, None
        if before is not None:
            before.close()
        number = self._remove_old(now_unix_s) + 1
        self._file = _RecordingFile(self._directory, number, now_unix_s, now_s)
        if self._workers is not None and not is_workers(self._waiting[0]):  # each file can be read without the others
            self._waiting.insert(0, _line(workers_line(self._workers, now_unix_s)))
            self._waiting_bytes += len(self._waiting[0])

    def _remove_old(self, now_unix_s: float) -> int:
        """Removes recordings that are too old, or that exceed the limit of size together with the next file.

        Does not trust the wall clock, which may be set: numbers tell the order of the files, and the age of a file is
        the time that the files after it took.

        Returns:
            The last number; 0 if there is none.
        """
        left_bytes = self._options.keep_mb * 1e6 - self._most_file_bytes
        written = _written(self._directory)
        after_s, next_unix_s = 0.0, now_unix_s
        for _, began_unix_s, path in reversed(written):
            with suppress(FileNotFoundError):  # others may record here, too
                left_bytes -= path.stat().st_size
                if left_bytes < 0 or after_s > self._options.keep_s:
                    path.unlink()
            after_s += min(max(next_unix_s - began_unix_s, 0.0), _LONGEST_GAP_S)
            next_unix_s = began_unix_s
        return written[-1][0] if written else 0


def _line(text: str) -> bytes:
    return f"{text}\n".encode(errors="backslashreplace")


def _new_member() -> zlib._Compress:
    return zlib.compressobj(6, zlib.DEFLATED, _GZIP)


def _written(directory: Path) -> list[tuple[int, float, Path]]:
    """Number, begin and path of each file, in the order in which they were written."""
    files = []
    for path in directory.iterdir():
        if match := _NAME.fullmatch(path.name):
            with suppress(ValueError):  # of a time that no calendar has: not ours
                files.append((int(match[2]), float(calendar.timegm(time.strptime(match[1], _TIME))), path))
    return sorted(files)


class _RecordingFile:
    """One file: gzip members in a row, each whole or readable as far as it was written.

    Args:
        directory: where.
        number: its place among the others.
        now_unix_s: for its name; readers take files in the order of their names.
        now_s: the same, on the monotonic clock.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, directory: Path, number: int, now_unix_s: float, now_s: float) -> None:
        self._began_unix_s = now_unix_s
        self._began_s = self._member_s = self._right_s = now_s
        stamp = time.strftime(_TIME, time.gmtime(now_unix_s)) + f".{int(now_unix_s * 1000) % 1000:03}Z"
        while True:
            path = directory / f"tpumon-{stamp}-{number}{PACKED}"
            try:
                self._file = OpenFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666))
                break
            except FileExistsError:
                number += 1
        self._bytes = 0
        self._packer = _new_member()

    def is_full(self, now_unix_s: float, now_s: float, most_bytes: float) -> bool:
        """True if the next line belongs into another file; also after the time in the name was wrong for a minute."""
        lasted_s = now_s - self._began_s
        if abs(now_unix_s - self._began_unix_s - lasted_s) < _FILE_S:
            self._right_s = now_s
        return self._bytes >= most_bytes or lasted_s >= _FILE_S or now_s - self._right_s >= _MEMBER_S

    def append(self, data: bytes, now_s: float) -> None:
        """Writes data so that it can be read at once.

        Raises:
            OSError: it cannot be written; the file is as it was before.
        """
        packer = self._packer.copy()  # what cannot be written was never packed
        last = now_s - self._member_s >= _MEMBER_S
        packed = packer.compress(data) + packer.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)
        self._file.append(packed)
        self._bytes += len(packed)
        self._packer = packer
        if last:
            self._packer, self._member_s = _new_member(), now_s

    def close(self) -> None:
        """Ends the file."""
        try:
            self._file.append(self._packer.flush())
        finally:
            self._file.close()


@not_to_stdout
@takes(RecordOptions)
def open_record(where: str, _context: Context, options: RecordOptions) -> Recorder:
    """Opens the output; `where`: a directory."""
    return Recorder(where, options)

"""A recording: samples in compressed files that replace each other, for `--from`."""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tpumon.errors import UsageError
from tpumon.model.frozen import frozen
from tpumon.outputs import OutputOptions, takes
from tpumon.recording import PACKED, workers_to_json

if TYPE_CHECKING:
    from tpumon.model import Sample, Workers

_ENCODER = json.JSONEncoder(allow_nan=False)
_GZIP = zlib.MAX_WBITS | 16
_TICK_S = 0.5
_MEMBER_S = 60.0  # what a damaged byte can spoil
_FILE_S = 3600.0
_SHARES = 16  # of what is kept, that one file may take
_MOST_FILE_BYTES = 64 << 20
_MOST_WAITING_BYTES = 16 << 20
_NAME = re.compile(r"tpumon-\d{8}T\d{6}\.\d{3}Z-\d+\.jsonl\.gz")


@frozen
class RecordOptions:
    """Options of this exporter.

    Attributes:
        keep_s: files whose last sample is older are removed.
        keep_mb: the oldest files are removed when all together are larger.
    """

    keep_s: float = 7 * 86400.0
    keep_mb: float = 1000.0

    def __post_init__(self) -> None:
        if self.keep_s < 60:
            raise ValueError("keep_s must be at least 60")
        if self.keep_mb < 1:
            raise ValueError("keep_mb must be at least 1")


class Recorder:
    """Writes samples into files of a directory, twice a second.

    If this process is killed, at most the last second is lost: what is written can be read without the file's end.

    Args:
        directory: where the files are; it is made if it is not there.
        options: how much is kept.
        clock: returns seconds since the epoch.

    Attributes:
        tick_s: seconds between writes.

    Raises:
        UsageError: the directory cannot be written.
    """

    def __init__(
        self, directory: str, options: RecordOptions | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.tick_s = _TICK_S
        self._directory = Path(directory)
        self._options = options or RecordOptions()
        self._clock = clock
        self._workers: Workers | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._file: _File | None = None
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--record {directory}: {error.strerror}; give a directory") from None
        if not os.access(self._directory, os.W_OK | os.X_OK):
            raise UsageError(f"--record {directory}: permission denied; give a directory that you may write to")

    def follow(self, workers: Workers) -> None:
        """Records who the workers are from now on."""
        self._workers = workers
        self._put(_ENCODER.encode(workers_to_json(workers, self._clock())))

    def write(self, sample: Sample) -> None:
        """Records a sample, at the next tick."""
        self._put(_ENCODER.encode(sample.to_json()))

    def tick(self, now_unix_s: float) -> None:
        """Writes what came since the last one.

        Raises:
            OSError: it cannot be written now. It is kept for the next tick, up to 16 MB.
        """
        if not self._waiting:
            return
        if self._file is None or self._file.is_full(now_unix_s, self._most_file_bytes):
            self._next_file(now_unix_s)
        assert self._file is not None
        self._file.append(b"".join(self._waiting), now_unix_s)
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
        self._waiting.append(f"{line}\n".encode(errors="backslashreplace"))
        self._waiting_bytes += len(self._waiting[-1])
        while self._waiting_bytes > _MOST_WAITING_BYTES:
            self._waiting_bytes -= len(self._waiting.pop(0))

    def _next_file(self, now_unix_s: float) -> None:
        before, self._file = self._file, None
        if before is not None:
            before.close()
        self._remove_old(now_unix_s)
        self._file = _File(self._directory, now_unix_s)
        if before is not None and self._workers is not None:  # each file can be read without the others
            self._file.append(f"{_ENCODER.encode(workers_to_json(self._workers, now_unix_s))}\n".encode(), now_unix_s)

    def _remove_old(self, now_unix_s: float) -> None:
        """Removes files that are too old, or too much together with the one that comes; no others than recordings."""
        left_bytes = self._options.keep_mb * 1e6 - self._most_file_bytes
        for path in sorted(self._directory.iterdir(), reverse=True):
            if _NAME.fullmatch(path.name):
                status = path.stat()
                left_bytes -= status.st_size
                if left_bytes < 0 or now_unix_s - status.st_mtime > self._options.keep_s:
                    path.unlink(missing_ok=True)


class _File:
    """One file: gzip members in a row, each whole or readable as far as it was written.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, directory: Path, now_unix_s: float) -> None:
        self._began_unix_s = self._member_unix_s = now_unix_s
        at = now_unix_s
        while True:
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03}Z"
            path = directory / f"tpumon-{stamp}-{os.getpid()}{PACKED}"
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
                break
            except FileExistsError:
                at += 0.001
        self._bytes = 0
        self._packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP)

    def is_full(self, now_unix_s: float, most_bytes: float) -> bool:
        """Whether the next line belongs into another file."""
        return self._bytes >= most_bytes or not 0 <= now_unix_s - self._began_unix_s < _FILE_S

    def append(self, data: bytes, now_unix_s: float) -> None:
        """Writes data so that it can be read at once.

        Raises:
            OSError: it cannot be written; the file is as it was before.
        """
        last = not 0 <= now_unix_s - self._member_unix_s < _MEMBER_S
        self._write(self._packer.compress(data) + self._packer.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH))
        if last:
            self._begin_member(now_unix_s)

    def close(self) -> None:
        """Ends the file."""
        try:
            self._write(self._packer.flush())
        finally:
            os.close(self._file)

    def _begin_member(self, now_unix_s: float) -> None:
        self._packer, self._member_unix_s = zlib.compressobj(6, zlib.DEFLATED, _GZIP), now_unix_s

    def _write(self, data: bytes) -> None:
        left = data
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            os.ftruncate(self._file, self._bytes)
            self._begin_member(self._member_unix_s)  # the packer is ahead of the file
            raise
        self._bytes += len(data)


@takes(RecordOptions, stdout=False)
def open_record(where: str, _run: OutputOptions, options: RecordOptions) -> Recorder:
    """Opens the output.

    Args:
        where: a directory.
        options: its own options.

    Raises:
        UsageError: the directory cannot be written.
    """
    return Recorder(where, options)

"""Recorded samples (`--record`): the lines of a recording, its files, and the reader behind `--from DIR|FILE`.

A recording is a directory of files `*.jsonl.gz`, in the order of their names; `*.jsonl.zst`, as others pack them, are
read, too. A line is a Sample object, or says who the workers are from then on. Files may be cut off or damaged
anywhere: of each, what comes before the damage is read, and a line says so.
"""

from __future__ import annotations

import logging
import math
import shlex
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Annotated, BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from tpumon.errors import MEANING, UsageError
from tpumon.model import SCHEMA_VERSION, SEVERITY_LEVELS, ListedTarget, Sample, Target, Workers, bounded
from tpumon.model.documents import UnixTime, at_most, decoded, encoded
from tpumon.model.finding import MOST_WORKERS
from tpumon.model.sample import EXPORTER
from tpumon.moments import moment_of
from tpumon.system.logdir import SESSIONS, TRACE_SUFFIX
from tpumon.untrusted_text import one_line, unexpected

_log = logging.getLogger(__name__)

PLAIN, PACKED, PACKED_BY_OTHERS = ".jsonl", ".jsonl.gz", ".jsonl.zst"

_PIECE_BYTES = 1 << 20
_LARGEST_MEMBER = 64 << 20  # unpacked, that is checked before it counts; what others pack may be one member
_DAMAGED = "damaged: what follows is left out"
_GZIP = zlib.MAX_WBITS | 16
_CHUNK_BYTES = 65536
_ZSTD_WINDOW_BYTES = 128 << 20  # the largest that the command zstd reads without being told to
_LONGEST_LINE = 8 << 20
_HEAD = 500  # of a line, in which the name of its worker stands
_LONG_BYTES = 20 << 20
_MOST_FILES = 100_000


class _Times(Struct, frozen=True):
    """The times of a line."""

    time_unix_s: UnixTime
    took_s: UnixTime = 0.0  # a sum that no calendar has would be a time of nobody, too


class _Found(Struct, frozen=True):
    """A finding of a line."""

    severity: str = ""


class _Failed(Struct, frozen=True):
    """A failure of a line."""

    source: str = ""
    reason: str = ""


class _Verdict(_Times, frozen=True):
    """The verdict that a line holds: reading no more of it takes a tenth of the time of judging it again."""

    worker: str = ""
    source: str | None = None
    findings: tuple[_Found, ...] | None = None
    errors: tuple[_Failed, ...] = ()

    @property
    def is_down(self) -> bool:
        """True if the worker did not answer."""
        if self.source is not None or not self.errors or self.errors[-1].source == EXPORTER:
            return False
        meaning = MEANING.get(self.errors[-1].reason)  # type: ignore[call-overload]
        return meaning is not None and meaning.state == "down"

    @property
    def level(self) -> int:
        """The severity of its findings as a number."""
        return max((SEVERITY_LEVELS.get(each.severity, 0) for each in self.findings or ()), default=0)


class RecordedMoment(Struct, frozen=True):
    """Content of a recording about one moment.

    Attributes:
        time_unix_s: the wall-clock time at which it was known.
        event: the workers from then on, or the sample of a query that had ended.
    """

    time_unix_s: float
    event: Workers | Sample


def is_recording(where: str) -> bool:
    """True if `--from` names files, not the URL of an exporter: a path that exists, or looks like one."""
    return where.endswith((PLAIN, PACKED, PACKED_BY_OTHERS, TRACE_SUFFIX)) or (
        "://" not in where and ("/" in where or Path(where).exists())
    )


class WorkersLine(Struct, frozen=True, kw_only=True):
    """Line with the list of workers from a time on."""

    schema: int = SCHEMA_VERSION
    time_unix_s: UnixTime
    targets: Annotated[tuple[ListedTarget, ...], at_most(MOST_WORKERS)]
    waiting: str | None = None


def workers_line(workers: Workers, now_unix_s: float) -> str:
    """Line with the list of workers."""
    listed = tuple(map(ListedTarget.of, workers.targets))
    return encoded(WorkersLine(time_unix_s=now_unix_s, targets=listed, waiting=workers.waiting))


_SIGNS = (b'"warning"', b'"critical"', b'"source":null', b'"source": null')
"""Without any of these a sample is well: most lines need not be decoded to know that."""


def _worker_of(line: bytes) -> bytes:
    """Name of the worker, as the line writes it."""
    return line[:_HEAD].partition(b'"worker":')[2].lstrip().partition(b'",')[0]


def is_workers(line: bytes) -> bool:
    """True if a line is a list of workers, and no sample."""
    return b'"targets"' in line[:200]


class Recording:
    """The files of a recording.

    Args:
        where: a directory, or one file of lines, also as `--output jsonl` writes them.

    Raises:
        UsageError: there is no such file, or nothing recorded in the directory.
    """

    def __init__(self, where: str) -> None:
        self.name = one_line(where)
        self._said: set[str] = set()
        self._left_out = 0  # lines of the file that is being read
        self._files = _files_of(where)

    def span_unix_s(self) -> tuple[float, float]:
        """The times of its first and last moment.

        Raises:
            UsageError: it holds no samples.
        """
        first = next((time for file in self._files if (time := self._begin_unix_s(file)) is not None), None)
        for file in reversed(self._files):
            last = max((time for time, _ in self._lines(file)), default=None)
            if first is not None and last is not None:
                return first, last
        readable = " that can be read" if self._said else ""
        raise UsageError(
            f"--from {self.name}: there are no samples in it{readable}; give what --record or --output jsonl wrote"
        )

    @property
    def is_long(self) -> bool:
        """True if it takes more than some seconds to read all of it."""
        with suppress(OSError):
            return sum(file.stat().st_size for file in self._files) > _LONG_BYTES
        return False

    def moment_of(self, at: str) -> float:
        """The moment that a text means, as of `tpumon.moments`.

        Raises:
            UsageError: it means none, or none of the recording; or this holds no samples.
        """
        try:
            return moment_of(at, *self.span_unix_s())
        except ValueError as error:
            raise UsageError(f"--at {one_line(at)}: {error}") from None

    def worst_unix_s(self) -> float | None:
        """The first moment at which a worker was as bad as any ever was, as judged then; None: all were well.

        A worker that has never answered is not known to be bad. One that is down is critical, unless that is of one
        sample: a single answer that fails must not hide what went on being bad.
        """
        worst, at_unix_s = SEVERITY_LEVELS["info"], None
        have_answered: set[bytes] = set()
        were_down: set[bytes] = set()
        for line in chain.from_iterable(_split(self._bytes(file)) for file in self._files):
            worker = _worker_of(line)
            if not any(sign in line for sign in _SIGNS):
                have_answered.add(worker)
                were_down.discard(worker)
                continue
            try:
                verdict = decoded(_Verdict, line)
            except ValueError:
                continue  # it is said where it is read
            if verdict.source is not None:
                have_answered.add(worker)
            stays_down = verdict.is_down and worker in were_down
            (were_down.add if verdict.is_down else were_down.discard)(worker)
            level = SEVERITY_LEVELS["critical"] if stays_down else verdict.level
            if level > worst and worker in have_answered:
                worst, at_unix_s = level, verdict.time_unix_s + verdict.took_s
                if worst == max(SEVERITY_LEVELS.values()):
                    break
        return at_unix_s

    def moments(self, begin_unix_s: float = -math.inf) -> Iterator[RecordedMoment]:
        """Yields what was recorded from a time on, in the order in which it was written, also if the clock goes back.

        The first moment has the list of workers: from a line of the file, or else the workers that have samples.
        """
        known: dict[str, Target] = {}
        last: Workers | None = None
        from_lines = has_begun = False
        for file in self._from(begin_unix_s):
            self._left_out = 0
            for time_unix_s, line in self._lines(file):
                has_begun = has_begun or time_unix_s >= begin_unix_s
                if not has_begun and not is_workers(line):
                    continue
                event = self._event(file, line)
                if isinstance(event, Workers):
                    from_lines = True
                    if event != last:
                        last = event
                        yield RecordedMoment(time_unix_s, event)
                elif event is not None:
                    if not from_lines and event.worker not in known and len(known) < MOST_WORKERS:
                        known[event.worker] = Target(
                            worker=event.worker, address=event.address, job=event.job, slice=event.slice
                        )
                        yield RecordedMoment(time_unix_s, Workers(targets=tuple(known.values())))
                    yield RecordedMoment(time_unix_s, event)
            if self._left_out > 1:
                self._tell(file, f"{self._left_out} such lines are left out")

    def _from(self, begin_unix_s: float) -> Sequence[Path]:
        """The files that hold what was recorded from a time on, and the one before."""
        if begin_unix_s == -math.inf:
            return self._files
        first = 0
        for place, file in enumerate(self._files):
            time = self._begin_unix_s(file)
            if time is not None and time <= begin_unix_s:
                first = place
        return self._files[first:]

    def _begin_unix_s(self, file: Path) -> float | None:
        return next((time for time, _ in self._lines(file)), None)

    def _lines(self, file: Path) -> Iterator[tuple[float, bytes]]:
        """The lines of a file, each with the time at which it was known; those without are said."""
        for line in _split(self._bytes(file)):
            try:
                times = decoded(_Times, line)
            except ValueError as error:
                self._leave_out(file, error)
            else:
                yield times.time_unix_s + times.took_s, line

    def _event(self, file: Path, line: bytes) -> Workers | Sample | None:
        try:
            if is_workers(line):
                listed = decoded(WorkersLine, line)
                return Workers.listed(listed.targets, listed.waiting)
            # Judged by the reader, with the limits that hold there; otherwise some lines would be judged and others
            # not.
            return replace(bounded(Sample.from_json(line)), findings=None, judged=None)
        except Exception as error:  # noqa: BLE001 - whatever is in it
            self._leave_out(file, error)
            return None

    def _bytes(self, file: Path) -> Iterator[bytes]:
        try:
            with file.open("rb") as reader:
                if file.name.endswith(PACKED):
                    yield from _unpacked(reader, lambda: self._tell(file, _DAMAGED))
                elif file.name.endswith(PACKED_BY_OTHERS):
                    yield from _unpacked_zstd(reader, lambda: self._tell(file, _DAMAGED))
                else:
                    yield from iter(lambda: reader.read(_CHUNK_BYTES), b"")
        except FileNotFoundError:  # the recorder has removed it meanwhile
            return
        except OSError as error:
            self._tell(file, f"cannot be read: {error.strerror}")
        except Exception as error:  # noqa: BLE001 - whatever is in it
            self._tell(file, f"cannot be read: {unexpected(error)}")

    def _leave_out(self, file: Path, error: Exception) -> None:
        self._left_out += 1
        self._tell(file, "a line that is no sample is left out", f" ({error})")

    def _tell(self, file: Path, what: str, why: str = "") -> None:
        line = f"{one_line(str(file))}: {what}"
        if line not in self._said:
            self._said.add(line)
            _log.warning("%s%s", line, why)


def _files_of(where: str) -> Sequence[Path]:
    path = Path(where)
    try:
        if not path.is_dir():
            if not path.is_file():
                what = "there is no such file or directory" if not path.exists() else "not a file or a directory"
                raise UsageError(f"--from {one_line(where)}: {what}; give a recording, or http://HOST:PORT")
            files = [path]
        else:
            kinds = (PLAIN, PACKED, PACKED_BY_OTHERS)
            files = sorted(one for one in path.iterdir() if one.name.endswith(kinds) and one.is_file())[-_MOST_FILES:]
        is_profile = (path / SESSIONS).is_dir() or any(path.glob(f"*{TRACE_SUFFIX}"))
    except OSError as error:
        raise UsageError(f"--from {one_line(where)}: {error.strerror}") from None
    if path.name.endswith(TRACE_SUFFIX) or (is_profile and not files):
        judging = f"tpumon why --from {shlex.quote(one_line(where))}"
        raise UsageError(
            f"--from {one_line(where)}: a profile, not samples: for tpumon analyze, or to judge it: {judging}"
        )
    if not files:
        raise UsageError(f"--from {one_line(where)}: no {PLAIN} or {PACKED} in it; --record writes such files")
    return files


def _unpacked_zstd(packed: BinaryIO, damaged: Callable[[], None]) -> Iterator[bytes]:
    """The contents of zstd frames in a row, up to the first damage. One that is cut off counts as far as it goes."""
    import zstandard

    unpack = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    with unpack.stream_reader(packed, read_across_frames=True, closefd=False) as reader:
        try:
            while contents := reader.read1(_CHUNK_BYTES):
                yield contents
        except zstandard.ZstdError:
            damaged()


def _unpacked(packed: BinaryIO, damaged: Callable[[], None]) -> Iterator[bytes]:
    """The contents of gzip members in a row, up to the first damage.

    A member counts once its sum is right: what a damaged one holds may look like samples and be none. One without an
    end, of a recorder that was killed or still writes, counts as far as it goes; a large one as it comes.
    """
    unpack, contents, size = zlib.decompressobj(_GZIP), list[bytes](), 0
    while data := packed.read(_CHUNK_BYTES):
        while data:
            try:
                contents.append(unpack.decompress(data, _PIECE_BYTES))
            except zlib.error:
                damaged()
                return
            size += len(contents[-1])
            if unpack.eof or size > _LARGEST_MEMBER:
                yield from contents
                contents.clear()
            data = unpack.unconsumed_tail
            if unpack.eof:
                data, unpack, size = unpack.unused_data, zlib.decompressobj(_GZIP), 0
    yield from contents
    yield unpack.flush()


def _split(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Complete lines, without blank lines and lines that are too long."""
    rest, skipping = b"", False
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip() and not skipping:
                yield line
            skipping = False
        if len(rest) > _LONGEST_LINE:
            rest, skipping = b"", True

"""The page of metrics as a file for node_exporter's textfile collector."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tpumon.errors import UsageError
from tpumon.history import Histories
from tpumon.model import Sample, Workers
from tpumon.outputs import OutputOptions
from tpumon_exporters.exposition import Exposition

_PAUSE_S = 1.0
_REWRITE_S = 10.0
_MODE = 0o644  # node_exporter is somebody else


class TextFile:
    """Rewrites a file as a whole, at most once a second; it is there only as long as somebody keeps it current.

    It is also rewritten when nothing comes in, because samples become stale. Removed at the end: node_exporter would go
    on showing the last figures as the present ones.

    Args:
        path: the file; its directory must exist.
        clock: seconds since the epoch.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.name}.tmp")  # the collector reads only *.prom
        self._clock = clock
        self.say: Callable[[str], None] = lambda _line: None
        self._exposition = Exposition(lambda line: self.say(f"textfile: {line}"))
        self._histories = Histories()
        self._changed = threading.Condition()
        self._dirty = self._closing = False
        self._trouble: OSError | None = None  # until the file could be written again
        self._rewrite()
        self._thread = threading.Thread(target=self._run, name="tpumon-textfile", daemon=True)
        self._thread.start()

    def follow(self, found: Workers) -> None:
        """Those that are gone vanish from the file."""
        with self._changed:
            self._histories.follow(found)
            self._mark()

    def write(self, sample: Sample) -> None:
        """In the file within a second.

        Raises:
            OSError: the file could not be written last time and is gone; it will be tried again.
        """
        with self._changed:
            self._histories.add(sample)
            self._mark()
        if self._trouble is not None:
            raise self._trouble.with_traceback(None)

    def close(self) -> None:
        """Removes the file."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_PAUSE_S)
        for path in (self._path, self._beside):
            path.unlink(missing_ok=True)

    def _mark(self) -> None:
        self._dirty = True
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._dirty or self._closing, _REWRITE_S)
                if self._closing:
                    return
            try:
                self._rewrite()
            except OSError as error:
                self._trouble = error
            else:
                self._trouble = None
            with self._changed:
                self._changed.wait_for(lambda: self._closing, _PAUSE_S)

    def _rewrite(self) -> None:
        with self._changed:
            self._dirty = False
            page = self._exposition.render(self._histories, self._clock())
        try:
            with self._beside.open("wb") as file:
                os.fchmod(file.fileno(), _MODE)
                file.write(page.encode(errors="replace"))
            self._beside.replace(self._path)
        except OSError:
            for path in (self._beside, self._path):  # what stands there would go on being shown as the present
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
            raise


def open_textfile(where: str, _options: OutputOptions) -> TextFile:
    """Args:
        where: a path ending in `.prom`, in the directory that node_exporter reads.

    Raises:
        UsageError: it is not, or cannot be written.
    """
    path = Path(where)
    if path.suffix != ".prom":
        raise UsageError(f"cannot write to {where}: node_exporter reads only files called *.prom; give such a name")
    try:
        return TextFile(path)
    except OSError as error:
        raise UsageError(
            f"cannot write to {where}: {error.strerror}; give a file in the directory of node_exporter's "
            "--collector.textfile.directory"
        ) from None

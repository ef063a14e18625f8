"""The metrics page as a file for node_exporter's textfile collector."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path

from msgspec import Struct

from tpumon.analysis import Update
from tpumon.errors import UsageError
from tpumon.outputs import Context, Output, not_to_stdout, takes
from tpumon_exporters.exposition import Exposition

_log = logging.getLogger(__name__)

_REFRESH_S = 10.0
_SHORTEST_INTERVAL_S = 0.1
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o644  # node_exporter runs as another user


class TextFileOptions(Struct, frozen=True, kw_only=True):
    """Options of this exporter.

    Attributes:
        interval_s: least seconds between two versions of the file.
    """

    interval_s: float = 1.0

    def __post_init__(self) -> None:
        if self.interval_s < _SHORTEST_INTERVAL_S:
            raise ValueError(f"interval_s must be at least {_SHORTEST_INTERVAL_S:g}")


class TextFile(Output):
    """Replaces the file after changes, with each tick at most, and every 10 s without: samples become stale.

    The file exists only while it is kept up to date. It is removed at the end, and while it cannot be replaced:
    node_exporter would go on exposing its last figures as current.

    Args:
        path: the file; its directory must exist.
        context: the run.
        options: the exporter's own options.

    Raises:
        OSError: the file cannot be written.

    Attributes:
        tick_s: seconds between ticks.
    """

    def __init__(self, path: Path, context: Context, options: TextFileOptions | None = None) -> None:
        self.tick_s = (options or TextFileOptions()).interval_s
        self._path = path
        self._new = path.with_name(f".{path.name}.tmp")  # the collector reads only *.prom
        self._exposition = Exposition("textfile", context.settings.expose)
        self._analysis = context.analysis
        self._changed = True
        self._written_unix_s = 0.0
        self._replace(time.time())

    def on_update(self, _update: Update) -> None:
        """Notes that something changed, which the next tick writes."""
        self._changed = True

    def tick(self, now_unix_s: float) -> None:
        """Replaces the file if something changed, or after 10 s."""
        if self._changed or not 0 <= now_unix_s - self._written_unix_s < _REFRESH_S:
            self._replace(now_unix_s)

    def close(self) -> None:
        """Removes the file, and says so."""
        if self._path.exists():
            _log.info("%s is removed as tpumon ends: node_exporter would go on exposing it", self._path)
        for path in (self._path, self._new):
            path.unlink(missing_ok=True)

    def _replace(self, now_unix_s: float) -> None:
        self._changed = True  # until it is written
        page = self._exposition.render(self._analysis.status(now_unix_s))
        try:
            self._new.unlink(missing_ok=True)  # left by a kill, or put there by others: it is never written to
            with os.fdopen(os.open(self._new, _NEW_FILE, _MODE), "wb") as file:
                os.fchmod(file.fileno(), _MODE)  # whatever the umask
                file.write(page.encode(errors="replace"))
            self._new.replace(self._path)
        except OSError:
            for path in (self._new, self._path):  # node_exporter would expose old figures as current
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
            raise
        self._changed = False
        self._written_unix_s = now_unix_s


@not_to_stdout
@takes(TextFileOptions)
def open_textfile(where: str, context: Context, options: TextFileOptions) -> TextFile:
    """Opens the output; `where`: a path ending in `.prom`, in the directory that node_exporter reads."""
    path = Path(where)
    if path.suffix != ".prom":
        raise UsageError(f"cannot write to {where}: node_exporter only reads *.prom files; give a name ending in .prom")
    try:
        return TextFile(path, context, options)
    except OSError as error:
        raise UsageError(
            f"cannot write to {where}: {error.strerror}; give a file in the directory of node_exporter's "
            "--collector.textfile.directory"
        ) from None

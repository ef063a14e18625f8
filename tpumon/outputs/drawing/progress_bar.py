"""A progress bar for one profile, or for samples that are taken; only on a terminal."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

_REFRESH_S = 0.1


class Bar:
    """A context manager that shows a progress bar; without a terminal it draws nothing and needs no refresh."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._words = ""

    @property
    def refresh_s(self) -> float | None:
        """Seconds between two calls of `refresh`; None: never."""
        return _REFRESH_S if self._stream.isatty() else None

    def start(self, duration_s: float, words: str = "tracing") -> None:
        """Shows a new bar for something that takes about this long.

        Args:
            duration_s: seconds.
            words: for what; once it takes longer, `collecting`.
        """
        if not self._stream.isatty():
            return
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

        self.stop()
        self._begin(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), words=words, total=duration_s)
        self._words = words

    def _begin(self, *columns: ProgressColumn, words: str, total: float | None) -> None:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(file=self._stream)
        self._progress = Progress(*columns, console=console, transient=True, auto_refresh=False)
        self._task = self._progress.add_task(words, total=total)
        self._progress.start()

    def count(self, done: int, total: int, words: str) -> None:
        """Shows how many of some things are there; a total of 0 is not known yet."""
        if not self._stream.isatty():
            return
        if self._progress is None:
            from rich.progress import BarColumn, TextColumn

            self._begin(BarColumn(20), TextColumn("{task.description}", markup=False), words=words, total=None)
        if self._progress is not None and self._task is not None:
            with contextlib.suppress(OSError):
                self._progress.update(self._task, completed=done, total=total or None, description=words, refresh=True)

    def refresh(self) -> None:
        if self._progress is None or self._task is None:
            return
        task = self._progress.tasks[0]
        overdue = task.total is not None and (task.elapsed or 0) > task.total
        words = "collecting" if overdue else self._words
        with contextlib.suppress(OSError):
            self._progress.update(self._task, completed=task.elapsed or 0, description=words, refresh=True)

    def stop(self) -> None:
        if self._progress is not None:
            with contextlib.suppress(OSError):  # the terminal may be gone
                self._progress.stop()
        self._progress = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

"""A job's owner who profiles it in its own process, as the frameworks' documentation says."""

from __future__ import annotations

from collections.abc import Callable


class Owner:
    """Begins and ends traces, and says on stdout how each call went.

    `trace begun DIR`, `trace ended DIR`, or `trace not begun DIR: ERROR`.

    Args:
        begin: the framework's call; gets the directory.
        end: the framework's call.
    """

    def __init__(self, begin: Callable[[str], None], end: Callable[[], None]) -> None:
        self._begin = begin
        self._end = end
        self._tracing: str | None = None

    def wants(self, directory: str | None) -> None:
        """Traces into that directory from now on, or not any more."""
        if directory == self._tracing:
            return
        ending, self._tracing = self._tracing, directory
        if ending is not None:
            self._say("ended", ending, self._end)
        if directory is not None:
            self._say("begun", directory, lambda: self._begin(directory))

    @staticmethod
    def _say(done: str, directory: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001  whatever a framework makes of a trace that it may not take
            print(f"trace not {done} {directory}: {type(error).__name__}: {error}", flush=True)
        else:
            print(f"trace {done} {directory}", flush=True)

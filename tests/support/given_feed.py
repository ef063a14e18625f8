"""A feed whose events a test gives, in place of one that samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from tpumon.analysis import Analysis, FleetStatus, Update
from tpumon.model import SourceEvent
from tpumon.outputs import Context
from tpumon.pipeline import FeedSettings


class GivenFeed:
    """Analyses events as they are asked for.

    Args:
        settings: as of `open_feed`.
        events: makes the events; None: nothing came in time.
        remembers: as of `open_feed`.
        on_exit: called at the end.
        clock: returns the time at which `status` is asked for.

    Attributes:
        context: as of `Feed`.
    """

    def __init__(
        self,
        settings: FeedSettings,
        events: Callable[[], Iterable[SourceEvent | None]],
        *,
        remembers: bool = False,
        on_exit: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        **_more: Any,
    ) -> None:
        self._events, self._on_exit, self._clock = events, on_exit, clock
        self._analysis = Analysis(settings.output_settings.thresholds)
        if remembers:
            self._analysis.remember()
        self.context = Context(settings=settings.output_settings, analysis=self._analysis, clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._on_exit()

    def status(self) -> FleetStatus:
        """As of `Feed`."""
        return self._analysis.status(self._clock())

    def updates(self, *, timeout_s: float) -> Iterator[Update | None]:
        """As of `Feed`."""
        assert timeout_s > 0
        for event in self._events():
            yield None if event is None else self._analysis.add(event)

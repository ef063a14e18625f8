"""An output or an analysis that is given events, as a run gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tpumon.analysis import Analysis
from tpumon.model import Finding, Sample, SourceEvent
from tpumon.outputs import Context, Output, OutputSettings, open_output


class Wired:
    """An output behind an analysis. What it has itself is the output's.

    Args:
        opening: opens it.
        fleet: the analysis; None: a new one.
        context: as of `Context`.
    """

    def __init__(self, opening: Callable[[Context], Output], fleet: Analysis | None = None, **context: Any) -> None:
        settings = context.get("settings", OutputSettings())
        self.fleet = fleet or Analysis(settings.thresholds)
        self.context = Context(analysis=self.fleet, **context)
        self.output = opening(self.context)
        if self.output.remembers:
            self.fleet.remember()

    def add(self, *events: SourceEvent) -> None:
        """Gives it the updates of these events."""
        for event in events:
            self.output.on_update(self.fleet.add(event))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.output, name)


def wired(name: str, where: str, options: dict[str, str] | None = None, **context: Any) -> Wired:
    """The output with this name."""
    return Wired(lambda given: open_output(name, where, given, options), **context)


class Judged:
    """Samples, judged one after the other."""

    def __init__(self, *events: SourceEvent, **limits: Any) -> None:
        self.fleet = Analysis(**limits)
        for event in events:
            self.fleet.add(event)

    def judged(self, sample: Sample) -> Sample:
        """The sample with its findings."""
        return self.update(sample)[0]

    def update(self, sample: Sample) -> tuple[Sample, tuple[Finding, ...]]:
        """The sample with its findings, and these at length."""
        update = self.fleet.add(sample)
        assert update.sample is not None
        return update.sample, update.findings

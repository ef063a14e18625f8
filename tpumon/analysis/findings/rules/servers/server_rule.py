"""Common ground of the rules of servers: for which kinds of job they hold, and what their requests are."""

from __future__ import annotations

from typing import ClassVar, Generic

from tpumon.analysis.findings.rule import NO_SERVERS, MemoryT, Observation, Rule, StatsT
from tpumon.model import FindingSeverity, ServerFigures


class ServerRule(Rule[MemoryT, StatsT], Generic[MemoryT, StatsT]):
    """A finding of servers of models. Also a quiet sample tells something: its requests."""

    severities: ClassVar[tuple[FindingSeverity, ...]] = ("info",)
    not_for = NO_SERVERS
    states = frozenset({"no-activity"})
    hidden_by = frozenset({"stuck"})


def why_no_requests(seen: Observation) -> str:
    """The reason why nothing tells its requests: its page lacks something, or there is none."""
    page = "--server-metrics URL names the page on which the server counts them"
    if seen.target.server_metrics is not None:
        page = "the page on which the server counts them does not answer"
    return f"nothing tells its requests: {seen.figures.absent.get('requests_running', page)}"


def server_of(seen: Observation) -> ServerFigures:
    """The figures of the server; none where it has none."""
    return seen.figures.server or ServerFigures()

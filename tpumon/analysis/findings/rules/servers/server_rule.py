"""Common ground of the rules of servers: for which kinds of job they hold, and what their requests are."""

from __future__ import annotations

from typing import ClassVar, Generic

from tpumon.analysis.findings.rule import NO_SERVERS, MemoryT, Observation, Rule, StatsT
from tpumon.model import FindingSeverity, ServerFigures

NO_REQUESTS = "nothing tells its requests: --server-metrics URL names the page on which the server counts them"


class ServerRule(Rule[MemoryT, StatsT], Generic[MemoryT, StatsT]):
    """A finding of servers of models. Also a quiet sample tells something: its requests."""

    severities: ClassVar[tuple[FindingSeverity, ...]] = ("info",)
    not_for = NO_SERVERS
    states = frozenset({"no-activity"})
    hidden_by = frozenset({"stuck"})


def server_of(seen: Observation) -> ServerFigures:
    """The figures of the server; none where it has none."""
    return seen.figures.server or ServerFigures()

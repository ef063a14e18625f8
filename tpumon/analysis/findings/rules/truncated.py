"""truncated: figures rest on a part of the trace, because the profiler dropped events."""

from __future__ import annotations

from tpumon.analysis.findings.rule import SERVERS, Member, Rule
from tpumon.model import Evidence, FindingDetail


class Truncated(Rule[None, None]):
    """The traces of the last samples are truncated.

    Where a server has no more requests its events end before the window does, as they do in a truncated trace.
    """

    finding = "truncated"
    not_for = SERVERS
    remedy = (
        "tpumon asks for smaller traces by itself; where that does not help, choose a shorter window (--duration-ms), "
        "and switch kernel tracing off"
    )
    severities = ("info",)
    hidden_by = frozenset()

    def severity_ratio(self, member: Member[None, None]) -> float | str:
        """2 if it is truncated, otherwise 0."""
        sample = member.seen.sample
        return "there is no trace" if sample.source == "monitor" else 2.0 * (sample.truncated is not None)

    def detail(self, member: Member[None, None]) -> FindingDetail:
        """Says what is missing."""
        window_s = member.seen.sample.window_s
        return FindingDetail(
            words="truncated traces",
            sentence="{who}, the profiler dropped events: figures rest on a part of the window, or are absent.",
            evidence={} if window_s is None else {"window_s": Evidence(value=window_s)},
            severity="info",
        )

"""host-gap: the chip is idle while requests wait."""

from __future__ import annotations

from collections.abc import Mapping

from tpumon.analysis.findings.rule import Member, graded
from tpumon.analysis.findings.rules.servers.server_rule import ServerRule, server_of, why_no_requests
from tpumon.model import Evidence, FindingDetail, FindingSeverity

_LIMITS: Mapping[FindingSeverity, float] = {"info": 0.30, "warning": 0.50}


class HostGap(ServerRule[None, None]):
    """No program above 30 % of the time in which there are requests; a warning above 50 %."""

    finding = "host-gap"
    remedy = (
        "give the host less to do between two programs: asynchronous scheduling (--async-scheduling), several decode "
        "steps per call, tokenizing and detokenizing in processes of their own, no logging per request, cores that "
        "nobody else uses; py-spy shows what the engine's thread does"
    )
    severities = ("info", "warning")
    hidden_by = frozenset({"stuck", "compiling-while-serving"})

    def severity_ratio(self, member: Member[None, None]) -> float | str:
        """Relative to the limit."""
        server = server_of(member.seen)
        if server.requests_running is None:
            return why_no_requests(member.seen)
        if server.host_gap_ratio is None:
            return member.seen.figures.absent.get("host_gap_ratio", "no trace shows its programs while it has requests")
        if member.seen.state == "no-activity" and server.tokens_per_s == 0:
            return "nothing comes of its requests: whether it is stuck will show"
        return server.host_gap_ratio / _LIMITS["info"]

    def detail(self, member: Member[None, None]) -> FindingDetail:
        """Says how many requests there are."""
        server = server_of(member.seen)
        gap_ratio = server.host_gap_ratio or 0.0
        severity, limit = graded(gap_ratio, _LIMITS)
        return FindingDetail(
            words=f"host gap {gap_ratio:.0%}",
            sentence=f"{{who}}, the TPU runs no program for {gap_ratio:.0%} of the time in which there are requests: "
            "the host hands them out too slowly.",
            evidence={
                "host_gap_ratio": Evidence(value=gap_ratio, threshold=limit),
                "requests_running": Evidence(value=server.requests_running or 0.0),
            },
            severity=severity,
        )

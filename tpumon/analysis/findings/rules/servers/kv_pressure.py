"""kv-pressure: the cache of keys and values is too small for the requests."""

from __future__ import annotations

from tpumon.analysis.findings.rule import Member
from tpumon.analysis.findings.rules.servers.server_rule import ServerRule, server_of, why_no_requests
from tpumon.model import Evidence, FindingDetail

_FULL_RATIO = 0.95


class KvPressure(ServerRule[None, None]):
    """Requests are put back for want of cache in each sample, or wait while it is 95 % full."""

    finding = "kv-pressure"
    remedy = (
        "give the cache more room (--gpu-memory-utilization, --mem-fraction-static, a cache of 8 bits, more chips per "
        "replica), or let fewer and shorter requests run at once (--max-num-seqs, --max-model-len), or add replicas"
    )

    def severity_ratio(self, member: Member[None, None]) -> float | str:
        """The share that is in use relative to the limit, while requests wait; 2 while any are put back."""
        server = server_of(member.seen)
        if server.preemptions_per_s:
            return 2.0
        if server.kv_used_ratio is None:
            nothing = "nothing tells how full its cache is"
            return why_no_requests(member.seen) if server.requests_running is None else nothing
        return server.kv_used_ratio / _FULL_RATIO if server.requests_waiting else 0.0

    def detail(self, member: Member[None, None]) -> FindingDetail:
        """Says how full it is, and what that costs."""
        server = server_of(member.seen)
        used, preemptions = server.kv_used_ratio, server.preemptions_per_s or 0.0
        evidence = {}
        if used is not None:
            evidence["kv_used_ratio"] = Evidence(value=used, threshold=_FULL_RATIO)
        full = "is too small" if used is None else f"is {used:.0%} full"
        if preemptions:
            evidence["preemptions_per_s"] = Evidence(value=preemptions, threshold=0.0)
            then = f"requests are put back and computed again, {preemptions:.2g} a second"
        else:
            evidence["requests_waiting"] = Evidence(value=server.requests_waiting or 0.0, threshold=0.0)
            then = f"{server.requests_waiting or 0.0:.0f} requests wait"
        return FindingDetail(
            words="cache too small" if used is None else f"cache {used:.0%} full",
            sentence=f"{{who}}, the cache of keys and values {full}: {then}.",
            evidence=evidence,
            severity="info",
        )

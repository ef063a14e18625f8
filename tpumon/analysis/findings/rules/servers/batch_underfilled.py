"""batch-underfilled: requests wait while batches are mostly padding."""

from __future__ import annotations

from tpumon.analysis.findings.rule import Member
from tpumon.analysis.findings.rules.servers.server_rule import ServerRule, server_of, why_no_requests
from tpumon.model import Evidence, FindingDetail

_LIMIT_RATIO = 0.50


class BatchUnderfilled(ServerRule[None, None]):
    """More than half of what is computed is padding, although requests wait that could take its place.

    Where none wait that is how low load looks.
    """

    finding = "batch-underfilled"
    remedy = (
        "let more requests and tokens into a batch (--max-num-seqs, --max-num-batched-tokens, chunked prefill), and "
        "compile sizes between those that there are (VLLM_TPU_BUCKET_PADDING_GAP)"
    )
    hidden_by = frozenset({"stuck", "host-gap", "kv-pressure"})

    def severity_ratio(self, member: Member[None, None]) -> float | str:
        """Padding relative to the limit, while requests wait."""
        server = server_of(member.seen)
        if server.requests_waiting is None:
            return why_no_requests(member.seen)
        if server.padding_ratio is None:
            return member.seen.figures.absent.get("padding_ratio", "nothing tells how full its batches are")
        return server.padding_ratio / _LIMIT_RATIO if server.requests_waiting else 0.0

    def detail(self, member: Member[None, None]) -> FindingDetail:
        """Says how many requests wait."""
        server = server_of(member.seen)
        padding, waiting = server.padding_ratio or 0.0, server.requests_waiting or 0.0
        return FindingDetail(
            words=f"padding {padding:.0%}",
            sentence=f"{{who}}, {padding:.0%} of the computed tokens are padding, while {waiting:.0f} requests wait.",
            evidence={
                "padding_ratio": Evidence(value=padding, threshold=_LIMIT_RATIO),
                "requests_waiting": Evidence(value=waiting, threshold=0.0),
            },
            severity="info",
        )

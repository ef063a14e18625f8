"""compiling-while-serving: requests wait for the compiler."""

from __future__ import annotations

from dataclasses import dataclass, field

from tpumon.analysis.findings.rule import Member, Observation
from tpumon.analysis.findings.rules.recompiling import Compiling
from tpumon.analysis.findings.rules.servers.server_rule import ServerRule, server_of, why_no_requests
from tpumon.analysis.history import Moment, seconds_between
from tpumon.model import COMPILE_LIMIT_RATIO, FindingDetail

_WARM_UP_S = 1800.0


@dataclass(slots=True)
class CompilingOfServer:
    """Samples that showed compiling while there were requests, and since when it runs, as far as that is known."""

    began: Moment | None = None
    compiling: Compiling = field(default_factory=Compiling)


class CompilingWhileServing(ServerRule[CompilingOfServer, None]):
    """The host compiles above 10 % of the time in several samples with requests, later than 30 minutes after it began.

    Until then it warms up, also by requests that ask for one size after the other.
    """

    finding = "compiling-while-serving"
    memory_type = CompilingOfServer
    remedy = (
        "compile all sizes before the first request (no SKIP_JAX_PRECOMPILE; enable_model_warmup of JetStream), keep "
        "them in a cache on disk (JAX_COMPILATION_CACHE_DIR, VLLM_XLA_CACHE_PATH), and limit the sizes; "
        "JAX_LOG_COMPILES=1 says what is compiled"
    )
    severities = ("warning",)
    samples = 1  # it takes two of the last ones
    leaves_below = 0.5

    def remember(self, memory: CompilingOfServer, seen: Observation) -> None:
        """Counts samples that show it."""
        started_unix_s = None if seen.sample.process is None else seen.sample.process.started_unix_s
        memory.began = memory.began or (seen.at if started_unix_s is None else Moment(started_unix_s))
        ratio = seen.figures.compile_ratio
        if not self.judges(seen.state) or ratio is None:
            return
        is_warm = seconds_between(memory.began, seen.at) > _WARM_UP_S
        counts = is_warm and ratio > COMPILE_LIMIT_RATIO and bool(server_of(seen).requests)
        memory.compiling.note(ratio if counts else None, seen.at)

    def severity_ratio(self, member: Member[CompilingOfServer, None]) -> float | str:
        """Number of the last samples that showed it."""
        if server_of(member.seen).requests is None:
            return why_no_requests(member.seen)
        return member.memory.compiling.severity_ratio

    def detail(self, member: Member[CompilingOfServer, None]) -> FindingDetail:
        """Says how much of the time the host compiled when it did last."""
        compiling = member.memory.compiling
        return FindingDetail(
            words=f"compiles {compiling.ratio:.0%} while serving",
            sentence=f"{{who}}, the server compiles again and again while it has requests, which wait for that; the "
            f"host compiles {compiling.ratio:.0%} of the time.",
            evidence=compiling.evidence(),
        )

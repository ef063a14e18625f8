"""recompiling: the host compiles again and again while steps run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpumon.analysis.findings.rule import PAUSING, SERVERS, Member, Observation, Rule
from tpumon.model import Evidence, FindingDetail

_OFTEN = 2  # samples
_FURTHEST = 24  # samples from one that shows compiling to the next
_LEAST_QUIET = 2  # samples without compiling after which it is over

_NOT_KNOWN = "nothing tells what the host compiles: traces have no events of the host (--host-tracer-level 1)"


@dataclass(slots=True)
class Compiling:
    """Samples that showed compiling amid steps.

    Attributes:
        known: whether any sample says how much the host compiles.
        count: number of such samples, none of them far from the one before.
        gap: the furthest that two of them are apart, in samples.
        quiet: samples since the last one.
        ratio: share of the time for which the host compiled in the last one.
    """

    known: bool = False
    count: int = 0
    gap: int = 1
    quiet: int = 0
    ratio: float = 0.0

    @property
    def is_over(self) -> bool:
        """True if it has not compiled for twice as long as it did between compiling."""
        far = _FURTHEST if self.count < _OFTEN else max(_LEAST_QUIET, 2 * self.gap)
        return self.quiet >= far

    @property
    def severity_ratio(self) -> float | str:
        """Number of such samples, relative to how many it takes; a text: why that is not known."""
        return self.count / (_OFTEN - 0.5) if self.known else _NOT_KNOWN

    def evidence(self, limit_ratio: float) -> Mapping[str, Evidence]:
        """The figures that it rests on; the limit is that of the share of time in one sample."""
        return {
            "compiling_samples": Evidence(value=self.count, threshold=_OFTEN),
            "compile_ratio": Evidence(value=self.ratio, threshold=limit_ratio),
        }

    def note(self, ratio: float | None) -> None:
        """Notes a sample: the share of the time for which it shows compiling; None: it shows none."""
        self.known = True
        if ratio is None:
            self.quiet += 1
            self.count = 0 if self.is_over else self.count
            return
        self.gap = max(self.gap, self.quiet + 1) if self.count else 1
        self.count, self.quiet, self.ratio = self.count + 1, 0, ratio


class Recompiling(Rule[Compiling, None]):
    """Several samples, not far from each other, in which the host compiles amid steps.

    A program that was not seen before says nothing: it may have been compiled before tpumon looked.
    """

    finding = "recompiling"
    not_for = SERVERS
    info_for = PAUSING
    memory_type = Compiling
    remedy = (
        "keep shapes and static arguments the same from step to step: drop_remainder=True, batches and sequences "
        "padded to a few sizes, no changing static_argnums, no functions made anew; JAX_LOG_COMPILES=1 and "
        "JAX_EXPLAIN_CACHE_MISSES=1 say what is new"
    )
    samples = 1  # it takes two of the last ones
    leaves_below = 0.5
    hidden_by = frozenset({"hang"})

    def remember(self, memory: Compiling, seen: Observation) -> None:
        """Counts samples that show it; compiling without steps is how every job begins."""
        figures = seen.figures
        if seen.state != "live" or figures.compile_ratio is None:
            return
        counts = figures.step_time_s is not None and figures.compile_ratio > self.limits.compile_ratio
        memory.note(figures.compile_ratio if counts else None)

    def severity_ratio(self, member: Member[Compiling, None]) -> float | str:
        """Number of the last samples that showed it."""
        return member.memory.severity_ratio

    def detail(self, member: Member[Compiling, None]) -> FindingDetail:
        """Says how much of the time the host compiled when it did last."""
        memory = member.memory
        return FindingDetail(
            words=f"compiles {memory.ratio:.0%}",
            sentence=f"{{who}}, the job compiles again and again while it trains; the host compiles "
            f"{memory.ratio:.0%} of the time.",
            evidence=memory.evidence(self.limits.compile_ratio),
        )

"""input-bound: the device waits for input."""

from __future__ import annotations

from dataclasses import dataclass

from tpumon.analysis.findings.rule import SERVERS, Member, Observation, Rule, graded
from tpumon.model import IDLE_LIMIT_RATIO, Evidence, FindingDetail
from tpumon.model.figure_table import INFEED

_UNLIKE = 2
_AS_MUCH_RATIO = 0.8  # of what it was in the sample that showed a share


def input_share(seen: Observation) -> tuple[float, str] | None:
    """Share of the time that the step waits for input, and the figure that says so; None where neither is known."""
    infeed = seen.figures.infeed_ratio
    if infeed is not None:
        return infeed.avg, "infeed_ratio"
    waited = seen.figures.input_wait_ratio
    return None if waited is None else (waited, "input_wait_ratio")


@dataclass(slots=True)
class _Known:
    """Share of input that the one sample that traced more of the host showed; it stands while later ones look like it.

    Attributes:
        share: the share, and the figure that says so; None: not known.
        idle_ratio, step_s: of that sample.
        unlike: samples in a row that do not look like it; one may be a window that shows part of the job alone.
    """

    share: tuple[float, str] | None = None
    idle_ratio: float | None = None
    step_s: float | None = None
    unlike: int = 0

    def stands(self, seen: Observation) -> bool:
        """True if the device is as idle as then, or where there is none, steps are as long: less waiting ends both."""
        idle = seen.figures.idle_ratio
        if idle is not None:
            return idle >= max(IDLE_LIMIT_RATIO, _AS_MUCH_RATIO * (self.idle_ratio or 0.0))
        return not seen.step_s or self.step_s is None or seen.step_s >= _AS_MUCH_RATIO * self.step_s


class InputBound(Rule[_Known, None]):
    """Infeed, or input that the host's events show, above XProf's 5 % of the step; critical above 20 %."""

    finding = "input-bound"
    not_for = SERVERS
    remedy = (
        "make input faster: more parallel calls and prefetch(AUTOTUNE) in tf.data, more workers in a PyTorch or Grain "
        "loader, data near the TPU, less work per example on the host; `tpumon report --service-addr HOST:PORT "
        "--section input` shows where the time goes"
    )
    severities = ("warning", "critical")
    memory_type = _Known
    hidden_by = frozenset({"hang"})

    def remember(self, memory: _Known, seen: Observation) -> None:
        """Remembers the share while nothing shows that it is less."""
        share = input_share(seen)
        memory.unlike = 0 if share is not None or memory.stands(seen) else memory.unlike + 1
        most = _UNLIKE if memory.share is not None and memory.share[0] else 1  # an all-clear ends with the first
        if share is not None or memory.unlike >= most:
            memory.share, memory.idle_ratio, memory.step_s = share, seen.figures.idle_ratio, seen.step_s

    def severity_ratio(self, member: Member[_Known, None]) -> float | str:
        """Relative to the warning limit."""
        share = member.memory.share
        if share is None:
            return "no infeed ops, no events of an input pipeline: it may wait for input unseen"
        return share[0] / self.limits.infeed_warn_ratio if self.limits.infeed_warn_ratio else 2.0 * (share[0] > 0)

    def detail(self, member: Member[_Known, None]) -> FindingDetail:
        """Names the figure that shows it."""
        share, name = member.memory.share or (0.0, "infeed_ratio")
        limits = self.limits
        severity, limit = graded(share, {"warning": limits.infeed_warn_ratio, "critical": limits.infeed_critical_ratio})
        if name == "infeed_ratio":
            words, sentence = f"infeed {share:.0%}", f"{{who}}, {share:.0%} of the step is spent waiting for infeed."
        else:
            words, sentence = f"input {share:.0%}", f"{{who}}, the host waits for input {share:.0%} of the time"
            sentence += "." if input_share(member.seen) else ", as the one sample that traced more of the host showed."
        return FindingDetail(
            words=words,
            sentence=sentence,
            evidence={name: Evidence(value=share, threshold=limit)},
            severity=severity,
            confidence="high" if name == "infeed_ratio" else "medium",
            figure=INFEED.key if name == "infeed_ratio" else None,
        )

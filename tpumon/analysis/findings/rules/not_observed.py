"""not-observed: there are no figures by which to judge the worker."""

from __future__ import annotations

from dataclasses import dataclass

from tpumon.analysis.findings.rule import Member, Observation, Rule, graded
from tpumon.analysis.history import Moment, seconds_between
from tpumon.model import Evidence, FindingDetail, State

_LIMIT_S = 600.0
_LONG_S = 3600.0
_WHY: dict[State, str] = {
    "busy": "another profiling session runs",
    "continuous": "a continuous profiling session of its owner runs",
    "paused": "tpumon is paused",
}


@dataclass(slots=True)
class Unobserved:
    """Begin of the time without figures."""

    since: Moment | None = None


class NotObserved(Rule[Unobserved, None]):
    """Another session or a pause has kept tpumon away for 10 minutes; a warning after an hour."""

    finding = "not-observed"
    memory_type = Unobserved
    remedy = "end the other session, or run `tpumon pause 0`; until then no finding of this worker is known"
    severities = ("info", "warning")
    states = frozenset({"no-activity", "busy", "continuous", "paused"})
    samples = 1
    hidden_by = frozenset()

    def remember(self, memory: Unobserved, seen: Observation) -> None:
        """Remembers when figures ceased."""
        memory.since = (memory.since or seen.at) if seen.state in _WHY else None

    def severity_ratio(self, member: Member[Unobserved, None]) -> float | str:
        """Time without figures, relative to 10 minutes."""
        since = member.memory.since
        return 0.0 if since is None else seconds_between(since, member.seen.at) / _LIMIT_S

    def began(self, member: Member[Unobserved, None]) -> Moment | None:
        """The moment when figures ceased."""
        return member.memory.since

    def detail(self, member: Member[Unobserved, None]) -> FindingDetail:
        """Says what keeps figures away."""
        since = member.memory.since
        for_s = 0.0 if since is None else seconds_between(since, member.seen.at)
        severity, limit_s = graded(for_s, {"info": _LIMIT_S, "warning": _LONG_S})
        why = _WHY.get(member.seen.state, "no figures came")
        return FindingDetail(
            words=f"not observed for {for_s / 60:.0f} min",
            sentence=f"{{who}}, there have been no figures for {for_s / 60:.0f} min: {why}.",
            evidence={"not_observed_s": Evidence(value=for_s, threshold=limit_s)},
            severity=severity,
        )

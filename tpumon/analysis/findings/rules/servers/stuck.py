"""stuck: requests run, but nothing comes of them."""

from __future__ import annotations

from dataclasses import dataclass

from tpumon.analysis.findings.rule import Member, Observation
from tpumon.analysis.findings.rules.servers.server_rule import ServerRule, server_of, why_no_requests
from tpumon.analysis.history import Moment, seconds_between
from tpumon.model import COMPILE_LIMIT_RATIO, Evidence, FindingDetail, KeptWorker

_SHORTEST_S = 60.0
_STEPS = 10.0  # of the longest step
_LONGEST_S = 600.0  # to which long steps raise the limit at most
_UNSEEN = 2.0  # times as long as a sample counts, it may be without one: after a restart the first tells no rate
_WATCHED = frozenset({"live", "no-activity"})


@dataclass(slots=True)
class Standstill:
    """Time in which requests ran, but no program, and no token came.

    Attributes:
        has_worked: whether a program or a token was ever seen; before that it may compile what the first request needs.
        since: the sample that began the standstill; None: the last sample showed none.
        last: the last sample that told.
        step_s: the longest step, or run of a program, that was seen.
    """

    has_worked: bool = False
    since: Moment | None = None
    last: Moment | None = None
    step_s: float = 0.0

    @property
    def lasts_s(self) -> float:
        """Time from the first such sample to the last one."""
        return 0.0 if self.since is None or self.last is None else seconds_between(self.since, self.last)


class Stuck(ServerRule[Standstill, None]):
    """Requests run, but no program, and no token comes, for 60 s or ten times the longest step.

    For 10 minutes where nothing was seen to work before: a first request may wait for the compiler.
    """

    finding = "stuck"
    memory_type = Standstill
    remedy = (
        "send it a request: if that is answered, nothing is stuck, and it counts aborted requests still (vLLM's issue "
        "22545); else print every thread's stack of the engine's process (py-spy dump) before you restart it, and "
        "take this replica out of the load balancer meanwhile; where it spans several hosts, look at all of them"
    )
    severities = ("critical",)
    samples = 1  # it looks at several itself
    hidden_by = frozenset()

    def remember(self, memory: Standstill, seen: Observation) -> None:
        """Notes since when nothing moves; samples too far apart start anew."""
        server = server_of(seen)
        durations_s = [each.duration_s.p95 for each in server.families if each.duration_s is not None]
        memory.step_s = max(memory.step_s, seen.step_s or 0.0, *durations_s)
        if seen.state not in _WATCHED or server.requests_running is None or server.tokens_per_s is None:
            return
        last, memory.last = memory.last, seen.at
        compiles = (seen.figures.compile_ratio or 0.0) > COMPILE_LIMIT_RATIO
        tokens_per_s = server.tokens_per_s + (server.prompt_tokens_per_s or 0.0)
        memory.has_worked |= seen.state == "live" or tokens_per_s > 0
        if seen.state == "live" or compiles or not server.requests_running:
            memory.since = None
            return
        longest_s = _UNSEEN * seen.sample.fresh_for_s
        if tokens_per_s or not memory.since or not last or seconds_between(last, seen.at) > longest_s:
            memory.since = seen.at

    def resume(self, memory: Standstill, kept: KeptWorker) -> None:
        """Restores whether the worker was seen to work, and since when it was stuck."""
        memory.has_worked = kept.activity.active_unix_s is not None
        for finding in kept.findings:
            if finding.finding == self.finding:
                memory.since, memory.last = Moment(finding.since_unix_s), Moment(kept.kept_unix_s)

    def severity_ratio(self, member: Member[Standstill, None]) -> float | str:
        """Time relative to the limit."""
        server = server_of(member.seen)
        if server.requests_running is None:
            return why_no_requests(member.seen)
        if server.tokens_per_s is None:
            return "nothing tells its tokens per second, or only from the next sample on"
        return member.memory.lasts_s / self._limit_s(member.memory)

    def _limit_s(self, memory: Standstill) -> float:
        longest_s = _STEPS * memory.step_s if memory.has_worked else _LONGEST_S
        return max(_SHORTEST_S, min(longest_s, _LONGEST_S))

    def began(self, member: Member[Standstill, None]) -> Moment | None:
        """Moment of the last sample with tokens, or of the first sample that showed the standstill."""
        return member.memory.since

    def detail(self, member: Member[Standstill, None]) -> FindingDetail:
        """Says how many requests run, and for how long nothing has come of them."""
        server, lasts_s = server_of(member.seen), member.memory.lasts_s
        running = server.requests_running or 0.0
        waiting = f", {server.requests_waiting:.0f} wait" if server.requests_waiting else ""
        return FindingDetail(
            words=f"{running:.0f} requests stuck for {lasts_s:.0f} s",
            sentence=f"{{who}}, {running:.0f} requests run{waiting}, but no program has run and no token has come for "
            f"{lasts_s:.0f} s.",
            evidence={
                "no_activity_s": Evidence(value=lasts_s, threshold=self._limit_s(member.memory)),
                "requests_running": Evidence(value=running),
            },
            severity="critical",
            confidence="medium",  # aborted requests may look alike
        )

"""replica-imbalance: one replica has much more to do than the others of its job, or much less."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from tpumon.analysis.findings.recent import median_of_ascending
from tpumon.analysis.findings.rule import Member, NeedsFewMoreSamples, Observation, Sibling
from tpumon.analysis.findings.rules.servers.server_rule import ServerRule, server_of
from tpumon.model import Evidence, FindingDetail

_SAMPLES = 12
_FEW = 6
_LEAST_REQUESTS = 4.0
_LIMIT_TIMES = 2.0  # as many requests as the others have
_LIMIT_BUSY_RATIO = 0.30  # more or less than they
_PAIR = 2

_Values = deque[float]
_Beside = tuple[float, float]


def _values() -> _Values:
    return deque(maxlen=_SAMPLES)


@dataclass(slots=True)
class Load:
    """The last requests of a replica, and the share of time in which it was busy."""

    requests: _Values = field(default_factory=_values)
    busy_ratio: _Values = field(default_factory=_values)


@dataclass(slots=True)
class Loads:
    """Means of the replicas of a job, by worker."""

    requests: Mapping[str, float]
    busy_ratio: Mapping[str, float]


class ReplicaImbalance(ServerRule[Load, Loads]):
    """Means of twelve samples: twice the requests of the median replica, or half, or 30 points more or less busy."""

    finding = "replica-imbalance"
    memory_type = Load
    remedy = (
        "look at how requests are spread: a router that keeps a client or a prefix on one replica, long requests that "
        "count as one; route by requests that run and wait; a replica without any may not be in the load balancer"
    )
    compares = True
    compares_slices = True
    waits = True  # replicas need not run the same programs

    def remember(self, memory: Load, seen: Observation) -> None:
        """Adds what a sample says of its load."""
        if not self.judges(seen.state):
            return
        requests, busy_ratio = server_of(seen).requests, server_of(seen).busy_ratio
        if requests is not None:
            memory.requests.append(requests)
        if busy_ratio is not None:
            memory.busy_ratio.append(busy_ratio)

    def slice_stats(self, siblings: Sequence[Sibling[Load]]) -> Loads:
        """Means of the replicas that have figures."""
        there = {sibling.seen.target.worker: sibling.memory for sibling in siblings if self.judges(sibling.seen.state)}
        return Loads(
            {worker: fmean(load.requests) for worker, load in there.items() if len(load.requests) >= _FEW},
            {worker: fmean(load.busy_ratio) for worker, load in there.items() if len(load.busy_ratio) >= _FEW},
        )

    def severity_ratio(self, member: Member[Load, Loads]) -> float | str:
        """Distance from the others, relative to the limits."""
        requests, busy = _compared(member)
        if requests is None and busy is None:
            few = 0 < max(len(member.memory.requests), len(member.memory.busy_ratio)) < _FEW
            return NeedsFewMoreSamples(takes=_FEW) if few else "no other replica of its job is followed"
        return max(self._of_requests(requests), self._of_busy(busy))

    def _of_requests(self, requests: _Beside | None) -> float:
        if requests is None or max(requests) < _LEAST_REQUESTS:
            return 0.0
        return max(requests) / max(min(requests), 1.0) / _LIMIT_TIMES

    def _of_busy(self, busy: _Beside | None) -> float:
        return 0.0 if busy is None else abs(busy[0] - busy[1]) / _LIMIT_BUSY_RATIO

    def detail(self, member: Member[Load, Loads]) -> FindingDetail:
        """Compares it with the others."""
        requests, busy = _compared(member)
        said, evidence = [], {}
        if requests is not None:
            said.append(f"{requests[0]:.3g} requests (usual: {requests[1]:.3g})")
            evidence["requests"] = Evidence(value=requests[0], reference=requests[1])
        if busy is not None:
            said.append(f"busy {busy[0]:.0%} of the time (usual: {busy[1]:.0%})")
            evidence["busy_ratio"] = Evidence(value=busy[0], reference=busy[1])
        own, usual = (requests if self._of_requests(requests) > self._of_busy(busy) else busy) or (0.0, 0.0)
        return FindingDetail(
            words="more to do than others" if own > usual else "less to do than others",
            sentence=f"{{who}}, {' and '.join(said)}: requests are not spread evenly over the replicas.",
            evidence=evidence,
            severity="info",
        )


def _compared(member: Member[Load, Loads]) -> tuple[_Beside | None, _Beside | None]:
    """Requests and busy share of a worker, each beside the usual value of its replicas."""
    worker, loads = member.seen.target.worker, member.slice_stats
    return _beside(worker, loads.requests), _beside(worker, loads.busy_ratio)


def _beside(worker: str, means: Mapping[str, float]) -> _Beside | None:
    """The mean of a worker, and the median of all, or of two replicas the other's; None: one is not known."""
    if worker not in means or len(means) < _PAIR:
        return None
    compared = sorted(mean for other, mean in means.items() if len(means) > _PAIR or other != worker)
    return means[worker], median_of_ascending(compared)

"""Findings made of states, and the order in which all findings are told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from operator import itemgetter

from msgspec.structs import replace

from tpumon.analysis.findings import SliceKey, slice_key_of
from tpumon.analysis.history.slice_changes import TOGETHER_S
from tpumon.analysis.status import FleetStatus, WorkerStatus
from tpumon.analysis.upstream import earliest
from tpumon.errors import Reason, remedy
from tpumon.model import SEVERITY_LEVELS, Finding, FindingSeverity, StateId
from tpumon.model.finding import StatedId
from tpumon.untrusted_text import listed, plain_word

MOST_NAMED = 5

STATES: tuple[StatedId, ...] = ("down", "hang", "restarted")
_PLACES: Mapping[StatedId, int] = {verdict: place for place, verdict in enumerate(STATES)}
_RESTARTED_S = 600.0


def all_findings(status: FleetStatus) -> list[Finding]:
    """Findings, and those made of states, the worst first."""
    restarts_unix_s = restarts_of(status)
    restarts = _restarts_by_slice(status, restarts_unix_s)
    return sorted(
        [*status.findings, *_of_states(status, restarts_unix_s)],
        key=lambda one: (-SEVERITY_LEVELS[one.severity], _place(one, status, restarts)),
    )


def _place(finding: Finding, status: FleetStatus, restarts: Mapping[SliceKey, float]) -> int:
    """Rank among findings of equal severity; a hang that a restart in its slice explains comes last."""
    place, since = _PLACES.get(finding.finding, len(_PLACES)), finding.since_unix_s
    if finding.finding != "hang" or since is None or (first := status.workers.get(finding.workers[0])) is None:
        return place
    return len(_PLACES) if restarts.get(slice_key_of(first.target), -inf) >= since else place


def _restarts_by_slice(status: FleetStatus, restarts_unix_s: Mapping[str, float]) -> Mapping[SliceKey, float]:
    """The last restart of a job in each slice that had one."""
    by_time = sorted(restarts_unix_s.items(), key=itemgetter(1))
    return {slice_key_of(status.workers[worker].target): time_unix_s for worker, time_unix_s in by_time}


def first_of_last(times_unix_s: Collection[float]) -> float:
    """The first of the restarts that are one with the last."""
    earliest_unix_s = max(times_unix_s) - TOGETHER_S
    return min(each for each in times_unix_s if each >= earliest_unix_s)


def down_by_reason(status: FleetStatus) -> Mapping[tuple[str | None, str | None, Reason], Sequence[WorkerStatus]]:
    """Workers that do not answer, by job, slice and reason: each group is one finding."""
    down: dict[tuple[str | None, str | None, Reason], list[WorkerStatus]] = {}
    for worker in status.all():
        failure = None if worker.history.last is None else worker.history.last.failure
        if worker.verdict.state == "down" and failure is not None:
            down.setdefault((worker.target.job, worker.target.slice, failure.reason), []).append(worker)
    return down


def _of_states(status: FleetStatus, restarts_unix_s: Mapping[str, float]) -> Iterator[Finding]:
    """Findings made of states: workers that do not answer, by reason, and restarts by `restarts_of`."""
    restarted: dict[tuple[str | None, str | None], list[WorkerStatus]] = {}
    for worker in status.all():
        if 0 <= status.time_unix_s - restarts_unix_s.get(worker.name, -inf) < _RESTARTED_S:
            restarted.setdefault((worker.target.job, worker.target.slice), []).append(worker)
    running = sum(worker.verdict.state == "live" for worker in status.all())
    answering = {
        (worker.target.job, worker.target.slice)
        for worker in status.all()
        if worker.target.slice is not None and worker.verdict.state in {"live", "no-activity"}
    }
    for (job, slice_, reason), workers in down_by_reason(status).items():
        message, answered = workers[0].history.failure_words, all(worker.history.had_figures() for worker in workers)
        addresses = [worker.target.address for worker in workers]
        others = f"; {running} of {len(status.workers)} run" if running else ""
        names = listed((worker.name for worker in workers), MOST_NAMED)
        yield replace(
            _of_state("down", "critical", workers),
            since_unix_s=earliest(worker.verdict.since_unix_s for worker in workers),
            since_or_earlier=any(worker.verdict.since_or_earlier for worker in workers),
            sentence=f"{names} {'does' if len(workers) == 1 else 'do'} not answer "
            f"({reason}{message and f': {message}'}){others}.",
            remedy=remedy(
                reason,
                workers[0].history.failure_detail,
                addresses=addresses,
                answered=answered,
                others_answer=(job, slice_) in answering,
            ),
            url="docs/states.md#states",
        )
    or_earlier = {name for name, (_, is_so) in _restarts(status).items() if is_so}
    for workers in restarted.values():
        yield replace(
            _of_state("restarted", "info", workers),
            since_unix_s=(since_unix_s := first_of_last([restarts_unix_s[worker.name] for worker in workers])),
            since_or_earlier=any(
                restarts_unix_s[worker.name] == since_unix_s and worker.name in or_earlier for worker in workers
            ),
            sentence=f"The job of {listed((worker.name for worker in workers), MOST_NAMED)} was restarted.",
            remedy="look at the end of the log of the job before it, if nobody restarted it on purpose",
            url="docs/states.md#since-when",
        )


def restarts_of(status: FleetStatus) -> Mapping[str, float]:
    """The last restart of the job of each worker: as it was noted, here or by the exporter, else as samples show it."""
    return {name: time_unix_s for name, (time_unix_s, _) in _restarts(status).items()}


def _restarts(status: FleetStatus) -> Mapping[str, tuple[float, bool]]:
    """When the job of each worker was restarted last, and whether that may have been before it was seen."""
    histories = {worker.name: worker.history for worker in status.all()}
    by_samples = {
        name: (history.restarted.time_unix_s, history.restart_or_earlier)
        for name, history in histories.items()
        if history.restarted is not None
    }
    noted = {
        one.worker: (one.time_unix_s, one.since_or_earlier)
        for one in status.changes
        if one.what == "restart" and one.worker in histories
    }
    return by_samples | noted


def _of_state(state: StateId, severity: FindingSeverity, workers: Sequence[WorkerStatus]) -> Finding:
    target = workers[0].target
    names = tuple(worker.name for worker in workers)
    return Finding(
        finding=state, severity=severity, confidence="high", workers=names, job=target.job, slice=target.slice
    )


def quoted(names: Iterable[str]) -> str:
    """The first names, in quotes and cleaned, and the number of the others."""
    return listed((f'"{plain_word(name)}"' for name in names), MOST_NAMED)

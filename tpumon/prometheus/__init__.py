"""Reads the workers that several tpumon export from the Prometheus server that scrapes them, for `--from`.

A refresh is at most five queries, whatever the number of workers: who is there, their numbers, their states, their
findings, and, at first and for a small fleet, what was before. A series that Prometheus has is current: it decides what
is stale.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import get_args

from tpumon.findings import Thresholds, explained, group_of
from tpumon.history import state_of
from tpumon.model import Cause, Failure, FindingId, Handover, Sample, Workers
from tpumon.model.sample import EXPORTER
from tpumon.prometheus.across import MOST_DATED, Stragglers, before, comparable, since_of, waits_of
from tpumon.prometheus.past import Past, Span
from tpumon.prometheus.queries import Queries, selector_of
from tpumon.prometheus.rebuild import (
    Picture,
    Told,
    cause_of,
    findings_of,
    not_judged_of,
    picture_of,
    sample_of,
    worst_first,
)
from tpumon.prometheus.wire import Answer, PrometheusServer, TroubleError
from tpumon.prometheus.workers import Key, Known, identity_of, key_of, known_of, workers_of

__all__ = ["PrometheusReader", "PrometheusServer", "selector_of"]

_POLL_S = 5.0
_PATIENCE = 2  # consecutive failures before the workers count as unreachable
_SAME_CLOCK_S = 1.0
_GONE_S = 900.0  # how long a worker without series stays
_SPANS = ((3600.0, 60.0), (86400.0, 600.0), (7 * 86400.0, 3600.0))  # how far back, and by which steps
_ROUNDS, _ROUND_S = 6, 60.0  # what workers are compared by at first
_FRESH_INTERVALS = 2.5  # as in Sample.fresh_for_s

_Told = Workers | Sample | Handover


class PrometheusReader:
    """Follows the workers whose series a Prometheus server has, also through its outages.

    Args:
        server: where to ask.
        selector: label matchers of the series, as `selector_of` returns them.
        limits: when a figure makes a worker critical.
        say: takes one line for the user.
        poll_s: interval between refreshes.
        clock: returns the seconds since the epoch.
        monotonic_s: reads a monotonic clock.
    """

    def __init__(
        self,
        server: PrometheusServer,
        selector: str,
        *,
        limits: Thresholds | None = None,
        say: Callable[[str], None] = lambda _line: None,
        poll_s: float = _POLL_S,
        clock: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._selector = selector
        self._limits = limits or Thresholds()
        self._say = say
        self._poll_s = poll_s
        self._clock = clock
        self._monotonic_s = monotonic_s
        self._identity: tuple[str, ...] = ("worker",)
        self._workers: Workers | None = None
        self._known: dict[Key, Known] = {}
        self._names: dict[Key, str] = {}
        self._gone_unix_s: dict[Key, float] = {}
        self._past: Past | None = None
        self._stragglers: Stragglers | None = None
        self._failures = 0
        self._reported: str | None = None
        self._said: set[str] = set()

    async def feed(self, send: Callable[[_Told], None]) -> None:
        """Sends workers, what was before and samples, then refreshes them, until it is cancelled."""
        while True:
            began_unix_s = self._clock()
            try:
                await self._refresh(send)
            except TroubleError as trouble:
                self._failed(trouble, began_unix_s, send)
            else:
                self._failures, self._reported = 0, None
            await asyncio.sleep(self._poll_s)

    async def _refresh(self, send: Callable[[_Told], None]) -> None:
        with _no_collection():
            await self._ask(send)

    async def _ask(self, send: Callable[[_Told], None]) -> None:
        began_unix_s = self._clock()
        series = await self._server.query(Queries(self._selector).workers)
        shift_s, now_unix_s = self._clocks(series, (began_unix_s + self._clock()) / 2)
        identity = identity_of(series.series, self._identity)
        if identity != self._identity:  # names become others, so all begins anew
            self._identity, self._past, self._known = identity, None, {}
        queries = Queries(self._selector, identity)
        numbers, devices, states, findings = await asyncio.gather(
            *(self._server.query(one) for one in (queries.numbers, queries.devices, queries.states, queries.findings))
        )
        self._check_complete(series, numbers, devices, states, findings)
        picture = picture_of((*numbers.series, *devices.series), states.series, findings.series, identity)
        independent = [key for key, told in picture.told.items() if "tpumon_target_independent" in told.states]
        self._follow(known_of(series.series, identity, independent), now_unix_s, send)
        if not self._known:
            return
        first = self._past is None
        past = self._past or await self._before(queries, now_unix_s)
        self._past = past
        past.forget(self._names)
        samples = self._samples(picture, now_unix_s)
        await self._compare(queries, picture, samples, now_unix_s)
        samples = self._judged(samples, picture, past, now_unix_s)
        found = findings_of(list(samples.values()))
        judged = sum(sample.answered for sample in samples.values())
        known_changes = 0 if first else self._handed
        self._handed = past.changes.last
        send(
            _shifted(
                Handover(
                    complete=first,
                    number=past.changes.last,
                    standings=tuple(past.standings(self._names, shift_s)),
                    changes=tuple(past.changes.all(after=known_changes)),
                    findings=tuple(found),
                    not_judged=tuple(not_judged_of(picture, judged)),
                ),
                shift_s,
            )
        )
        for sample in samples.values():
            send(self._ours(sample, now_unix_s, shift_s))

    _handed = 0

    def _clocks(self, answer: Answer, asked_unix_s: float) -> tuple[float, float]:
        """From the server's clock to ours, and its time now. Without any series, it is taken to be as ours."""
        theirs_unix_s = answer.series[0].points[-1][0] if answer.series else asked_unix_s
        shift_s = asked_unix_s - theirs_unix_s
        return (shift_s if abs(shift_s) > _SAME_CLOCK_S else 0.0), theirs_unix_s

    def _check_complete(self, *answers: Answer) -> None:
        for line in {line for answer in answers for line in answer.warnings} - self._said:
            if len(self._said) < 20:
                self._said.add(line)
                self._say(f"Prometheus {self._server.name}: its data is incomplete: {line}")

    def _follow(self, known: Mapping[Key, Known], now_unix_s: float, send: Callable[[_Told], None]) -> None:
        """Takes the workers that are there; one that was there before stays for a while."""
        for key in known:
            self._gone_unix_s.pop(key, None)
        gone = {key: one for key, one in self._known.items() if key not in known}
        for key in gone:
            self._gone_unix_s.setdefault(key, now_unix_s)
        gone = {key: one for key, one in gone.items() if now_unix_s - self._gone_unix_s[key] < _GONE_S}
        self._gone_unix_s = {key: self._gone_unix_s[key] for key in gone}
        self._known = {**known, **{key: replace(one, info=None) for key, one in gone.items()}}
        self._names = {key: one.target.worker for key, one in self._known.items()}
        waiting = (
            f"Prometheus {self._server.name}: no series tpumon_target_info{self._selector}; check --selector, and that "
            "it scrapes tpumon"
        )
        workers = workers_of(self._known.values(), waiting)
        if workers != self._workers:
            self._workers = workers
            send(workers)

    async def _before(self, queries: Queries, now_unix_s: float) -> Past:
        """Asks for the time before the first picture; further back only where a trouble is older."""
        known, had = await asyncio.gather(
            *(self._server.query(one) for one in (queries.known("1h", "1m"), queries.had("1h")))
        )
        findings = {name for one in had.series if (name := one.labels.get("finding", "")) in get_args(FindingId)}
        troubles = queries.troubles(findings)
        known_unix_s = {key_of(one.labels, self._identity): one.points[-1][1] for one in known.series}
        if any(at < now_unix_s - _SPANS[0][0] + 2 * _SPANS[0][1] for at in known_unix_s.values()):
            older = await self._server.query(queries.known("7d", "1h"))
            for one in older.series:
                key = key_of(one.labels, self._identity)
                if known_unix_s.get(key, 0.0) < now_unix_s - _SPANS[0][0] + 2 * _SPANS[0][1]:
                    known_unix_s[key] = one.points[-1][1]
        spans: list[Span] = []
        end_unix_s = now_unix_s
        for length_s, step_s in _SPANS:
            steps = int((end_unix_s - (now_unix_s - length_s)) / step_s)
            begin_unix_s = end_unix_s - steps * step_s
            answer = await self._server.query_range(troubles, begin_unix_s, end_unix_s, step_s)
            spans.insert(0, Span(begin_unix_s, step_s, steps + 1, answer.series))
            if not spans[0].began_before():
                break
            end_unix_s = begin_unix_s - step_s
        past = Past(self._limits)
        past.load(spans, self._names, known_unix_s, self._identity)
        return past

    async def _compare(
        self, queries: Queries, picture: Picture, samples: Mapping[Key, Sample], now_unix_s: float
    ) -> None:
        """Looks for stragglers where exporters follow too few workers to find them."""
        present = sum(1 for one in self._known.values() if one.info is not None)
        if picture.judged.get("straggler", 0) >= present:
            self._stragglers = None
            return
        is_new = self._stragglers is None
        stragglers = self._stragglers = self._stragglers or Stragglers(self._limits)
        if is_new:
            begin_unix_s = now_unix_s - _ROUNDS * _ROUND_S
            answer = await self._server.query_range(queries.compared, begin_unix_s, now_unix_s - _ROUND_S / 2, _ROUND_S)
            for one in before(answer.series, self._known, self._identity):
                stragglers.judge(one, now_unix_s)
        now = {
            key: (self._known[key].target, comparable(sample, picture.told[key].numbers))
            for key, sample in samples.items()
            if sample.answered
        }
        known = set(stragglers.found())
        stragglers.judge(now, now_unix_s)
        new = [key for key in stragglers.found() if key not in known or is_new][:MOST_DATED]
        end_unix_s = now_unix_s
        for length_s, step_s in _SPANS if new else ():
            begin_unix_s = now_unix_s - length_s
            expression = queries.waits_less(waits_of(new, self._identity))
            answer = await self._server.query_range(expression, begin_unix_s, end_unix_s, step_s)
            since = since_of(answer.series, new, self._identity, step_s, self._limits)
            stragglers.date(since)
            new = [key for key in new if since.get(key, end_unix_s) < begin_unix_s + 2 * step_s]
            if not new:
                break

    def _samples(self, picture: Picture, now_unix_s: float) -> dict[Key, Sample]:
        """The samples of all workers that were queried, not judged yet."""
        samples: dict[Key, Sample] = {}
        for key, known in self._known.items():
            if key in self._gone_unix_s:
                samples[key] = _gone(known, self._gone_unix_s[key])
            elif (sample := sample_of(known, picture.told.get(key, Told()), now_unix_s)) is not None:
                samples[key] = sample
        return samples

    def _judged(
        self, samples: Mapping[Key, Sample], picture: Picture, past: Past, now_unix_s: float
    ) -> dict[Key, Sample]:
        """The samples with what is wrong with each; notes what changed."""
        present = sum(1 for one in self._known.values() if one.info is not None)
        by_all = {finding for finding, workers in picture.judged.items() if workers >= present}
        judged: dict[Key, Sample] = {}
        for key, sample in samples.items():
            judged[key] = sample
            if not sample.answered:
                continue
            told = picture.told[key]
            since = past.found(key, told.findings, now_unix_s)
            causes = [cause_of(one, sample.figures, self._limits, since.get(one)) for one in told.findings]
            known = by_all | told.findings
            if self._stragglers is not None and "straggler" not in told.findings:
                slow = self._stragglers.cause(key)
                causes += [] if slow is None else [slow]
                known = known | ({"straggler"} if self._stragglers.is_judged(key) else set())
            judged[key] = replace(sample, findings=tuple(worst_first(causes)), judged=tuple(known))
        shown = self._without_explained(judged)
        for key, sample in shown.items():
            why = "" if sample.failure is None else sample.failure.message
            past.note(key, sample.worker, now_unix_s, state_of(sample), sample.findings or (), why)
        return shown

    def _without_explained(self, samples: Mapping[Key, Sample]) -> dict[Key, Sample]:
        """The samples without findings that others of the slice explain: the exporters of its workers see only some."""
        groups = {key: group_of(self._known[key].target) for key in samples}
        since: dict[str | None, dict[FindingId, float]] = {}
        for key, sample in samples.items():
            of_group = since.setdefault(groups[key], {})
            for cause in sample.findings or ():
                if cause.finding is not None and cause.since_unix_s is not None:
                    of_group[cause.finding] = min(of_group.get(cause.finding, math.inf), cause.since_unix_s)
        interval_s = max((sample.interval_s or 0.0 for sample in samples.values()), default=0.0)
        slack_s = _ROUND_S + interval_s * (self._limits.sustained + 1)
        hidden = {group: explained(found, slack_s) for group, found in since.items()}

        def left(key: Key, causes: Sequence[Cause]) -> tuple[Cause, ...]:
            return tuple(one for one in causes if one.finding not in hidden[groups[key]])

        return {
            key: replace(sample, findings=left(key, sample.findings)) if sample.findings else sample
            for key, sample in samples.items()
        }

    def _ours(self, sample: Sample, now_unix_s: float, shift_s: float) -> Sample:
        """The sample by our clocks, and current until the refresh after the next one."""
        age_s = max(now_unix_s - sample.time_unix_s, 0.0)
        interval_s = max(sample.interval_s or 0.0, (age_s + 2 * self._poll_s) / _FRESH_INTERVALS)
        return replace(
            sample,
            time_unix_s=min(sample.time_unix_s + shift_s, self._clock()),
            taken_monotonic_s=self._monotonic_s() - age_s,
            interval_s=interval_s,
            findings=None
            if sample.findings is None
            else tuple(
                cause if cause.since_unix_s is None else replace(cause, since_unix_s=cause.since_unix_s + shift_s)
                for cause in sample.findings
            ),
        )

    def _failed(self, trouble: TroubleError, began_unix_s: float, send: Callable[[_Told], None]) -> None:
        self._failures += 1
        message = str(trouble)
        if message == self._reported or (self._known and self._failures < _PATIENCE):
            return
        self._reported = message
        if not self._known:
            self._workers = Workers(waiting=message)
            send(self._workers)
        self._past = None  # after the outage, ask for what was in the meantime
        failure = Failure(source=EXPORTER, reason=trouble.reason, message=message)
        for known in self._known.values():
            send(_failed_sample(known, began_unix_s, self._poll_s, failure))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without looking for cycles: answers have none, and looking takes as long as all the rest."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _failed_sample(known: Known, time_unix_s: float, interval_s: float | None, failure: Failure) -> Sample:
    target = known.target
    return Sample(
        worker=target.worker,
        address=target.address,
        slice=target.slice,
        time_unix_s=time_unix_s,
        window_s=None,
        took_s=0.0,
        interval_s=interval_s,
        errors=(failure,),
    )


def _gone(known: Known, since_unix_s: float) -> Sample:
    message = "Prometheus has no series of it any more: its exporter ended, or is not scraped"
    failure = Failure(source=EXPORTER, reason="unavailable", message=message)
    return _failed_sample(known, since_unix_s, None, failure)


def _shifted(handover: Handover, shift_s: float) -> Handover:
    """The handover by our clock; its standings are already."""
    return replace(
        handover,
        shift_s=shift_s,
        changes=tuple(replace(one, time_unix_s=one.time_unix_s + shift_s) for one in handover.changes),
        findings=tuple(
            one if one.since_unix_s is None else replace(one, since_unix_s=one.since_unix_s + shift_s)
            for one in handover.findings or ()
        ),
    )

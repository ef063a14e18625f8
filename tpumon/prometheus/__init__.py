"""Reads the workers that several tpumon export from the Prometheus server that scrapes them, for `--from`.

A refresh is five queries at once, whatever the number of workers: who is there, their numbers, their devices, their
states, their findings. It is two more when a worker is new; the first one also asks what was before. Answers are worked
on as they come, since the server takes as long for them. A series that Prometheus has is current: it decides what is
stale.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tpumon.figures import COMPARED
from tpumon.findings import Thresholds, explained, group_of
from tpumon.history import state_of
from tpumon.model import Cause, Failure, FindingId, Handover, Sample, Workers
from tpumon.model.sample import EXPORTER
from tpumon.prometheus.across import Stragglers
from tpumon.prometheus.asking import Start, asking
from tpumon.prometheus.comparing import ROUND_S, Begun, Comparing
from tpumon.prometheus.graphs import averages_of, graph_of, graphs_of
from tpumon.prometheus.past import Before, Past, asked
from tpumon.prometheus.queries import (
    INDEPENDENT,
    TARGET_INFO,
    Queries,
    name_of,
    selector_of,
)
from tpumon.prometheus.rebuild import (
    Now,
    Picture,
    Told,
    Totals,
    cause_of,
    findings_of,
    not_judged_of,
    sample_of,
    worst_first,
)
from tpumon.prometheus.wire import Answer, PrometheusServer, Series, Table, TroubleError
from tpumon.prometheus.workers import Key, Known, identity_of, key_of, known_of, workers_of
from tpumon.system.collector import resting

__all__ = ["PrometheusReader", "PrometheusServer", "selector_of"]

_POLL_S = 5.0
_PATIENCE = 2  # consecutive failures before the workers count as unreachable
_SAME_CLOCK_S = 1.0
_GONE_S = 900.0  # how long a worker without series stays
_RARELY_S = 60.0  # how often is asked what hardly changes

_Told = Workers | Sample | Handover


class _Rare(NamedTuple):
    """What is asked once a minute, and when there is a new worker.

    Attributes:
        asked_unix_s: when, by our clock.
        workers: whom it is about.
        totals: sizes of HBM.
        judged: of how many workers each finding is judged.
    """

    asked_unix_s: float
    workers: frozenset[Key]
    totals: Totals
    judged: Mapping[FindingId, int]


class _Rest(NamedTuple):
    """What is told of the workers; `with_rare`: with sizes of HBM and of how many workers each finding is judged."""

    states: Awaitable[Answer]
    numbers: Awaitable[Table]
    devices: Awaitable[Table]
    findings: Awaitable[Answer]
    with_rare: bool


class _Ahead(NamedTuple):
    """What only the first picture needs: what workers are compared by, what was before, averages over all workers."""

    compared: Awaitable[Answer]
    before: Awaitable[Before]
    averages: Awaitable[Sequence[Series]]


class PrometheusReader:
    """Follows the workers whose series a Prometheus server has, also through its outages.

    Args:
        server: where to ask.
        selector: label matchers of the series, as `selector_of` returns them.
        limits: when a figure makes a worker critical.
        say: takes one line for the user.
        poll_s: interval between refreshes.
        looked_at: which worker the user looks at; called in the thread of the reader.
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
        looked_at: Callable[[], str | None] = lambda: None,
        clock: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._selector = selector
        self._limits = limits or Thresholds()
        self._say = say
        self._poll_s = poll_s
        self._looked_at = looked_at
        self._graphed: set[str] = set()
        self._clock = clock
        self._monotonic_s = monotonic_s
        self._identity: tuple[str, ...] = ("worker",)
        self._exactly: bool | None = None
        self._workers: Workers | None = None
        self._known: dict[Key, Known] = {}
        self._names: dict[Key, str] = {}
        self._gone_unix_s: dict[Key, float] = {}
        self._rare: _Rare | None = None
        self._past: Past | None = None
        self._handed = 0
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
            except Exception as error:  # noqa: BLE001 - no answer may end the reader
                self._failed(self._server.trouble_of(error), began_unix_s, send)
            else:
                self._failures, self._reported = 0, None
            await asyncio.sleep(self._poll_s)

    async def _refresh(self, send: Callable[[_Told], None]) -> None:
        with resting():  # answers have no cycles, and looking for some takes as long as all the rest
            async with asking() as start:
                await self._ask(start, send)

    async def _ask(self, start: Start, send: Callable[[_Told], None]) -> None:
        """Asks all that it can at once, and works on answers while the server works on others."""
        there, now, rest, ahead = await self._who(start)
        comparing = self._comparing(now)
        picture = Picture(self._identity)
        states = await rest.states
        picture.take_states(states.series)
        known, gone_unix_s = self._with_gone(there, picture, now.asked_unix_s)
        begun = None
        if ahead is not None and self._stragglers is None:
            begun = start(comparing.begun(known, ahead.compared, start))
        numbers = await rest.numbers
        picture.take_numbers(numbers)
        devices, findings = await rest.devices, await rest.findings
        self._take_others(picture, findings, devices, there, now, with_rare=rest.with_rare)
        self._check_complete(there, numbers, devices, states, findings)
        self._follow(known, gone_unix_s, send)
        if not known:
            return
        recalled = start(self._recalled(ahead))
        samples = self._samples(picture, now)
        await self._compare(comparing, begun, picture, samples, start)
        past = await recalled
        samples = self._judged(samples, picture, past, now)
        graphs = await self._graphs(samples, now, ahead)
        self._past = past
        send(self._handover(past, samples, picture, now, graphs, complete=ahead is not None))
        for sample in samples.values():
            send(sample)

    def _queries(self) -> Queries:
        return Queries(self._selector, self._identity, exactly=self._exactly is True)

    async def _who(self, start: Start) -> tuple[Answer, Now, _Rest, _Ahead | None]:
        """Asks who is there and, at the same time, the rest; at first after it, when it is known by which labels."""
        takes_several = start(self._takes_several_names()) if self._exactly is None else None
        asked_there = start(self._there())
        rest = None if self._past is None else self._rest(start)
        there, now = await asked_there
        begins_anew = self._begins_anew(there)
        if takes_several is not None and there.series:
            self._exactly = not await takes_several
        if rest is None or begins_anew:
            return there, now, *self._all(start, there, now)
        if not rest.with_rare and self._rare is not None and not self._keys(there) <= self._rare.workers:
            rest = self._rest(start, rest)
        return there, now, rest, None

    def _all(self, start: Start, there: Answer, now: Now) -> tuple[_Rest, _Ahead | None]:
        """Asks all of the first picture that can be asked when it is known who is there."""
        if not (there.series or self._known):
            return self._rest(start), None
        queries = self._queries()
        compared = start(self._comparing(now).before())  # the first, since most work waits for it here
        return self._rest(start), _Ahead(
            compared=compared,
            before=start(asked(self._server, queries, self._identity, now.asked_unix_s)),
            averages=start(averages_of(self._server, queries, len(self._keys(there)), now.asked_unix_s)),
        )

    def _begins_anew(self, there: Answer) -> bool:
        """Forgets all if these workers are told apart by other labels: their names become others."""
        identity = identity_of(there.series, self._identity)
        if identity == self._identity:
            return False
        self._identity, self._past, self._known, self._rare = identity, None, {}, None
        return True

    async def _there(self) -> tuple[Answer, Now]:
        began_unix_s = self._clock()
        answer = await self._server.query(Queries(self._selector).workers)
        return answer, self._now(answer, began_unix_s)

    def _rest(self, start: Start, begun: _Rest | None = None) -> _Rest:
        """Asks for all but who is there; if that has `begun`, only once more, with what is rare."""
        queries, server, rare = self._queries(), self._server, self._rare
        is_due = begun is not None or rare is None or not 0 <= self._clock() - rare.asked_unix_s < _RARELY_S
        return _Rest(
            states=start(server.query(queries.states)) if begun is None else begun.states,
            numbers=start(server.table(queries.numbers)) if begun is None else begun.numbers,
            devices=start(server.table(queries.devices(sizes=is_due))),
            findings=start(server.query(queries.findings(judged=is_due))),
            with_rare=is_due,
        )

    def _keys(self, there: Answer) -> frozenset[Key]:
        return frozenset(key_of(one.labels, self._identity) for one in there.series)

    async def _takes_several_names(self) -> bool:
        """Whether the server finds series by a choice of names."""
        try:
            answer = await self._server.query(Queries(self._selector).names)
        except TroubleError as trouble:
            if trouble.reason == "refused":
                return False
            raise
        return any(name_of(one.labels) == TARGET_INFO for one in answer.series)

    def _take_others(
        self, picture: Picture, findings: Answer, devices: Table, there: Answer, now: Now, *, with_rare: bool
    ) -> None:
        """Adds findings and devices, and keeps what is asked once a minute."""
        picture.take_findings(findings.series)
        if with_rare or self._rare is None:
            totals = picture.take_devices(devices)
            self._rare = _Rare(now.unix_s, self._keys(there), totals, dict(picture.judged))
        else:
            picture.take_devices(devices, self._rare.totals)
            picture.judged.update(self._rare.judged)

    async def _graphs(self, samples: Mapping[Key, Sample], now: Now, ahead: _Ahead | None) -> Mapping[str, bytes]:
        """What graphs begin with that are drawn now and were not before."""
        queries, now_unix_s = self._queries(), now.asked_unix_s
        if ahead is not None:
            graphs = await graphs_of(self._server, queries, self._identity, samples, now_unix_s, ahead.averages)
            self._graphed = set(graphs)
            return graphs
        looked_at = self._looked_at()
        key = next((key for key, sample in samples.items() if sample.worker == looked_at), None)
        if looked_at is None or key is None or looked_at in self._graphed:
            return {}
        self._graphed.add(looked_at)
        return await graph_of(self._server, queries, self._identity, key, looked_at, now_unix_s)

    def _handover(
        self,
        past: Past,
        samples: Mapping[Key, Sample],
        picture: Picture,
        now: Now,
        graphs: Mapping[str, bytes],
        *,
        complete: bool,
    ) -> Handover:
        """What changed since the last one, or all that is known of the time before, by our clock."""
        known_changes = 0 if complete else self._handed
        self._handed = past.changes.last
        judged = sum(sample.answered for sample in samples.values())
        return Handover(
            complete=complete,
            number=past.changes.last,
            standings=tuple(past.standings(self._names, now.shift_s)),
            shift_s=now.shift_s,
            changes=tuple(
                replace(one, time_unix_s=one.time_unix_s + now.shift_s) for one in past.changes.all(after=known_changes)
            ),
            history=graphs,
            figures=tuple(COMPARED),
            findings=tuple(findings_of(list(samples.values()))),
            not_judged=tuple(not_judged_of(picture, judged)),
        )

    def _now(self, answer: Answer, began_unix_s: float) -> Now:
        """The time, by the server's clock and by ours. Without any series, its clock is taken to be as ours."""
        unix_s = self._clock()
        asked_unix_s = (began_unix_s + unix_s) / 2
        theirs_unix_s = answer.series[0].points[-1][0] if answer.series else asked_unix_s
        shift_s = asked_unix_s - theirs_unix_s
        return Now(
            asked_unix_s=theirs_unix_s,
            shift_s=shift_s if abs(shift_s) > _SAME_CLOCK_S else 0.0,
            unix_s=unix_s,
            monotonic_s=self._monotonic_s(),
            poll_s=self._poll_s,
        )

    def _check_complete(self, *answers: Answer | Table) -> None:
        for line in {line for answer in answers for line in answer.warnings} - self._said:
            if len(self._said) < 20:
                self._said.add(line)
                self._say(f"Prometheus {self._server.name}: its data is incomplete: {line}")

    def _with_gone(
        self, there: Answer, picture: Picture, now_unix_s: float
    ) -> tuple[dict[Key, Known], dict[Key, float]]:
        """The workers that are there, with those that were there shortly before; and since when the latter are gone."""
        independent = [key for key, told in picture.told.items() if INDEPENDENT in told.states]
        known = known_of(there.series, self._identity, independent)
        gone_unix_s = {key: self._gone_unix_s.get(key, now_unix_s) for key in self._known if key not in known}
        gone_unix_s = {key: unix_s for key, unix_s in gone_unix_s.items() if now_unix_s - unix_s < _GONE_S}
        return {**known, **{key: replace(self._known[key], info=None) for key in gone_unix_s}}, gone_unix_s

    def _follow(self, known: dict[Key, Known], gone_unix_s: dict[Key, float], send: Callable[[_Told], None]) -> None:
        self._known, self._gone_unix_s = known, gone_unix_s
        self._names = {key: one.target.worker for key, one in known.items()}
        waiting = (
            f"Prometheus {self._server.name}: no series tpumon_target_info{self._selector}; check --selector, and that "
            "it scrapes tpumon"
        )
        workers = workers_of(known.values(), waiting)
        if workers != self._workers:
            self._workers = workers
            send(workers)

    def _comparing(self, now: Now) -> Comparing:
        return Comparing(self._server, self._queries(), self._identity, now.asked_unix_s, self._limits)

    async def _compare(
        self,
        comparing: Comparing,
        begun: Awaitable[Begun] | None,
        picture: Picture,
        samples: Mapping[Key, Sample],
        start: Start,
    ) -> None:
        """Looks for stragglers where exporters follow too few workers to find them."""
        present = sum(1 for one in self._known.values() if one.info is not None)
        if picture.judged.get("straggler", 0) >= present:
            self._stragglers = None
            return
        stragglers, first = self._stragglers, None
        if stragglers is None:
            first = await (begun or comparing.begun(self._known, comparing.before(), start))
            stragglers = first.stragglers
        await comparing.compare(stragglers, first, samples, self._known, picture)
        self._stragglers = stragglers

    async def _recalled(self, ahead: _Ahead | None) -> Past:
        """What is known of the time before."""
        past = self._past or Past(self._limits)
        if ahead is not None:
            past.load(await ahead.before, self._names, self._identity)
        past.forget(self._names)
        return past

    def _samples(self, picture: Picture, now: Now) -> dict[Key, Sample]:
        """The samples of all workers that were queried, not judged yet."""
        samples: dict[Key, Sample] = {}
        for key, known in self._known.items():
            if key in self._gone_unix_s:
                samples[key] = _gone(known, now, self._gone_unix_s[key])
            elif (sample := sample_of(known, picture.told.get(key, Told()), now)) is not None:
                samples[key] = sample
        return samples

    def _judged(self, samples: Mapping[Key, Sample], picture: Picture, past: Past, now: Now) -> dict[Key, Sample]:
        """The samples with what is wrong with each; notes what changed."""
        present = sum(1 for one in self._known.values() if one.info is not None)
        by_all = frozenset(finding for finding, workers in picture.judged.items() if workers >= present)
        judged: dict[Key, Sample] = {}
        for key, sample in samples.items():
            judged[key] = sample
            if not sample.answered:
                continue
            told = picture.told[key]
            since = past.found(key, told.findings, now.asked_unix_s)
            causes = [cause_of(one, sample.figures, self._limits, since[one] + now.shift_s) for one in told.findings]
            known = by_all | told.findings
            if self._stragglers is not None and "straggler" not in told.findings:
                slow = self._stragglers.cause(key, now.shift_s)
                causes += [] if slow is None else [slow]
                known = known | ({"straggler"} if self._stragglers.is_judged(key) else set())
            judged[key] = replace(sample, findings=tuple(worst_first(causes)), judged=tuple(known))
        shown = self._without_explained(judged)
        for key, sample in shown.items():
            why = "" if sample.failure is None else sample.failure.message
            past.note(key, sample.worker, now.asked_unix_s, state_of(sample), sample.findings or (), why)
        return shown

    def _without_explained(self, samples: Mapping[Key, Sample]) -> dict[Key, Sample]:
        """The samples without findings that others of the slice explain: the exporters of its workers see only some."""
        groups = {key: group_of(self._known[key].target) for key in samples}
        since: dict[tuple[str, ...], dict[FindingId, float]] = {}
        marked: dict[tuple[str, ...], set[FindingId]] = {}
        for key, sample in samples.items():
            of_group, of_marked = since.setdefault(groups[key], {}), marked.setdefault(groups[key], set())
            for cause in sample.findings or ():
                if cause.finding is not None and cause.since_unix_s is not None:
                    of_group[cause.finding] = min(of_group.get(cause.finding, math.inf), cause.since_unix_s)
                    if cause.severity != "info":
                        of_marked.add(cause.finding)
        interval_s = max((sample.interval_s or 0.0 for sample in samples.values()), default=0.0)
        slack_s = ROUND_S + interval_s * (self._limits.sustained + 1)
        hidden = {group: explained(found, slack_s, marked[group].__contains__) for group, found in since.items()}
        if not any(hidden.values()):
            return dict(samples)

        def left(key: Key, causes: Sequence[Cause]) -> tuple[Cause, ...]:
            return tuple(one for one in causes if one.finding not in hidden[groups[key]])

        return {
            key: replace(sample, findings=left(key, sample.findings)) if sample.findings else sample
            for key, sample in samples.items()
        }

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


def _gone(known: Known, now: Now, since_unix_s: float) -> Sample:
    message = "Prometheus has no series of it any more: its exporter ended, or is not scraped"
    failure = Failure(source=EXPORTER, reason="unavailable", message=message)
    sample = _failed_sample(known, since_unix_s, None, failure)
    return replace(sample, **now.ours(since_unix_s, None))

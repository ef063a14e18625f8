"""Merges the events of several exporters into one stream: picks one exporter for each worker, and a unique name."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from msgspec.structs import replace

from tpumon.collection.remote.exporter import Send
from tpumon.collection.remote.exporter_list import Place
from tpumon.model import (
    Address,
    ExporterSnapshot,
    Finding,
    Sample,
    Severity,
    SourceEvent,
    StatusSnapshot,
    Target,
    Workers,
)
from tpumon.model.finding import MOST_WORKERS
from tpumon.model.page import MOST_RUNS
from tpumon.untrusted_text import one_line

_log = logging.getLogger(__name__)

_GRADES: tuple[Severity, ...] = ("critical", "warning", "info", "unknown", "ok")
_TWICE_S = 30.0  # for so long two exporters may give a worker that moves from one to the other

Key = tuple[str | None, str | None, str]
"""Job, slice and name of a worker, as its exporter or the labels of its place say."""


@dataclass(slots=True, eq=False)
class FollowedExporter:
    """One exporter, and what it says.

    Attributes:
        name: of the exporter.
        place: where it is, with the labels of its workers.
        ask_for_everything: makes it hand on again all that it knows.
        said: its workers, as it says.
        targets: the same with labels, by its own names.
        last: the last sample of each worker.
        grades: severity of each worker as it said last; 0 is the worst.
        statuses: what it knows of each worker beside its last sample.
        snapshot: what it finds and cannot judge, as it said last.
        heard: whether it answered or failed at least once.
        left_s: when it left the list, by a monotonic clock: its workers are kept for a while; None: it is in it.
        is_new: whether its workers are not published yet.
        pending: events about workers that are not published yet.
    """

    name: str
    place: Place = field(default_factory=lambda: Place(url=""))
    ask_for_everything: Callable[[], None] = lambda: None
    said: Workers = field(default_factory=Workers)
    targets: dict[str, Target] = field(default_factory=dict)
    last: dict[str, Sample] = field(default_factory=dict)
    grades: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, StatusSnapshot] = field(default_factory=dict)
    snapshot: ExporterSnapshot | None = None
    heard: bool = False
    left_s: float | None = None
    is_new: bool = False
    pending: list[SourceEvent] = field(default_factory=list)

    def follow(self, workers: Workers) -> None:
        """Takes the exporter's list of workers; labels fill in job and slice where it does not know them."""
        self.said, self.is_new = workers, True
        self.targets = {target.worker: self._labelled(target) for target in workers.targets}
        self.last = {worker: sample for worker, sample in self.last.items() if worker in self.targets}
        self.grades = {worker: grade for worker, grade in self.grades.items() if worker in self.targets}
        self.statuses = {worker: status for worker, status in self.statuses.items() if worker in self.targets}

    def note(self, snapshot: ExporterSnapshot) -> None:
        """Keeps what it says of its workers beside samples, for when another name or this exporter counts for one."""
        self.snapshot = replace(snapshot, complete=False, statuses=(), changes=(), history={})
        listed = {each.worker: each for each in snapshot.statuses if each.worker in self.targets}
        self.statuses = listed if snapshot.complete else self.statuses | listed
        self.grades |= {worker: _GRADES.index(status.severity) for worker, status in listed.items()}

    @property
    def is_gone(self) -> bool:
        """True if it has left the list."""
        return self.left_s is not None

    @property
    def is_unheard(self) -> bool:
        """True if it does not answer, and its workers are not known."""
        return not self.is_gone and self.said.waiting is not None and not self.said.via

    def _labelled(self, target: Target) -> Target:
        job, slice_name = target.job or self.place.job, target.slice or self.place.slice
        is_relabelled = (job, slice_name) != (target.job, target.slice)
        independent = target.independent and not is_relabelled
        return replace(target, job=job, slice=slice_name, independent=independent, exporter=self.name)

    def is_live(self, worker: str, now_unix_s: float, now_s: float) -> bool:
        """Tells that it has a current sample of a worker."""
        last = self.last.get(worker)
        return not self.is_gone and last is not None and not last.is_stale(now_unix_s, now_s)


Candidate = tuple[FollowedExporter, str]
"""A worker of an exporter, by its name there."""


class Merging:
    """Sends what exporters say as if they were one.

    (job, slice, name) is one worker: the worst of those that answer, which mostly is one. Where two are live for long,
    these are different workers, compared with none: that in the worse state is shown, or, where they are kept apart,
    each as EXPORTER/NAME. Where workers differ in job or slice only, each is JOB/SLICE/NAME.

    Args:
        send: takes the events of the stream.
        keeps_apart: whether it is for people; what Prometheus gets has the names that the hosts give.
        clock: returns the seconds since the epoch.
        monotonic_s: reads a monotonic clock.

    Attributes:
        exporters: in the order in which they are named, then those that are gone.
        is_due: whether the workers have to be published.
    """

    def __init__(
        self,
        send: Send,
        *,
        keeps_apart: bool = False,
        clock: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._keeps_apart = keeps_apart
        self._clock = clock
        self._monotonic_s = monotonic_s
        self.exporters: Sequence[FollowedExporter] = ()
        self.finders: Mapping[str, bool] = {}
        self.is_due = False
        self._published: Workers | None = None
        self._names: dict[Candidate, str] = {}  # by which each followed worker is known in the stream
        self._shown: frozenset[str] = frozenset()
        self._owners: dict[Key, Candidate] = {}
        self._shared: dict[Key, list[Candidate]] = {}
        self._collided: set[str] = set()
        self._both_live: dict[Key, float] = {}  # since when
        self._said: set[Key] = set()
        self._is_cut = False

    @property
    def workers(self) -> int:
        """Number of the workers that are followed."""
        return len(self._names)

    def add(self, exporter: FollowedExporter, event: SourceEvent) -> None:
        """Adds an event of an exporter; what is about workers that are not published yet waits for them."""
        exporter.heard = True
        if isinstance(event, Workers):
            exporter.follow(event)
            self.is_due = True
            return
        if isinstance(event, Sample) and event.worker in exporter.targets:
            exporter.last[event.worker] = event
            if event.findings is not None:
                exporter.grades[event.worker] = min((_GRADES.index(one.severity) for one in event.findings), default=9)
        elif isinstance(event, ExporterSnapshot):
            exporter.note(event)
        if exporter.is_new:
            exporter.pending.append(event)
        else:
            self._pass_on(exporter, event)

    def publish(self, waiting: str | None = None) -> None:
        """Sends the workers, if they have changed, then what waited for them.

        Args:
            waiting: why there are none; None: what the exporters say.
        """
        before_owners, before_names = self._owners, self._names
        self._choose()
        self.is_due = False
        self.check_owners()
        if self.is_due:  # two turned out to be different workers: not a word of the one that is not shown
            self._choose()
        names = self._names = self._named()
        self._shown = frozenset(names.values())
        doubted = {
            each
            for key in self._said
            for each in (self._shared[key] if self._is_split(key) else [self._owners[key]] * self._is_doubted(key))
        }
        targets = tuple(_target(*each, name, ambiguous=each in doubted) for each, name in names.items())
        runs = dict.fromkeys(run for exporter in self.exporters if not exporter.is_gone for run in exporter.said.via)
        workers = Workers(
            targets=targets,
            waiting=None if targets else waiting or self._waiting(),
            finders=self.finders,
            via=tuple(sorted(runs)[:MOST_RUNS]),
            unheard=tuple(each.name for each in self.exporters if each.is_unheard),
        )
        self.is_due = False
        if workers != self._published:
            self._published = workers
            self._send(workers)
        for key, owner in self._owners.items():
            name = names.get(owner)
            if name is not None and (before_owners.get(key, owner), before_names.get(owner, name)) != (owner, name):
                self._catch_up(*owner)
        for exporter in self.exporters:
            pending, exporter.pending, exporter.is_new = exporter.pending, [], False
            for event in pending:
                self._pass_on(exporter, event)

    def check_owners(self) -> None:
        """Checks whether another exporter has a worker now, and whether two have one for long. Call it each second."""
        now_s = self._monotonic_s()
        for key, candidates in self._shared.items():
            live = self._live(candidates)
            owner = self._owners.get(key)
            if live and owner is not None and self._best(key, live) != owner:
                self.is_due = True
            if len(live) < 2 or _are_same(live):
                self.is_due |= self._is_doubted(key)
                self._both_live.pop(key, None)
                continue
            both_live_s = now_s - self._both_live.setdefault(key, now_s)
            if key not in self._said and (both_live_s >= _TWICE_S or _are_two(live)):
                self._said.add(key)
                self.is_due = True
                first, second = (
                    f"{exporter.targets[worker].address} of {exporter.name}" for exporter, worker in live[:2]
                )
                _log.warning(
                    "%s is two workers; tell them apart by --job where they are sampled: %s, and %s; %s shown, "
                    "compared with none",
                    _joined(key),
                    first,
                    second,
                    "both are" if self._keeps_apart else "the worse is",
                )

    def _is_doubted(self, key: Key) -> bool:
        """True if two live exporters have had a worker for long."""
        return key in self._said and key in self._both_live

    def _is_split(self, key: Key) -> bool:
        """True if each of the workers of one name is shown, also while one of them is away."""
        return self._keeps_apart and key in self._said

    def _best(self, key: Key, live: Sequence[Candidate]) -> Candidate:
        """The candidate to show among live ones: the worst, as they may be different workers.

        While they may be one that moves, the worst of those that answer: it answers in one place at a time.
        """
        if not self._is_doubted(key):
            answering = [each for each in live if each[0].last[each[1]].failure is None]
            live = live[:1] if _are_same(live) else answering or live[:1]
        return min(live, key=lambda each: each[0].grades.get(each[1], 9))

    def _live(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        now_unix_s, now_s = self._clock(), self._monotonic_s()
        return [each for each in candidates if each[0].is_live(each[1], now_unix_s, now_s)]

    def _choose(self) -> None:
        """Assigns each worker to an exporter: the best in which the worker is live, else its exporter so far."""
        having: dict[Key, list[Candidate]] = {}
        for exporter, worker in self._each():
            target = exporter.targets[worker]
            having.setdefault((target.job, target.slice, _plain(target)), []).append((exporter, worker))
        before, self._owners, self._shared = self._owners, {}, {}
        for key, candidates in having.items():
            owner = candidates[0]
            if len(candidates) > 1:
                self._shared[key] = candidates
                if self._is_split(key):
                    job, slice_name, name = key
                    for exporter, worker in candidates:
                        self._owners[job, slice_name, f"{exporter.name.rpartition('://')[2]}/{name}"] = exporter, worker
                    continue
                there = [each for each in candidates if not each[0].is_gone] or candidates
                live = self._live(there)
                was = before.get(key)
                owner = self._best(key, live) if live else was if was in there else there[0]
            self._owners[key] = owner
        self._said &= self._shared.keys()
        self._both_live = {key: since for key, since in self._both_live.items() if key in self._shared}

    def _each(self) -> Iterator[Candidate]:
        """All workers, of each exporter as many as there is room for."""
        counts = sorted(len(exporter.targets) for exporter in self.exporters)
        room, most = MOST_WORKERS, MOST_WORKERS
        for at, count in enumerate(counts):
            share = room // (len(counts) - at)
            if count > share:
                most = share
                break
            room -= count
        if counts and counts[-1] > most and not self._is_cut:
            _log.warning("more than %s workers: of each exporter the first %s are followed", MOST_WORKERS, most)
        self._is_cut = bool(counts) and counts[-1] > most
        for exporter in self.exporters:
            for worker in list(exporter.targets)[:most]:
                yield exporter, worker

    def _named(self) -> dict[Candidate, str]:
        """Name of each worker: its name at the exporter, with job and slice if others have the same name."""
        count = Counter(key[2] for key in self._owners)
        # Whose name once was not enough keeps the longer one while there is any worker of that name.
        self._collided = {name for name in self._collided if name in count} | {
            name for name, times in count.items() if times > 1
        }
        names: dict[Candidate, str] = {}
        taken = set(count) - self._collided
        for key, owner in self._owners.items():
            name = key[2]
            if name in self._collided:
                name = _joined(key)
                if name in taken:
                    name = one_line(f"{name} ({owner[0].name})", limit=200)
                if name in taken:
                    continue
                taken.add(name)
            names[owner] = name
        return names

    def _waiting(self) -> str | None:
        lines = [exporter.said.waiting for exporter in self.exporters if exporter.said.waiting is not None]
        more = f" (and {len(lines) - 1} more exporters have no workers)" if len(lines) > 1 else ""
        return f"{lines[0]}{more}" if lines else None

    def _catch_up(self, exporter: FollowedExporter, worker: str) -> None:
        """Sends what was known of a worker that has another exporter or another name from now on."""
        exporter.ask_for_everything()
        if exporter.snapshot is not None and worker in exporter.statuses:  # until it comes
            self._pass_on(exporter, replace(exporter.snapshot, statuses=(exporter.statuses[worker],)))
        comes = any(isinstance(event, Sample) and event.worker == worker for event in exporter.pending)
        if worker in exporter.last and not comes:
            self._pass_on(exporter, replace(exporter.last[worker], traced_s=0.0))

    def _pass_on(self, exporter: FollowedExporter, event: SourceEvent) -> None:
        if isinstance(event, Sample):
            name, target = self._names.get((exporter, event.worker)), exporter.targets.get(event.worker)
            if name is not None and target is not None:
                self._send(replace(event, worker=name, job=event.job or target.job, slice=event.slice or target.slice))
        elif isinstance(event, ExporterSnapshot):

            def name_of(worker: str) -> str | None:
                """Name in the stream, also of a worker that has left; None: the worker belongs to another exporter."""
                shown_as = self._names.get((exporter, worker))
                return shown_as or (None if worker in exporter.targets or worker in self._shown else worker)

            self._send(_renamed(event, name_of))
        else:
            self._send(event)


def _target(exporter: FollowedExporter, worker: str, name: str, *, ambiguous: bool) -> Target:
    target = exporter.targets[worker]
    plain = _plain(target)
    return replace(target, worker=name, name=None if name == plain else plain, ambiguous=ambiguous)


def _plain(target: Target) -> str:
    """The name of a worker where it is sampled."""
    return target.name or target.worker


def _are_same(live: Sequence[Candidate]) -> bool:
    """True if the first two hand on the same samples, by two ways."""
    return len(live) > 1 and bool(set(live[0][0].said.via) & set(live[1][0].said.via))


def _are_two(live: Sequence[Candidate]) -> bool:
    """True if no job moves, as none is known where they are sampled, and the ports or the machines differ."""
    places = [_place(exporter, exporter.targets[worker].address) for exporter, worker in live]
    machines, ports = ({place[at] for place in places} for at in (0, 1))
    has_job = any(
        target.job for exporter, worker in live for target in exporter.said.targets if target.worker == worker
    )
    return not has_job and (len(ports) > 1 or (None not in machines and len(machines) > 1))


def _place(exporter: FollowedExporter, address: str) -> tuple[str | None, str]:
    """Machine and port of a worker; None: the machine is not known, as of a tunnel."""
    host, _, port = address.rpartition(":")
    try:
        if not Address.parse(address).is_this_host:
            return host, port
    except ValueError:
        return None, address
    machine = urlsplit(exporter.name).hostname
    return (machine if machine and len(exporter.said.via) < 2 and not Address(machine, 0).is_this_host else None), port


def _joined(key: Key) -> str:
    return one_line("/".join(filter(None, key)), limit=200)


def _renamed(snapshot: ExporterSnapshot, name_of: Callable[[str], str | None]) -> ExporterSnapshot:
    """The snapshot by the names of the stream, without workers that another exporter has."""
    names = {worker: name_of(worker) for worker in _about(snapshot)}
    history = {}
    for worker, series in snapshot.history.items():
        name = "" if worker == "" else name_of(worker)
        if name is not None:
            history[name] = series
    return replace(
        snapshot,
        statuses=tuple(replace(each, worker=name) for each in snapshot.statuses if (name := names[each.worker])),
        changes=tuple(replace(each, worker=name) for each in snapshot.changes if (name := names[each.worker])),
        history=history,
        findings=None
        if snapshot.findings is None
        else tuple(finding for each in snapshot.findings if (finding := _found(each, name_of)) is not None),
    )


def _about(snapshot: ExporterSnapshot) -> set[str]:
    return {each.worker for each in snapshot.statuses} | {each.worker for each in snapshot.changes}


def _found(finding: Finding, name_of: Callable[[str], str | None]) -> Finding | None:
    workers = tuple(name for worker in finding.workers if (name := name_of(worker)) is not None)
    return replace(finding, workers=workers) if workers or not finding.workers else None

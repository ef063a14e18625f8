"""The events of several exporters as one stream: whose a worker is where several have it, and its name there."""

from __future__ import annotations

import logging
import math
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from urllib.parse import urlsplit

from msgspec.structs import replace

from tpumon.collection.remote.exporter import Send
from tpumon.collection.remote.places import Place
from tpumon.model import Address, Finding, Handover, Sample, SourceEvent, Target, Workers
from tpumon.model.page import MOST_RUNS, MOST_WORKERS
from tpumon.untrusted_text import one_line

_log = logging.getLogger(__name__)

_FRESH_INTERVALS, _FRESH_S = 1.3, 2.0  # no worker is sampled at another exporter so soon after it has moved there
_SAME_START_S = 0.5

Key = tuple[str | None, str | None, str]
"""Job, slice and name of a worker, as its exporter or the labels of its place say."""


@dataclass(slots=True, eq=False)
class Source:
    """One exporter, and what it says.

    Attributes:
        name: of the exporter.
        place: where it is, with the labels of its workers.
        ask_for_everything: makes it hand on again all that it knows.
        said: its workers, as it says.
        runs: of the exporters that their samples came through.
        targets: the same with labels, by its own names.
        last: the last sample of each worker.
        heard: whether it answered or failed at least once.
        left_s: when it left the list, by a monotonic clock: its workers are kept for a while; None: it is in it.
        is_new: whether its workers are not published yet.
        held: events about workers that are not published yet.
    """

    name: str
    place: Place = field(default_factory=lambda: Place(url=""))
    ask_for_everything: Callable[[], None] = lambda: None
    said: Workers = field(default_factory=Workers)
    runs: frozenset[str] = frozenset()
    targets: dict[str, Target] = field(default_factory=dict)
    last: dict[str, Sample] = field(default_factory=dict)
    heard: bool = False
    left_s: float | None = None
    is_new: bool = False
    held: list[SourceEvent] = field(default_factory=list)

    def follow(self, workers: Workers) -> None:
        """Takes its workers; labels fill in what it does not know."""
        self.said, self.runs, self.is_new = workers, frozenset(workers.via), True
        self.targets = {target.worker: self._labelled(target) for target in workers.targets}
        self.last = {worker: sample for worker, sample in self.last.items() if worker in self.targets}

    @property
    def is_gone(self) -> bool:
        """True if it has left the list."""
        return self.left_s is not None

    @property
    def reads_others(self) -> bool:
        """True if it samples its workers through other exporters."""
        return len(self.runs) > 1

    @property
    def is_unheard(self) -> bool:
        """True if it does not answer, and its workers are not known."""
        return not self.is_gone and self.said.waiting is not None and not self.said.via

    def _labelled(self, target: Target) -> Target:
        job, slice_name = target.job or self.place.job, target.slice or self.place.slice
        known = (job, slice_name) != (target.job, target.slice)
        independent = target.independent and not known
        return replace(target, job=job, slice=slice_name, independent=independent, exporter=self.name)

    def is_live(self, worker: str, now_unix_s: float, now_s: float) -> bool:
        """Tells that it has a current sample of a worker."""
        last = self.last.get(worker)
        return not self.is_gone and last is not None and not last.is_stale(now_unix_s, now_s)

    def is_fresh(self, worker: str, now_unix_s: float, now_s: float) -> bool:
        """Tells that it has sampled a worker just now."""
        if not self.is_live(worker, now_unix_s, now_s):
            return False
        last = self.last[worker]
        return last.age_s(now_unix_s, now_s) <= _FRESH_INTERVALS * (last.interval_s or 0.0) + last.took_s + _FRESH_S

    def place_of(self, worker: str) -> tuple[str | None, str]:
        """The machine and the port of a worker's profiler server; None: the machine is not known from here."""
        target = self.targets[worker]
        try:
            address = Address.parse(target.address).place
        except ValueError:
            return None, target.address
        port = str(address.port)
        if not address.is_this_host:
            return address.host, port
        host = urlsplit(self.name).hostname
        if host is None or self.reads_others:  # then the address is theirs
            return None, port
        if not Address(host, 0).place.is_this_host:
            return host, port
        # At a loopback address may be a tunnel to another machine.
        name = _plain(target).removesuffix(f":{port}")
        return name if name == socket.gethostname() else None, port


Candidate = tuple[Source, str]
"""A worker of an exporter, by its name there."""


class Merging:
    """Sends what exporters say as if they were one.

    (job, slice, name) is one worker: the first live one in the order of the exporters. Where it is several workers, or
    may be, each is shown with its place in its name, and compared with none. Where workers differ in job or slice only,
    JOB/SLICE/NAME is the name of each.

    Args:
        send: takes the events of the stream.
        clock: returns the seconds since the epoch.
        monotonic_s: reads a monotonic clock.

    Attributes:
        sources: of all exporters, in the order in which they are named, then those that are gone.
        is_due: whether the workers have to be published.
    """

    def __init__(
        self,
        send: Send,
        *,
        clock: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._clock = clock
        self._monotonic_s = monotonic_s
        self.sources: Sequence[Source] = ()
        self.finders: Mapping[str, bool] = {}
        self.is_due = False
        self._published: Workers | None = None
        self._names: dict[Candidate, str] = {}  # by which each followed worker is known in the stream
        self._shown: frozenset[str] = frozenset()
        self._owners: dict[Key, dict[str, Candidate]] = {}  # by place where several workers have the name, else by ""
        self._shared: dict[Key, list[Candidate]] = {}
        self._collided: set[str] = set()
        self._apart: set[Key] = set()  # names of several workers
        self._is_cut = False

    @property
    def workers(self) -> int:
        """Number of the workers that are followed."""
        return len(self._names)

    def take(self, source: Source, event: SourceEvent) -> None:
        """Takes an event of an exporter; what is about workers that are not published yet waits for them."""
        source.heard = True
        if isinstance(event, Workers):
            source.follow(event)
            self.is_due = True
            return
        if isinstance(event, Sample) and event.worker in source.targets:
            source.last[event.worker] = event
        if source.is_new:
            source.held.append(event)
        else:
            self._pass_on(source, event)

    def publish(self, waiting: str | None = None) -> None:
        """Sends the workers, if they have changed, then what waited for them.

        Args:
            waiting: why there are none; None: what the exporters say.
        """
        before, hidden = self._names, {*chain.from_iterable(self._shared.values())} - self._names.keys()
        self._choose()
        names = self._names = self._named()
        self._shown = frozenset(names.values())
        apart = {owner for key in self._apart if len(its := self._owners[key]) > 1 for owner in its.values()}
        targets = tuple(_target(*each, name, ambiguous=each in apart) for each, name in names.items())
        runs = dict.fromkeys(run for source in self.sources if not source.is_gone for run in source.said.via)
        workers = Workers(
            targets=targets,
            waiting=None if targets else waiting or self._waiting(),
            finders=self.finders,
            via=tuple(sorted(runs)[:MOST_RUNS]),
            unheard=tuple(each.name for each in self.sources if each.is_unheard),
        )
        self.is_due = False
        if workers != self._published:
            self._published = workers
            self._send(workers)
        for owner, name in names.items():
            if owner in hidden or before.get(owner, name) != name:
                self._catch_up(*owner)
        for source in self.sources:
            held, source.held, source.is_new = source.held, [], False
            for event in held:
                self._pass_on(source, event)

    def look(self) -> None:
        """Looks whether another exporter has a worker now, and whether two are one. Call it each second."""
        self.is_due |= any(self._chosen(key, its) != self._owners.get(key) for key, its in self._shared.items())

    def _live(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        now_unix_s, now_s = self._clock(), self._monotonic_s()
        return [each for each in candidates if each[0].is_live(each[1], now_unix_s, now_s)]

    def _choose(self) -> None:
        """Says whose each worker is."""
        having: dict[Key, list[Candidate]] = {}
        for source, worker in self._each():
            target = source.targets[worker]
            having.setdefault((target.job, target.slice, _plain(target)), []).append((source, worker))
        self._shared = {key: candidates for key, candidates in having.items() if len(candidates) > 1}
        self._apart &= having.keys()
        self._owners = {key: self._chosen(key, candidates) for key, candidates in having.items()}

    def _chosen(self, key: Key, candidates: Sequence[Candidate]) -> dict[str, Candidate]:
        """Whose a worker is: of several exporters the first that is live, else the one whose it was."""
        if len(candidates) == 1 and key not in self._apart:
            return {"": candidates[0]}
        if key not in self._apart:
            candidates = [each for each in candidates if not each[0].is_gone] or candidates
        places = _by_place(candidates)
        if key not in self._apart and self._are_several(key, places):
            self._apart.add(key)
        before = self._owners.get(key, {})
        by_place = places if key in self._apart else {"": list(candidates)}
        return {place: self._best(each, before.get(place)) for place, each in by_place.items()}

    def _best(self, candidates: Sequence[Candidate], was: Candidate | None) -> Candidate:
        there = [each for each in candidates if not each[0].is_gone] or candidates
        live = self._live(there)
        return live[0] if live else was if was is not None and was in there else there[0]

    def _are_several(self, key: Key, places: Mapping[str, Sequence[Candidate]]) -> bool:
        """True if candidates of one name are, or may be, different workers; it is said.

        Of an unknown job nobody knows what belongs together. A worker of a job may have moved, unless both are there.
        """
        if len(places) < 2:
            return False
        now_unix_s, now_s = self._clock(), self._monotonic_s()
        first, second = (each[0] for each in list(places.values())[:2])
        (machine, port), (other, other_port) = first[0].place_of(first[1]), second[0].place_of(second[1])
        is_certain = port != other_port or None not in {machine, other}
        fresh = [its for its in places.values() if any(each[0].is_fresh(each[1], now_unix_s, now_s) for each in its)]
        if len(fresh) < 2 and not (is_certain and key[0] is None):
            return False
        _log.warning(
            "%s %s: %s of %s and %s of %s; %s shown, compared with none; tell them apart by --job where they are "
            "sampled",
            _joined(key),
            f"is the name of {len(places)} workers" if is_certain else f"may be one worker or {len(places)}",
            *chain.from_iterable((each[0].targets[each[1]].address, _short(each[0])) for each in (first, second)),
            "both are" if len(places) == 2 else "all are",
        )
        return True

    def _each(self) -> Iterator[Candidate]:
        """All workers, of each exporter as many as there is room for."""
        counts = sorted(len(source.targets) for source in self.sources)
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
        for source in self.sources:
            for worker in list(source.targets)[:most]:
                yield source, worker

    def _named(self) -> dict[Candidate, str]:
        """A name for each worker: the one that it has there, with job and slice where others have the same."""
        count = Counter(key[2] for key in self._owners)
        # Whose name once was not enough keeps the longer one while there is any worker of that name.
        self._collided = {name for name in self._collided if name in count} | {
            name for name, times in count.items() if times > 1
        }
        names: dict[Candidate, str] = {}
        taken = {key[2] for key in self._owners.keys() - self._apart} - self._collided
        for key, owners in self._owners.items():
            for place, owner in owners.items():
                name = key[2]
                if name in self._collided or place:
                    name = _with_place(key, place)
                    if name in taken:
                        name = one_line(f"{name} ({_short(owner[0])})", limit=200)
                    if name in taken:
                        continue
                    taken.add(name)
                names[owner] = name
        return names

    def _waiting(self) -> str | None:
        lines = [source.said.waiting for source in self.sources if source.said.waiting is not None]
        more = f" (and {len(lines) - 1} more exporters have no workers)" if len(lines) > 1 else ""
        return f"{lines[0]}{more}" if lines else None

    def _catch_up(self, source: Source, worker: str) -> None:
        """Sends what was known of a worker that has another exporter or another name from now on."""
        source.ask_for_everything()
        held = any(isinstance(event, Sample) and event.worker == worker for event in source.held)
        if worker in source.last and not held:
            self._pass_on(source, replace(source.last[worker], traced_s=0.0))

    def _pass_on(self, source: Source, event: SourceEvent) -> None:
        if isinstance(event, Sample):
            name, target = self._names.get((source, event.worker)), source.targets.get(event.worker)
            if name is not None and target is not None:
                self._send(replace(event, worker=name, job=event.job or target.job, slice=event.slice or target.slice))
        elif isinstance(event, Handover):

            def name_of(worker: str) -> str | None:
                """The name in the stream; of a worker that has left, the one that it had; None: it is another's."""
                known = self._names.get((source, worker))
                return known or (None if worker in source.targets or worker in self._shown else worker)

            self._send(_renamed(event, name_of))
        else:
            self._send(event)


def _by_place(candidates: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    """Candidates by `MACHINE:PORT`, or by exporter where it does not know the machine of a worker.

    Samples that came by two ways are one worker's, and so is a process.
    """
    places: dict[str, list[Candidate]] = {}
    of_sign: dict[object, str] = {}
    seen: list[tuple[Source, str, str]] = []
    chains: list[tuple[Source, str, str]] = []  # those of them that read other exporters
    for source, worker in candidates:
        machine, port = source.place_of(worker)
        place = _short(source) if machine is None else f"{machine}:{port}"
        address = source.targets[worker].address
        for sign in _signs(source, worker, port):
            place = of_sign.setdefault(sign, place)
        compared = seen if source.reads_others else chains
        same = (each[2] for each in compared if each[1] == address and not source.runs.isdisjoint(each[0].runs))
        place = next(same, place)
        seen.append((source, address, place))
        chains += seen[-1:] if source.reads_others else ()
        places.setdefault(place, []).append((source, worker))
    return places


def _signs(source: Source, worker: str, port: str) -> Iterator[object]:
    """Signs of one worker, which no other has: who sampled it, and its process."""
    if source.runs:
        yield source.targets[worker].address, source.runs
    last = source.last.get(worker)
    if last is not None and last.process is not None and last.process.started_unix_s is not None:
        halves = last.process.started_unix_s / _SAME_START_S
        yield from ((port, last.process.pid, each) for each in (math.floor(halves), math.floor(halves + 0.5) + 0.5))


def _with_place(key: Key, place: str) -> str:
    """Job, slice, name, and the place where workers of that name differ in it: of a host's own name, its port."""
    name, (host, _, port) = _joined(key), place.rpartition(":")
    if not place:
        return name
    if host and key[2].removesuffix(f":{port}") == host:
        return f"{name.removesuffix(f':{port}')}:{port}"
    return one_line(f"{name} ({place})", limit=200)


def _short(source: Source) -> str:
    return source.name.removeprefix("http://")


def _target(source: Source, worker: str, name: str, *, ambiguous: bool) -> Target:
    """The worker by its name in the stream; where others have all that identifies it, that is its only one."""
    target = source.targets[worker]
    plain = _plain(target)
    return replace(target, worker=name, name=None if ambiguous or name == plain else plain, ambiguous=ambiguous)


def _plain(target: Target) -> str:
    """The name of a worker where it is sampled."""
    return target.name or target.worker


def _joined(key: Key) -> str:
    return one_line("/".join(filter(None, key)), limit=200)


def _renamed(handover: Handover, name_of: Callable[[str], str | None]) -> Handover:
    """The handover by the names of the stream, without workers that another exporter has."""
    names = {worker: name_of(worker) for worker in _about(handover)}
    history = {}
    for worker, series in handover.history.items():
        name = "" if worker == "" else name_of(worker)
        if name is not None:
            history[name] = series
    return replace(
        handover,
        statuses=tuple(replace(each, worker=name) for each in handover.statuses if (name := names[each.worker])),
        changes=tuple(replace(each, worker=name) for each in handover.changes if (name := names[each.worker])),
        history=history,
        findings=None
        if handover.findings is None
        else tuple(found for each in handover.findings if (found := _found(each, name_of)) is not None),
    )


def _about(handover: Handover) -> set[str]:
    return {each.worker for each in handover.statuses} | {each.worker for each in handover.changes}


def _found(finding: Finding, name_of: Callable[[str], str | None]) -> Finding | None:
    workers = tuple(name for worker in finding.workers if (name := name_of(worker)) is not None)
    return replace(finding, workers=workers) if workers or not finding.workers else None

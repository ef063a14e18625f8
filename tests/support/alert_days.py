"""Hours of made-up fleets, minute by minute: ordinary ones, and some in which something happens at minute 60."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any

BEGIN = 60
"""The minute at which trouble begins."""

Span = tuple[int, int, float | None]
"""First minute, number of minutes, value; None is no value."""


@dataclass
class Fleet:
    """Series of tpumon processes as Prometheus scrapes them.

    Attributes:
        minutes: how long it lasts.
        pages: `up` of each exporter.
        away: minutes in which Prometheus itself is away.
        instances: whose page each series is on.
    """

    minutes: int = 240
    series: dict[str, list[float | None]] = field(default_factory=dict)
    pages: dict[str, list[float | None]] = field(default_factory=dict)
    away: set[int] = field(default_factory=set)
    instances: dict[str, str] = field(default_factory=dict)

    def values(self, usual: float | None, *changes: Span) -> list[float | None]:
        """A value for each minute."""
        values = [usual] * self.minutes
        for begin, length, value in changes:
            values[begin : begin + length] = [value] * max(0, min(length, self.minutes - begin))
        return values

    def exporter(
        self, instance: str, *, first: int = 0, last: int | None = None, down: Iterable[tuple[int, int]] = (),
        cluster: str = "",
    ) -> None:  # fmt: skip
        """A tpumon: a target from its first to its last minute; where it is down, it cannot be scraped."""
        gone = (0, first, None), (self.minutes if last is None else last, self.minutes, None)
        self.pages[instance] = self.values(1, *((begin, length, 0) for begin, length in down), *gone)
        self._add(instance, cluster, "tpumon_build_info", {"version": "1"}, self.values(1))

    def worker(
        self, name: str, *, job: str = "ml/t", slice_name: str = "s", instance: str | None = None, first: int = 0,
        last: int | None = None, up: Iterable[Span] = (), active: Iterable[Span] = (), size: int | None = None,
        found: Mapping[str, Sequence[Span]] | None = None, cluster: str = "", clock: int = 0, independent: int = 0,
    ) -> None:  # fmt: skip
        """A worker of a job, watched from its first to its last minute.

        Args:
            instance: its tpumon; None: one that watches nothing else, on its host.
            up: spans in which it does not respond, or does again.
            active: spans in which nothing runs.
            size: how many workers its slice is to have; None: nothing tells.
            found: severities, by finding.
            clock: by how many minutes the clock of its host is ahead.
        """
        if instance is None:
            instance = f"node-{job}-{slice_name}-{name}"
            if instance not in self.pages:
                self.exporter(instance, cluster=cluster)
        away = (0, first, None), (self.minutes if last is None else last, self.minutes, None)
        labels = {"worker": name, **({"tpu_job": job, "tpu_slice": slice_name} if job else {})}

        def add(metric: str, usual: float | None, *changes: Span, **more: str) -> None:
            values = self.values(usual, *changes, *away)
            self._add(instance, cluster, metric, {**labels, **more}, values)

        down = [(begin, length, None) for begin, length, value in up if value == 0]
        add("tpumon_target_info", 1, job_kind="training")
        add("tpumon_target_independent", independent)
        add("tpumon_target_up", 1, *up)
        add("tpumon_target_paused", 0)
        add("tpumon_target_busy", 0)
        add("tpumon_target_active", 1, *active, *down)
        add("tpumon_sample_interval_seconds", 10)
        add("tpu_worker_info", 1, *down, source="trace")
        if size is not None:
            add("tpumon_target_slice_workers", size)
        answered = [6.0 * count for count in accumulate(value or 0 for value in self.values(1, *up))]
        self._add(instance, cluster, "tpumon_samples_total", labels, _within(answered, first, last))
        succeeded = [60.0 * (minute + clock) for minute in range(self.minutes)]
        self._add(
            instance, cluster, "tpumon_target_last_success_timestamp_seconds", labels, _within(succeeded, first, last)
        )
        for finding, spans in (found or {}).items():
            add("tpumon_finding_severity", 0, *spans, *down, finding=finding)
            active = [(begin, length, value if value and value >= 2 else None) for begin, length, value in spans]
            add("tpumon_finding_active_severity", None, *active, *down, finding=finding)
            since = [(begin, length, value and 60.0 * (spans[0][0] + clock)) for begin, length, value in spans]
            add("tpumon_finding_since_timestamp_seconds", None, *since, finding=finding)

    def text(self) -> Mapping[str, str]:
        """The series as promtool reads them."""
        shown = {f'up{{job="tpumon", instance="{name}"}}': values for name, values in self.pages.items()}
        shown['up{job="prometheus", instance="itself"}'] = self.values(1, *((minute, 1, None) for minute in self.away))
        for labels, values in self.series.items():
            page = self.pages[self.instances[labels]]
            shown[labels] = [value if page[minute] == 1 else None for minute, value in enumerate(values)]
        return {labels: _runs(values) for labels, values in shown.items()}

    def _add(
        self, instance: str, cluster: str, metric: str, labels: Mapping[str, str], values: list[float | None]
    ) -> None:
        every = {"job": "tpumon", "instance": instance, **({"cluster": cluster} if cluster else {}), **labels}
        matchers = ", ".join(f'{key}="{value}"' for key, value in every.items())
        name = f"{metric}{{{matchers}}}"
        self.series[name], self.instances[name] = values, instance


def together(fleets: Sequence[Fleet]) -> dict[str, str]:
    """The series of several in one Prometheus: clusters `0-`, `1-`, ... that know nothing of each other."""
    series = {}
    for number, fleet in enumerate(fleets):
        for labels, values in fleet.text().items():
            own = labels if 'job="prometheus"' in labels else labels.replace('instance="', f'instance="{number}-')
            if 'cluster="' in own:
                own = own.replace('cluster="', f'cluster="{number}-')
            elif own != labels:
                own = own.replace("{", f'{{cluster="{number}-", ', 1)
            series[own] = values
    return series


def _within(values: list[float], first: int, last: int | None) -> list[float | None]:
    return [
        value if first <= minute < (len(values) if last is None else last) else None
        for minute, value in enumerate(values)
    ]


def _runs(values: Sequence[float | None]) -> str:
    runs = [(value, len(list(run))) for value, run in groupby(values)]
    return " ".join(f"stale _x{length - 1}" if value is None else f"{value:g}x{length - 1}" for value, length in runs)


def train(fleet: Fleet, workers: int = 8, **given: Any) -> None:
    """A training job of one slice, a tpumon on each host; `given` may hold functions of the worker's number."""
    for number in range(workers):
        own = {name: value(number) if callable(value) else value for name, value in given.items()}
        fleet.worker(f"w{number}", **{"size": workers, **own})


def late_images(fleet: Fleet) -> None:
    """Images of the job come 6 min late on one host, 40 min late on another."""
    late = {3: 6, 5: 40}
    train(fleet, up=lambda n: [(0, late.get(n, 0), 0)])


def late_workers(fleet: Fleet) -> None:
    """The same, where a worker is found when its process is there."""
    late = {3: 6, 5: 40}
    train(fleet, first=lambda n: late.get(n, 0), active=[(0, 41, 0)])


def staggered_start(fleet: Fleet) -> None:
    """Workers start one after the other, for 24 min."""
    train(fleet, first=lambda n: 3 * n, active=[(0, 30, 0)])


def job_restarts(fleet: Fleet) -> None:
    """All workers stop within 2 min, are down for 8 min, and come back one by one within 14 min."""
    train(fleet, up=lambda n: [(60 + n % 3, 8 - n % 3 + 2 * n, 0)], active=[(60, 30, 0)])


def tpumon_is_updated(fleet: Fleet) -> None:
    """A rolling update: each tpumon is away for 2 min; what it has found is there again afterwards."""
    for number in range(8):
        name = f"node-ml/t-s-w{number}"
        fleet.exporter(name, down=[(60 + 3 * number, 2)])
    train(fleet)


def new_pod_names(fleet: Fleet) -> None:
    """A pod is scheduled again under another name, 4 min later; the others wait."""
    train(fleet, active=[(62, 10, 0)], last=lambda n: 61 if n == 2 else None)
    fleet.worker("w2-new", first=65, size=8)


def scaled(fleet: Fleet) -> None:
    """A job grows from 4 to 8 workers and shrinks to 4 again while it runs; nothing tells its size."""
    train(fleet, size=None, first=lambda n: 0 if n < 4 else 60, last=lambda n: None if n < 4 else 120)


def surge(fleet: Fleet) -> None:
    """A roll-out of a Deployment: each pod is a job of one; new ones come before old ones go."""
    for number in range(8):
        fleet.worker(f"old-{number}", job=f"web/old-{number}", slice_name="", instance="daemon", last=65 + 4 * number)
        fleet.worker(f"new-{number}", job=f"web/new-{number}", slice_name="", instance="daemon", first=60 + 4 * number)
    fleet.exporter("daemon")


def smaller_again(fleet: Fleet) -> None:
    """A job of 8 workers is submitted again with 4, 3 min later, and compiles for 20 min."""
    train(fleet, last=60)
    for number in range(4):
        fleet.worker(f"w{number}", instance=f"new-{number}", first=63, size=4, active=[(63, 20, 0)])
        fleet.exporter(f"new-{number}", first=63)


def checkpoints(fleet: Fleet) -> None:
    """A checkpoint of 9 min each hour."""
    pauses = range(30, fleet.minutes, 60)
    train(
        fleet, active=[(minute, 9, 0) for minute in pauses],
        found={"hang": [(minute + 5, 4, 1) for minute in pauses]},
    )  # fmt: skip


def notebook(fleet: Fleet) -> None:
    """A notebook that waits for its user: hang is info."""
    train(fleet, 1, active=[(20, 200, 0)], found={"hang": [(25, 195, 1)], "idle": [(25, 195, 1)]})


def server_at_night(fleet: Fleet) -> None:
    """A server without requests: of servers neither hang nor idle is judged."""
    train(fleet, 1, active=[(20, 200, 0)])


def missed_scrapes(workers: int, share: float) -> Callable[[Fleet], None]:
    """Some scrapes of a job's tpumons fail, one here, one there."""

    def fill(fleet: Fleet) -> None:
        train(fleet, workers)
        draw = random.Random(workers)
        for minute in range(10, fleet.minutes):
            for page in fleet.pages.values():
                page[minute] = float(draw.random() >= share)

    return fill


def clocks(fleet: Fleet) -> None:
    """Clocks of hosts 15 min ahead and behind; what is found for 3 min is no trouble."""
    blips = [(minute, 3, 2) for minute in range(30, 240, 40)]
    train(fleet, clock=lambda n: (15, -15, 0)[n % 3], found={"slow-down": blips, "input-bound": blips})


def prometheus_away(fleet: Fleet) -> None:
    """Prometheus itself is away for 12 min, later for an hour."""
    train(fleet)
    fleet.away = {*range(50, 62), *range(100, 160)}
    for page in fleet.pages.values():
        for minute in fleet.away:
            page[minute] = None


def nodes_come_and_go(fleet: Fleet) -> None:
    """Nodes without a job are added and taken away; on each, tpumon's image takes 6 min."""
    train(fleet, 4)
    for number in range(6):
        begin = 20 + 20 * number
        fleet.exporter(f"added-{number}", first=begin, last=begin + 50, down=[(begin, 6)])


def jobs_end(fleet: Fleet) -> None:
    """25 jobs of 2 workers, one after the other, that end well."""
    each = fleet.minutes // 25
    for number in range(25):
        for name in ("a", "b"):
            begin = each * number
            fleet.worker(name, job=f"ml/run-{number}", instance=name, first=begin, last=begin + each - 2, size=2)
    fleet.exporter("a")
    fleet.exporter("b")


def jobs_stop(fleet: Fleet) -> None:
    """25 jobs that end well, where their workers stay named: they respond no longer."""
    each = fleet.minutes // 25
    for number in range(25):
        begin = each * number
        for name in ("a", "b"):
            fleet.worker(name, job=f"ml/run-{number}", instance=name, first=begin, up=[(begin + each - 2, 9999, 0)])
    fleet.exporter("a")
    fleet.exporter("b")


def compiling(fleet: Fleet) -> None:
    """A job compiles for 20 min: nothing runs, and tpumon says why, as info."""
    train(fleet, active=[(5, 20, 0)], found={"hang": [(10, 15, 1)], "recompiling": [(10, 15, 1)]})


def long_steps(fleet: Fleet) -> None:
    """Steps of 5 min, in whose middle nothing seems to run."""
    train(fleet, active=[(minute, 2, 0) for minute in range(3, 240, 5)])


def equal_names(fleet: Fleet) -> None:
    """Jobs of equal workers and slices in two namespaces and two clusters; one of them ends."""
    for job, cluster, last in (("ml/t", "eu", None), ("web/t", "eu", 60), ("ml/t", "us", 90)):
        for number in range(4):
            fleet.worker(
                f"w{number}", job=job, cluster=cluster, last=last, size=4, instance=f"{cluster}-{job}-{number}"
            )
            fleet.exporter(f"{cluster}-{job}-{number}", cluster=cluster)


ORDINARY: Mapping[str, Callable[[Fleet], None]] = {
    "images of a job come 6 and 40 min late": late_images,
    "the same, found when a process is there": late_workers,
    "workers start one after the other": staggered_start,
    "a whole job restarts, down for 8 min": job_restarts,
    "tpumon is updated, host by host": tpumon_is_updated,
    "a pod is scheduled again under a new name": new_pod_names,
    "a job grows from 4 to 8 workers and shrinks again": scaled,
    "a roll-out of a server with surge": surge,
    "a smaller job is submitted under the same name": smaller_again,
    "checkpoints of 9 min every hour": checkpoints,
    "a notebook waits for its user": notebook,
    "a server has no requests at night": server_at_night,
    "5 % of the scrapes of 64 hosts fail": missed_scrapes(64, 0.05),
    "0.5 % of the scrapes of 200 hosts fail": missed_scrapes(200, 0.005),
    "20 % of the scrapes of 4 hosts fail": missed_scrapes(4, 0.2),
    "clocks are 15 min off": clocks,
    "Prometheus is away for 12 min and for an hour": prometheus_away,
    "nodes without a job come and go": nodes_come_and_go,
    "25 jobs end, and their pods go": jobs_end,
    "25 jobs end, and their workers stay named": jobs_stop,
    "a job compiles for 20 min": compiling,
    "steps of 5 min": long_steps,
    "equal names in clusters, namespaces and jobs": equal_names,
}


def _worsens(*later: tuple[int, int]) -> list[Span]:
    """Severities from some minutes after the begin on."""
    return [(BEGIN + minute, 9999, severity) for minute, severity in later]


HANGS = _worsens((5, 1), (10, 3))


def hang(fleet: Fleet) -> None:
    """Nothing runs; tpumon says so after 5 min, and that it is critical after 10."""
    train(fleet, active=[(BEGIN, 999, 0)], found={"hang": HANGS})


def hang_through_a_restart(fleet: Fleet) -> None:
    """Each tpumon is away for 2 min, half an hour after the begin."""
    for number in range(8):
        fleet.exporter(f"node-ml/t-s-w{number}", down=[(BEGIN + 30 + number % 3, 2)])
    hang(fleet)


def hang_before_tpumon(fleet: Fleet) -> None:
    """tpumon starts, and the runtime tells how long nothing has run."""
    for number in range(8):
        fleet.exporter(f"node-ml/t-s-w{number}", first=BEGIN)
    train(fleet, active=[(0, 999, 0)], found={"hang": [(0, 999, 3)]})


def of_one(finding: str, severity: int) -> Callable[[Fleet], None]:
    """A finding of one worker."""
    return lambda fleet: train(fleet, found=lambda n: {finding: _worsens((1, severity)) if n == 3 else []})


def of_all(finding: str, *later: tuple[int, int], workers: int = 8) -> Callable[[Fleet], None]:
    """A finding of all workers."""
    return lambda fleet: train(fleet, workers, found={finding: _worsens(*later)})


def vanished(fleet: Fleet) -> None:
    """A worker's pod is gone; the others hang."""
    train(fleet, last=lambda n: BEGIN if n == 3 else None, active=[(BEGIN + 1, 999, 0)], found={"hang": HANGS})


def vanished_of_unknown_size(fleet: Fleet) -> None:
    """The same without a size."""
    train(
        fleet, size=None, last=lambda n: BEGIN if n == 3 else None, active=[(BEGIN + 1, 999, 0)],
        found={"hang": HANGS},
    )  # fmt: skip


def process_dies(fleet: Fleet) -> None:
    """A process dies, then its pod is gone; the others hang."""
    train(
        fleet, up=lambda n: [(BEGIN, 999, 0)] if n == 3 else [], last=lambda n: BEGIN + 15 if n == 3 else None,
        active=[(BEGIN + 1, 999, 0)], found={"hang": HANGS},
    )  # fmt: skip


def node_lost(fleet: Fleet) -> None:
    """A node is lost: its tpumon cannot be scraped, and 6 min later it is no target any more."""
    fleet.exporter("node-ml/t-s-w3", down=[(BEGIN, 6)], last=BEGIN + 6)
    train(fleet, active=[(BEGIN + 1, 999, 0)], found={"hang": HANGS})


def exporters_down(count: int) -> Callable[[Fleet], None]:
    """Some of a job's tpumons cannot be scraped."""

    def fill(fleet: Fleet) -> None:
        for number in range(count):
            fleet.exporter(f"node-ml/t-s-w{number}", down=[(BEGIN, 999)])
        train(fleet)

    return fill


def targets_gone(fleet: Fleet) -> None:
    """Prometheus may no longer look for pods."""
    for number in range(8):
        fleet.exporter(f"node-ml/t-s-w{number}", last=BEGIN)
    train(fleet)


TROUBLE: Mapping[str, Callable[[Fleet], None]] = {
    "a job hangs": hang,
    "a job hangs, and tpumon restarts meanwhile": hang_through_a_restart,
    "a job hangs since before tpumon": hang_before_tpumon,
    "a straggler": of_one("straggler", 2),
    "a straggler that costs much": of_one("straggler", 3),
    "a worker vanishes, and the others hang": vanished,
    "the same, where nothing tells how many there are to be": vanished_of_unknown_size,
    "a process dies, then its pod goes, and the others hang": process_dies,
    "a node is lost, and the others hang": node_lost,
    "steps take 8 % longer": of_all("slow-down", (1, 2)),
    "steps take 60 % longer": of_all("slow-down", (1, 3)),
    "HBM leaks": of_all("hbm-growing", (3, 2), (20, 3)),
    "16 workers wait for input": of_all("input-bound", (1, 2), workers=16),
    "one tpumon of eight is down": exporters_down(1),
    "three tpumons of eight are down": exporters_down(3),
    "Prometheus finds no tpumon any more": targets_gone,
}

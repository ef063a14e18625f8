"""Every output of one run of a job, and what each says of each worker."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from support.job_runs import JobRun
from support.shown import lines, press
from tpumon.analysis import Analysis, FleetStatus
from tpumon.analysis.fleet_verdict import verdict_on
from tpumon.collection.event_sources import RecordingSource
from tpumon.collection.remote.exporter import RemoteExporter, SamplesPage
from tpumon.collection.remote.merging import FollowedExporter, Merging
from tpumon.model import Workers
from tpumon.model.documents import decoded
from tpumon.model.page import Page
from tpumon.outputs import Context, OutputSettings
from tpumon.outputs.explained_text import ExplainedText
from tpumon.outputs.live.display import Display
from tpumon.outputs.live.view_settings import DisplaySettings
from tpumon.outputs.text_blocks import TextOutput
from tpumon.pipeline import FeedSettings, RecordedFeed
from tpumon_exporters.jsonl import open_jsonl
from tpumon_exporters.pages import Pages
from tpumon_exporters.record import Recorder
from tpumon_exporters.web import Request

Said = Mapping[str, frozenset[tuple[str, str, float]]]
"""By worker: each finding, its severity, and since when."""


class Clock:
    """Time that goes on as events come: both clocks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The wall clock."""
        return self.now

    def monotonic_s(self) -> float:
        return self.now - 1_790_000_000.0


def said(causes: Iterable[Any]) -> frozenset[tuple[str, str, float]]:
    return frozenset((one.finding, one.severity, round(one.since_unix_s, 1)) for one in causes if one.finding)


def said_of(status: FleetStatus) -> Said:
    """By the causes of each verdict."""
    return {each.name: said(each.verdict.causes) for each in status.all()}


def marks_of(status: FleetStatus) -> Mapping[str, tuple[str, float | None]]:
    """What each worker counts as, and since when."""
    verdicts = {each.name: each.verdict for each in status.all()}
    return {
        name: (one.status, None if one.since_unix_s is None else round(one.since_unix_s, 1))
        for name, one in verdicts.items()
    }


def judged_of(status: FleetStatus) -> Mapping[str, frozenset[str]]:
    """The findings that can be judged of each worker, present or not."""
    return {each.name: frozenset(each.judged) for each in status.all()}


def exit_of(status: FleetStatus) -> int:
    """The status that `--fail-on critical` makes."""
    return verdict_on(status).exit_status("critical")


def grouped(status: FleetStatus) -> Mapping[tuple[str, str | None, str | None], tuple[str, float, frozenset[str]]]:
    """By finding, job and slice: the severity of its worst worker, the first since, and the workers; by causes."""
    order = ("critical", "warning", "info")
    found: dict[Any, Any] = {}
    for number, each in enumerate(status.all()):
        if each.verdict.state in {"down", "stale", "waiting"}:
            continue
        alone = number if each.target.independent else None
        for cause in each.verdict.causes:
            if cause.finding is None:
                continue
            key = cause.finding, each.target.job, each.target.slice, alone
            severity, since, workers = found.get(key, ("info", 1e12, frozenset()))
            found[key] = (
                min(severity, cause.severity, key=order.index),
                min(since, round(cause.since_unix_s, 1)),
                workers | {each.name},
            )
    return found


def grouped_findings(findings: Iterable[Any]) -> list[tuple[str, str, float, int]]:
    """Finding, severity, since, and number of workers of each."""
    return sorted((one.finding, one.severity, round(one.since_unix_s, 1), _count(one)) for one in findings)


def _count(finding: Any) -> int:
    return len(finding.workers) + finding.more_workers


def grouped_causes(status: FleetStatus) -> list[tuple[str, str, float, int]]:
    """The same by causes."""
    return sorted((key[0], severity, since, len(who)) for key, (severity, since, who) in grouped(status).items())


class Exporter:
    """An analysis with pages behind it."""

    def __init__(self, clock: Clock, run: str = "run") -> None:
        self.clock = clock
        self.fleet = Analysis(monotonic_s=clock.monotonic_s)
        self.fleet.remember()
        self.context = Context(analysis=self.fleet, clock=clock, settings=OutputSettings(run_id=run, expose="all"))
        self.pages = Pages(self.context)

    def add(self, event: Any) -> Any:
        update = self.fleet.add(event)
        self.pages.on_update(update)
        return update

    def tick(self) -> None:
        update = self.fleet.tick(self.clock())
        if update is not None:
            self.pages.on_update(update)

    def page(self, path: str = "/samples", **query: list[str]) -> str:
        body = self.pages.answer(Request(path=path, query=query)).body
        return body if isinstance(body, str) else body.decode()

    def status(self) -> FleetStatus:
        return self.fleet.status(self.clock())


class Reader(Exporter):
    """What `--from` makes of exporters; it has pages, too.

    Args:
        exporters: what it reads.
        run: its name.
        clock: its own; None: that of the exporters.
    """

    def __init__(self, exporters: Sequence[Exporter], run: str = "reader", clock: Clock | None = None) -> None:
        super().__init__(clock or exporters[0].clock, run)
        self._merging = Merging(self.add, clock=self.clock, monotonic_s=self.clock.monotonic_s)
        self._exporters = []
        for number, exporter in enumerate(exporters):
            remote = RemoteExporter(
                SamplesPage(f"http://127.0.0.1:{number + 1}"), clock=self.clock, monotonic_s=self.clock.monotonic_s
            )
            followed = FollowedExporter(name=remote.name, ask_for_everything=remote.ask_for_everything)
            self._exporters.append((exporter, remote, followed))
        self._merging.exporters = [followed for _, _, followed in self._exporters]

    def replace_exporter(self, number: int, exporter: Exporter) -> None:
        """Another run answers where an exporter was: it was restarted."""
        _, remote, followed = self._exporters[number]
        remote.ask_for_everything()
        self._exporters[number] = exporter, remote, followed

    def only(self, number: int) -> None:
        """Goes on with one of the exporters; the others have left for good."""
        self._exporters = [self._exporters[number]]
        self._merging.exporters = [followed for _, _, followed in self._exporters]
        self._merging.is_due = True

    def poll(self) -> None:
        """Asks each exporter once."""
        for exporter, remote, followed in self._exporters:
            after, changed = remote._after, remote._changed
            query = {"history": ["1"]} if after is None else {"after": [str(after)], "changed": [str(changed or 0)]}
            page = decoded(Page, exporter.page(**query))
            asyncio.run(remote._answered(page, self.clock(), lambda event, to=followed: self._merging.add(to, event)))
        if self._merging.is_due:
            self._merging.publish()
        self._merging.check_owners()
        self.tick()


class EveryOutput:
    """The outputs that get the events of one run of a job."""

    def __init__(self, job_run: JobRun, directory: Path) -> None:
        self.job_run, self.clock = job_run, Clock()
        self.clock.now = job_run.ends[0] - job_run.interval_s
        self.exporter = Exporter(self.clock)
        self.text = io.StringIO()
        context = self.exporter.context
        explained = ExplainedText(TextOutput(self.text, level=2, number_samples=False), context)
        self.lines, self.recording = directory / "lines.jsonl", directory / "recording"
        jsonl = open_jsonl(str(self.lines), context)
        self._recorder = Recorder(str(self.recording), None, self.clock, self.clock.monotonic_s)
        self.display = Display(DisplaySettings(), self.exporter.fleet)
        self._outputs = [explained, jsonl, self._recorder, self.display]
        self.reader = Reader([self.exporter])
        self.behind = Reader([self.reader], "behind")
        halves = [Exporter(self.clock, f"half {number}") for number in range(2)]
        self.halves, self.both = halves, Reader(halves, "both")
        self.behind_both = Reader([self.both], "behind both")
        self._share = {one.worker: number % 2 for number, one in enumerate(job_run.workers.targets)}

    def run(self, rounds: slice = slice(None)) -> Iterator[int]:
        """Gives them everything; yields the number of each round at its end."""
        if rounds.start is None:
            self._take(self.job_run.workers)
            for number, half in enumerate(self.halves):
                half.add(
                    Workers(targets=tuple(t for t in self.job_run.workers.targets if self._share[t.worker] == number))
                )
        for number in range(len(self.job_run.rounds))[rounds]:
            for sample in self.job_run.rounds[number]:
                self.clock.now = max(self.clock.now, sample.time_unix_s + sample.took_s)
                self._take(sample)
                self.halves[self._share[sample.worker]].add(sample)
                self.reader.poll()
            self.clock.now = max(self.clock.now, self.job_run.ends[number])
            update = self.exporter.fleet.tick(self.clock())
            for output in self._outputs if update is not None else ():
                output.on_update(update)
            self._recorder.tick(self.clock())
            for half in self.halves:
                half.tick()
            for reader in (self.reader, self.behind, self.both, self.behind_both):
                reader.poll()
            self.display.refresh(self.clock())
            yield number
        for output in self._outputs[:3]:
            output.close()

    def _take(self, event: Any) -> None:
        update = self.exporter.add(event)
        for output in self._outputs:
            output.on_update(update)

    def status(self) -> FleetStatus:
        """The reference."""
        return self.exporter.status()

    # ---- what each says

    def by_lines(self) -> Said:
        """The last JSON line of each worker."""
        found = {}
        for line in self.lines.read_text().splitlines():
            raw = json.loads(line)
            found[raw["worker"]] = frozenset(
                (one["finding"], one["severity"], round(one["since_unix_s"], 1)) for one in raw["findings"]
            )
        return found

    def earlier_by_lines(self) -> set[str]:
        """Workers whose last JSON line has a finding that may have begun earlier."""
        last = {line["worker"]: line for line in map(json.loads, self.lines.read_text().splitlines())}
        return {name for name, line in last.items() if any(one["since_or_earlier"] for one in line["findings"])}

    def by_text(self) -> Mapping[str, frozenset[tuple[str, str]]]:
        """Finding and severity in the last block of each worker that has one."""
        found, names = {}, [one.worker for one in self.job_run.workers.targets]
        for block in self.text.getvalue().split("\n\n"):
            worker = re.search(r"^Worker: (.*)$", block, re.MULTILINE)
            if worker or (len(names) == 1 and not block.startswith("Not judged") and block.strip()):
                found[worker[1] if worker else names[0]] = frozenset(
                    (name, severity)
                    for severity, name in re.findall(r"^Finding \((\w+)\): ([\w-]+)\.", block, re.MULTILINE)
                )
        return found

    def by_metrics(self, exporter: Exporter | None = None) -> tuple[Said, Mapping[str, float]]:
        """The metrics of findings; and `tpumon_target_up` by worker that is not stale: a reader has no series of that.

        A worker's label is its name where it is sampled; which one it is, its job and slice say.
        """
        exporter = exporter or self.exporter
        values: dict[str, dict[tuple[str, str], float]] = {}
        status = exporter.status()
        names = {
            (each.target.name or each.name, each.target.job or "", each.target.slice or ""): each.name
            for each in status.all()
        }
        for family in text_string_to_metric_families(exporter.page("/metrics")):
            for one in family.samples:
                if "worker" in one.labels:
                    who = names[tuple(one.labels.get(label, "") for label in ("worker", "tpu_job", "tpu_slice"))]
                    key = who, one.labels.get("finding", "")
                    values.setdefault(one.name, {})[key] = one.value
        severity = values.get("tpumon_finding_severity", {})
        since = values.get("tpumon_finding_since_timestamp_seconds", {})
        found: dict[str, set[tuple[str, str, float]]] = {}
        for (worker, finding), value in severity.items():
            if value:
                grade = ("", "info", "warning", "critical")[int(value)]
                found.setdefault(worker, set()).add((finding, grade, round(since[worker, finding], 1)))
        up = {
            worker: value
            for (worker, _), value in values.get("tpumon_target_up", {}).items()
            if status.workers[worker].verdict.state != "stale"
        }
        return {worker: frozenset(each) for worker, each in found.items()}, up

    def screen(self, *keys: str) -> list[str]:
        """The live screen after these keys, on a large terminal; it goes back to the list of workers."""
        if keys:
            press(self.display, *keys)
        try:
            return lines(self.display, 220, 300, self.clock())
        finally:
            if keys:
                press(self.display, "esc")

    def replayed(self) -> FleetStatus:
        """The status at the end of the recording."""
        feed = RecordedFeed(FeedSettings(source=RecordingSource(str(self.recording))))
        with feed:
            list(feed.updates())
            return feed._analysis.status(self.clock())

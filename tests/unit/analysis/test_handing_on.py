"""An exporter hands on what it knows: who attaches late, or again, sees what those see who were always there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from support.exporter import found
from support.samples import failed_sample, sample
from tpumon.analysis import Analysis
from tpumon.analysis.exporter_snapshot import page_of, read_snapshot
from tpumon.analysis.history import RollupSeries
from tpumon.analysis.state_findings import all_findings
from tpumon.collection.remote import ExchangeError
from tpumon.collection.remote.exporter import RemoteExporter, SamplesPage
from tpumon.model import (
    Cause,
    Change,
    ExporterSnapshot,
    Finding,
    FindingId,
    Process,
    Sample,
    State,
    StatusSnapshot,
    StepTimes,
    Target,
    Workers,
)
from tpumon.model.documents import decoded, encoded
from tpumon.model.figure_table import COMPARED
from tpumon.model.page import Page
from tpumon.outputs import Context
from tpumon_exporters.pages import Pages
from tpumon_exporters.web import Request

pytestmark = pytest.mark.usefixtures("quiet")

BEGIN = 1_800_000_000.0
INTERVAL_S = 20.0
NAMES = [f"w{i}" for i in range(8)]


class Clock:
    """Simulated time: both clocks go on only when a test says so."""

    def __init__(self, ahead_s=0.0):
        self.passed_s = 0.0
        self.ahead_s = ahead_s

    def __call__(self):
        return BEGIN + self.ahead_s + self.passed_s

    def monotonic_s(self):
        return 5000.0 + self.passed_s


class Exporter:
    """Pages, and the analysis behind them."""

    def __init__(self, clock):
        self.clock = clock
        self.fleet = Analysis(monotonic_s=clock.monotonic_s)
        self.fleet.remember()
        self._pages = Pages(Context(analysis=self.fleet, clock=clock))

    def add(self, event):
        self._pages.on_update(self.fleet.add(event))

    def page(self, **query):
        return decoded(Page, self._pages.answer(Request(path="/samples", query=query)).body)


class Job(Exporter):
    """An exporter of eight workers, of which seven wait for each other."""

    def __init__(self, clock):
        super().__init__(clock)
        slices = {"w4": "other"}  # of one that hangs, the others of its slice have no other finding
        targets = (Target(worker=name, address=f"{name}:9999", slice=slices.get(name, "s")) for name in NAMES)
        self.add(Workers(targets=tuple(targets)))
        self._random = random.Random(1)
        self._uptime_s = 1000.0

    def sample_all(self, number):
        """One query of each: the others wait for w2, then for w1; w2 is profiled, w3 goes and returns, w4 stops."""
        for name in NAMES:
            self.add(self._sample(name, number))
        self.fleet.tick(self.clock())

    def _sample(self, name, number):
        at = {"time_unix_s": self.clock(), "interval_s": INTERVAL_S, "address": f"{name}:9999"}
        if name == "w2" and number == 100:
            return failed_sample(name, "busy", "another profiling session is active", **at)
        if name == "w3" and 111 <= number < 113:
            return failed_sample(name, "unavailable", detail="connection-refused", **at)
        if name == "w4" and number >= 150:
            return failed_sample(name, "empty-trace", "the trace holds no event", **at)
        work = {"w1": 0.7 if number < 75 else 0.85} if number >= 50 else {"w2": 0.8}
        step = 0.1 * self._random.uniform(0.99, 1.01)
        return sample(
            name,
            mxu_utilization_ratio=self._random.uniform(0.4, 0.5),
            idle_ratio=0.1,
            step_time_s=StepTimes(avg=step, min=step, max=step),
            step_work_s=step * work.get(name, 0.6),
            **at,
        )

    def answer(self, after, changed):
        if after is None:
            return self.page(history=["1"])
        return self.page(after=[str(after)], changed=[str(changed or 0)])


class View:
    """A fleet that gets what `--from` gets."""

    def __init__(self, clock):
        self.clock = clock
        self.fleet = Analysis(monotonic_s=clock.monotonic_s)
        self.fleet.remember()
        self._remote = RemoteExporter(SamplesPage("http://127.0.0.1:1"), clock=clock, monotonic_s=clock.monotonic_s)

    def poll(self, exporter):
        self.read(exporter.answer(self._remote._after, self._remote._changed))

    def read(self, page):
        asyncio.run(self._remote._answered(page, self.clock(), self.fleet.add))
        self.fleet.tick(self.clock())

    def lose(self):
        """The exporter does not answer, twice."""
        for _ in range(2):
            self._remote._failed(ExchangeError("unavailable", "it is gone"), self.clock(), self.fleet.add)
        self.fleet.tick(self.clock())

    def status(self):
        return self.fleet.status(self.clock())

    def verdicts(self):
        return {each.name: each.verdict for each in self.status().all()}

    def marks(self):
        return {worker: verdict.status for worker, verdict in self.verdicts().items()}


class Near:  # noqa: PLW1641 - it is compared only
    """A figure or None, compared to the four digits that are handed on."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == (None if other.value is None else pytest.approx(other.value, rel=5e-4))


def of_workers(changes):
    """Without those of the exporter itself."""
    return [change for change in changes if change.what != "exporter"]


def shown(view):
    """Marks, since when, why, changes, graphs and findings, as far as anybody can see them."""
    now, status = view.clock(), view.status()
    graphs = {
        (worker, key): [
            (round(point.start_unix_s, 1), round(point.end_unix_s, 1), *map(Near, point[2:5]), *point[5:])
            for point in status.workers[worker].history.series.points(key, now - 7200, now)
        ]
        for worker in NAMES
        for key in COMPARED
    }  # fmt: skip
    since = {
        worker: (
            verdict.status,
            verdict.severity,
            verdict.causes,
            round(verdict.since_unix_s, 1),
            verdict.since_or_earlier,
            None if verdict.critical_since_unix_s is None else round(verdict.critical_since_unix_s, 1),
        )
        for worker, verdict in view.verdicts().items()
    }
    return (
        since,
        [replace(change, number=0) for change in of_workers(status.changes)],
        graphs,
        status.findings,
        status.not_judged(),
    )


@pytest.fixture(scope="module")
def hour():
    """An exporter and a view that was attached all the time, after an hour; and one that lost it for ten minutes.

    The exporter's clock is two hours ahead.
    """
    there, here = Clock(ahead_s=7200.0), Clock()
    exporter, always, lost = Job(there), View(here), View(here)
    for number in range(180):
        exporter.sample_all(number)
        always.poll(exporter)
        if 100 <= number < 130:
            if number == 101:
                lost.lose()
        else:
            lost.poll(exporter)
        for clock in (there, here):
            clock.passed_s += INTERVAL_S
    for view in (always, lost):
        view.poll(exporter)
    return exporter, always, lost


def test_a_view_that_attaches_late_sees_what_one_sees_that_was_always_there(hour):
    """In its first picture: marks, since, changes and graphs."""
    exporter, always, _ = hour
    late = View(always.clock)
    late.poll(exporter)
    assert shown(late) == shown(always)
    marks = late.marks()
    assert (marks["w0"], marks["w1"], marks["w3"], marks["w4"]) == ("ok", "critical", "ok", "no-activity")


def test_a_view_that_lost_the_exporter_sees_the_same_afterwards(hour):
    """The ten minutes are there, too."""
    _, always, lost = hour
    assert shown(lost) == shown(always)


def test_since_when_is_the_exporters(hour):
    """Trouble began when it began: a capture does not restart it, nor does its getting worse; a restart does."""
    exporter, always, _ = hour
    late = View(always.clock)
    late.poll(exporter)
    now = always.clock()
    verdicts = late.verdicts()
    ago_s = {worker: 3600.0 - (now - verdict.since_unix_s) for worker, verdict in verdicts.items()}
    assert ago_s["w1"] == pytest.approx(1000.0, abs=1), "the first of three samples"
    assert 3600.0 - (now - verdicts["w1"].critical_since_unix_s) == pytest.approx(1520.0, abs=1)
    assert ago_s["w2"] == pytest.approx(1020.0, abs=1), "marked before, well since then, and through the capture"
    assert ago_s["w3"] == pytest.approx(2260.0, abs=1), "restarted"
    assert ago_s["w4"] == pytest.approx(2980.0, abs=1), "nothing runs since the last sample before"
    assert ago_s["w0"] == pytest.approx(0.0, abs=1)
    straggler = next(one for one in late.status().findings if one.finding == "straggler")
    (cause,) = verdicts["w1"].causes
    for one in (straggler, cause):
        assert 3600.0 - (now - one.since_unix_s) == pytest.approx(1000.0, abs=1), "by this machine's clock"


def test_every_change_is_told_once(hour):
    """What happened, in order."""
    exporter, always, _ = hour
    late = View(always.clock)
    late.poll(exporter)
    changes = late.status().changes
    told = {name: [change.title for change in changes if change.worker == name] for name in NAMES}
    assert told == {
        "w0": [],
        "w1": ["warning", "critical"],
        "w2": ["critical since then or earlier", "ok", "capture began", "capture ended, ok"],
        "w3": ["down", "job restarted then or earlier", "ok"],
        "w4": ["no-activity"],
        "w5": [],
        "w6": [],
        "w7": [],
    }
    assert [change.number for change in changes] == sorted({change.number for change in changes})


def test_a_restart_before_one_attached_is_said_as_the_exporter_noted_it(hour):
    exporter, always, _ = hour
    late = View(always.clock)
    late.poll(exporter)
    (restart,) = (change for change in late.status().changes if change.what == "restart")
    soon_after = replace(late.status(), time_unix_s=restart.time_unix_s + 60)
    said = [(one.finding, one.workers, one.since_unix_s) for one in all_findings(soon_after)]
    assert ("restarted", ("w3",), restart.time_unix_s) in said


@pytest.mark.parametrize("is_new", [True, False], ids=["exporter and job are new", "the exporter saw it"])
def test_a_restart_is_one_change_whoever_saw_it(is_new):
    """A new exporter knows nothing of the job before; one that was there all the time has said it."""
    there = Clock()
    view = View(there)
    for number in range(6):
        if number == 0 or (is_new and number == 3):
            exporter = Exporter(there)
            exporter.add(Workers(targets=(Target(worker="w", address="w:9999"),)))
        started_unix_s = BEGIN + 55 if number >= 3 else BEGIN - 9
        process = Process(pid=1 + number // 3, user="u", command="train.py", started_unix_s=started_unix_s)
        at = {"time_unix_s": there(), "interval_s": INTERVAL_S, "address": "w:9999", "process": process}
        exporter.add(sample("w", step_time_s=StepTimes(avg=0.1, min=0.1, max=0.1), **at))
        view.read(exporter.page(history=["1"]))
        there.passed_s += INTERVAL_S
    (restart,) = (change for change in view.status().changes if change.what == "restart")
    (finding,) = (one for one in all_findings(view.status()) if one.finding == "restarted")
    assert restart.time_unix_s == finding.since_unix_s == BEGIN + 55


def test_an_exporter_that_is_gone_says_nothing_about_its_workers(hour):
    """They are stale, not down, with the reason; and no change of theirs is told."""
    exporter, always, _ = hour
    late = View(always.clock)
    late.poll(exporter)
    changes = late.status().changes
    late.lose()
    verdicts, status = late.verdicts(), late.status()
    assert {verdict.status for verdict in verdicts.values()} == {"stale"}
    assert {cause.words for verdict in verdicts.values() for cause in verdict.causes} == {"it is gone"}
    assert status.findings == status.not_judged() == ()
    assert of_workers(status.changes) == list(changes)
    assert [one.sentence for one in status.changes[len(changes) :]] == ["does not answer: its 8 workers are not seen"]
    late.poll(exporter)
    assert shown(late) == shown(always)


def test_findings_are_told_anew_while_they_change():
    """A hang lasts longer with each sample, although no worker changes."""
    there = Clock()
    exporter, view = Job(there), View(there)
    for number in range(140, 160):
        exporter.sample_all(number)
        view.poll(exporter)
        there.passed_s += INTERVAL_S
    (hang,) = (one for one in view.status().findings if one.finding == "hang")
    assert hang.evidence["no_activity_s"].value == 10 * INTERVAL_S
    assert hang in exporter.fleet.status(there()).findings


def test_later_answers_have_only_what_is_new(hour):
    """No history, no standing that stayed as it was, no change that was told."""
    exporter, always, _ = hour
    page = exporter.answer(None, None)
    later = exporter.answer(page.sequence, page.changed)
    assert later.history is None
    assert (later.changes, later.statuses, later.samples) == ((), (), ())
    assert exporter.page().history is None
    always.poll(exporter)


def test_who_was_away_for_too_long_gets_everything(hour):
    """Samples are kept for a minute: after that, only history can fill the gap."""
    exporter, _, _ = hour
    page = exporter.answer(None, None)
    assert exporter.answer(page.sequence - 500, page.changed).history
    assert exporter.answer(page.sequence, page.changed + 1).history, "of another run"


SERIES = RollupSeries(tuple(COMPARED))
SERIES.add(BEGIN - 100, "live", [0.5] * len(COMPARED))
SNAPSHOT = ExporterSnapshot(
    complete=True,
    number=7,
    statuses=(StatusSnapshot(worker="w", state="live", severity="warning", ok=False, ok_since_unix_s=5.0),),
    changes=(Change(number=7, time_unix_s=9.0, worker="w", what="severity", state="live", severity="warning"),),
    history={"w": SERIES.to_plain()},
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["w", "live"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("ahead_s", [0.0, 90.0, -300.0])
def test_a_restart_is_told_once_whatever_the_clock_of_the_exporter_says(ahead_s):
    """Also of a job that answers long after its start, and if that clock is set later: its process stays the same."""
    there, here = Clock(ahead_s=ahead_s), Clock()
    exporter, view = Exporter(there), View(here)
    exporter.add(Workers(targets=(Target(worker="w", address="w:9999"),)))
    for number in range(20):
        again = number >= 10
        began = BEGIN + ahead_s + (60.0 if again else -900.0)
        process = Process(pid=1 + again, user="u", command="train.py", started_unix_s=began)
        at = {"time_unix_s": there(), "interval_s": 20.0, "address": "w:9999"}
        is_down = 2 < number < 10
        down = failed_sample("w", "unavailable", detail="connection-refused", **at) if is_down else None
        exporter.add(down or sample("w", **at, process=process))
        exporter.fleet.tick(there())
        after, changed = view._remote._after, view._remote._changed
        asked = {"history": ["1"]} if after is None else {"after": [str(after)], "changed": [str(changed or 0)]}
        view.read(exporter.page(**asked))
        there.passed_s += 20
        here.passed_s += 20
        there.ahead_s += 50 * (number == 15)
    shown, own = view.status().changes, exporter.fleet.status(there()).changes
    assert [one.what for one in shown] == [one.what for one in own]
    assert [one.what for one in shown].count("restart") == 1


def page_with(snapshot):
    """A page as JSON has it."""
    return json.loads(encoded(Page(schema=1, tpumon="0", **page_of(snapshot))))


def test_a_worker_can_have_every_finding():
    findings = tuple(Cause(words="so", finding=each) for each in get_args(FindingId))
    given = sample("w", findings=findings, judged=get_args(FindingId))

    read = Sample.from_json(encoded(given.document()))

    assert (read.findings, read.judged) == (given.findings, given.judged)


def test_a_snapshot_survives_the_page():
    assert read_snapshot(decoded(Page, json.dumps(page_with(SNAPSHOT))), 0.0) == SNAPSHOT
    down = Finding(finding="down", severity="critical", confidence="high", workers=("w",))
    handed_on = read_snapshot(decoded(Page, json.dumps(page_with(replace(SNAPSHOT, findings=(down,))))), 0.0)
    assert handed_on.findings == (), "each makes its own of states"


def damaged(history, data):
    """Puts anything anywhere into a history."""
    part = data.draw(st.sampled_from([history, *history["rings"]]))
    name = data.draw(st.sampled_from(sorted(part)))
    if isinstance(part[name], list) and data.draw(st.booleans()):
        part[name].insert(data.draw(st.integers(0, len(part[name]))), data.draw(ANYTHING))
    else:
        part[name] = data.draw(ANYTHING)


@given(st.dictionaries(st.sampled_from(["changed", "statuses", "changes", "history"]), ANYTHING), st.data())
def test_whatever_a_page_holds_a_fleet_can_take_it(damage, data):
    """Of a malformed one nothing; of a history that is, that is left out."""
    page = page_with(SNAPSHOT)
    damaged(page["history"]["w"], data)
    page |= damage
    for name in ("statuses", "changes"):
        if isinstance(page[name], list) and page[name] and isinstance(page[name][0], dict):
            page[name][0][data.draw(st.sampled_from(sorted(page[name][0]) or ["worker"]))] = data.draw(ANYTHING)
    snapshot = None
    with contextlib.suppress(ValueError):
        snapshot = read_snapshot(decoded(Page, json.dumps(page)), 0.0)
    fleet = Analysis()
    fleet.remember()
    fleet.add(found("w"))
    if snapshot is not None:
        fleet.add(snapshot)
    for second in range(0, 4000, 250):
        fleet.add(sample("w", time_unix_s=BEGIN + second))
    for point in fleet.status(BEGIN).workers["w"].history.series.points("mxu", 0, 2 * BEGIN):
        assert point.states <= frozenset(get_args(State))
    fleet.snapshot(BEGIN)

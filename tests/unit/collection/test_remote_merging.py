"""Several exporters as one stream: whose a worker is, its name there, and what is handed on of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.exporter import sample
from tpumon.collection.remote import merging as merging_module
from tpumon.collection.remote.exporter import lost
from tpumon.collection.remote.exporter_list import Place
from tpumon.collection.remote.merging import FollowedExporter, Merging
from tpumon.model import Cause, Change, ExporterSnapshot, Finding, Sample, StatusSnapshot, Target, Workers


class Stream:
    """A Merging whose clocks stand still until a test says so, and what it sent."""

    def __init__(self, *names, keeps_apart=False):
        self.now_s, self.events, self.asked = 1000.0, [], []
        self.merging = Merging(
            self.events.append, keeps_apart=keeps_apart, clock=lambda: self.now_s, monotonic_s=lambda: self.now_s
        )
        self.exporters = {
            name: FollowedExporter(name=name, ask_for_everything=lambda name=name: self.asked.append(name))
            for name in names
        }
        self.merging.exporters = list(self.exporters.values())

    def say(self, exporter, *events):
        for event in events:
            self.merging.add(self.exporters[exporter], event)

    def publish(self):
        """What is sent because of it."""
        before = len(self.events)
        self.merging.publish()
        return self.events[before:]

    def later(self, passed_s):
        self.now_s += passed_s
        self.merging.check_owners()

    def taken(self, worker="w", **figures):
        return sample(worker, time_unix_s=self.now_s, interval_s=10.0, **figures)

    def names(self):
        return [target.worker for target in self.last_workers.targets]

    @property
    def last_workers(self):
        return next(event for event in reversed(self.events) if isinstance(event, Workers))


def at(*workers, via=(), **known):
    return Workers(targets=tuple(Target(worker=one, address="localhost:9999", **known) for one in workers), via=via)


def samples(events):
    return [event for event in events if isinstance(event, Sample)]


def test_the_order_is_that_of_the_exporters_whoever_answers_first():
    """Workers come before what is said about them, each with its exporter."""
    stream = Stream("a", "b")
    stream.say("b", at("w2", "w1", via=("run-b",)), stream.taken("w1"))
    assert stream.events == []
    first = stream.publish()
    assert [type(event) for event in first] == [Workers, Sample]
    stream.say("a", at("w0", via=("run-a",)), stream.taken("w0"))
    stream.publish()
    assert stream.names() == ["w0", "w2", "w1"]
    assert [target.exporter for target in stream.last_workers.targets] == ["a", "b", "b"]
    assert stream.last_workers.via == ("run-a", "run-b")
    stream.say("b", stream.taken("w2"))
    assert [one.worker for one in samples(stream.events)] == ["w1", "w0", "w2"]


def test_workers_of_equal_names_in_several_jobs_stay_apart():
    """Only those get longer names, whatever is said about them."""
    stream = Stream("a", "b")
    stream.say("a", at("w0", "alone", job="one", slice="s"))
    stream.publish()
    assert stream.names() == ["w0", "alone"]
    change = Change(number=1, time_unix_s=1.0, worker="w0", what="restart", state="live", severity="ok")
    finding = Finding(finding="hang", severity="critical", workers=("w0",))
    snapshot = ExporterSnapshot(
        complete=True,
        statuses=(StatusSnapshot(worker="w0", state="live", severity="ok"),),
        changes=(change,),
        history={"w0": {}, "": {}},
        findings=(finding,),
        exporter="b",
    )
    stream.say("b", at("w0", job="ns/two", slice="s"), snapshot, stream.taken("w0"))
    sent = stream.publish()
    assert stream.names() == ["one/s/w0", "alone", "ns/two/s/w0"]
    assert [target.name for target in stream.last_workers.targets] == ["w0", None, "w0"]
    (handed,) = (event for event in sent if isinstance(event, ExporterSnapshot))
    name = "ns/two/s/w0"
    assert (handed.statuses[0].worker, handed.changes[0].worker, handed.findings[0].workers) == (name, name, (name,))
    assert (set(handed.history), handed.exporter) == ({name, ""}, "b")
    assert [(one.worker, one.job) for one in samples(sent)] == [(name, "ns/two")]
    assert stream.asked == ["a"], "what is known of a worker with another name is handed on again"
    stream.say("b", Workers())
    stream.publish()
    assert stream.names() == ["one/s/w0", "alone"], "a name does not come and go"


def test_names_that_would_still_be_equal():
    """A job of a slash; a worker that is called like another's longer name."""
    stream = Stream("a", "b", "c")
    stream.say("a", at("w", job="x/y"), stream.taken())
    stream.say("b", at("w", job="x", slice="y"))
    stream.say("c", at("x/y/w"))
    stream.publish()
    assert stream.names() == ["x/y/w (a)", "x/y/w (b)", "x/y/w"]


def test_labels_fill_in_what_an_exporter_does_not_know():
    """Of targets and samples; they make no worker of another job."""
    stream = Stream("a")
    stream.exporters["a"].place = Place(url="", job="j", slice="s")
    known = Target(worker="v", address="h:1", job="own", independent=True)
    stream.say("a", Workers(targets=(*at("w", independent=True).targets, known)), stream.taken())
    (sent,) = samples(stream.publish())
    assert [(one.job, one.slice, one.independent) for one in stream.last_workers.targets] == [
        ("j", "s", False), ("own", "s", False)
    ]  # fmt: skip
    assert (sent.job, sent.slice) == ("j", "s")


def test_the_live_one_of_two_is_the_worker():
    """Whoever is named first; what it knew is sent when it becomes the worker."""
    stream = Stream("a", "b")
    stream.say("a", at("w"), stream.taken(idle_ratio=0.1))
    stream.say("b", at("w"), stream.taken(idle_ratio=0.2))
    assert [one.figures.idle_ratio for one in samples(stream.publish())] == [0.1]
    stream.say("b", stream.taken(idle_ratio=0.3))
    assert len(samples(stream.events)) == 1
    gone = lost(at("w").targets[0], "unavailable", "no answer", stream.now_s, stream.now_s)
    stream.say("a", gone)
    stream.later(1)
    assert stream.merging.is_due
    sent = stream.publish()
    assert [target.exporter for target in sent[0].targets] == ["b"]
    assert [(one.figures.idle_ratio, one.traced_s) for one in samples(sent)] == [(0.3, 0.0)]
    assert stream.asked == ["b"]
    stream.say("b", stream.taken(idle_ratio=0.4))
    stream.say("a", gone)
    assert stream.events[-1].figures.idle_ratio == 0.4


def test_two_live_ones_are_said_once(said):
    """Not while a worker moves from one to the other; not if both have it from the same."""
    stream = Stream("a", "b", "c")
    stream.say("a", at("w", job="j", via=("1",)))
    stream.say("b", at("w", job="j", via=("2", "3")))
    for passed_s in range(0, 100, 10):
        stream.say("a", stream.taken())
        stream.say("b", stream.taken())
        stream.publish()
        stream.later(10)
        assert len(said) == (passed_s >= 20)  # looked at 10 s later
    (line,) = said
    assert line.startswith("j/w is two workers; tell them apart by --job where they are sampled: localhost:9999 of a, ")
    stream.exporters["c"].follow(at("v", via=("3",)))
    stream.say("b", at("v", via=("2", "3")))
    for _ in range(10):
        stream.say("b", stream.taken("v"))
        stream.say("c", stream.taken("v"))
        stream.publish()
        stream.later(10)
    assert len(said) == 1


@pytest.mark.parametrize(("job", "port", "two"), [(None, 2, True), (None, 9999, False), ("j", 2, False)])
def test_two_of_no_job_at_two_ports_are_said_at_once(said, job, port, two):
    """Nothing moves where no job is known, and a name belongs to a port."""
    stream = Stream("a", "b")
    first = at("w", job=job, via=("1",))
    stream.say("a", first, stream.taken())
    other = replace(first.targets[0], address=f"127.0.0.1:{port}")
    stream.say("b", replace(first, targets=(other,), via=("2",)), stream.taken())
    stream.publish()
    assert len(said) == two
    assert all("localhost:9999 of a, and 127.0.0.1:2 of b" in line for line in said)
    stream.publish()
    (target,) = stream.last_workers.targets
    assert target.ambiguous == two


def test_two_of_no_job_are_two_also_where_the_reader_names_one(said):
    stream = Stream("a", "b")
    for name, port in (("a", 1), ("b", 2)):
        stream.exporters[name].place = Place(url=name, job="x")
        workers = at("w", via=(name,))
        stream.say(name, replace(workers, targets=(replace(workers.targets[0], address=f"h:{port}"),)), stream.taken())
    stream.publish()
    assert [line.partition(" is two")[0] for line in said] == ["x/w"]


@pytest.mark.parametrize(("other", "two"), [("http://10.0.0.2:1", True), ("http://127.0.0.1:1", False)])
def test_two_of_no_job_on_two_machines_are_said_at_once(said, other, two):
    """Of one at a loopback address nobody knows the machine: it may be a tunnel."""
    stream = Stream("http://10.0.0.1:1", other)
    for name, run in (("http://10.0.0.1:1", "1"), (other, "2")):
        stream.say(name, at("w", via=(run,)), stream.taken())
    stream.publish()
    assert len(said) == two


def test_of_two_live_ones_the_worse_is_shown_until_one_is_gone(said):
    """They are different workers of one name: whoever compares leaves them out."""
    stream = Stream("a", "b")
    stream.say("a", at("w", job="j", via=("1",)))
    stream.say("b", at("w", job="j", via=("2",)))
    hang = (Cause(words="nothing runs", finding="hang", severity="critical"),)

    def shown(rounds, b_findings=hang, says=("a", "b")):
        for _ in range(rounds):
            for name, findings in (("a", ()), ("b", b_findings)):
                if name in says:
                    stream.say(name, replace(stream.taken(), findings=findings, judged=("hang",)))
            stream.publish()
            stream.later(10)
        stream.publish()
        (target,) = stream.last_workers.targets
        return target.exporter, target.ambiguous

    assert shown(1, b_findings=()) == ("a", False), "it may move from one to the other"
    assert shown(1) == ("b", False), "only one of them answers then"
    assert shown(3) == ("b", True)
    assert stream.events[-1].findings == hang
    assert shown(2, b_findings=()) == ("a", True)
    assert shown(5, says=("a",)) == ("a", False)
    assert len(said) == 1


def test_people_see_each_of_two_of_one_name(said):
    """By its exporter, whatever is said about it, also while one of them is away; and no more once one has left."""
    stream = Stream("http://h:1", "http://h:2", keeps_apart=True)
    for place, name in enumerate(stream.exporters):
        status = StatusSnapshot(worker="w", state="live", severity="critical" if place else "ok")
        workers = Workers(targets=(Target(worker="w", address=f"localhost:{place}"),), via=(name,))
        stream.say(name, workers, ExporterSnapshot(complete=True, statuses=(status,), exporter=name), stream.taken())
    sent = stream.publish()
    apart = ["h:1/w", "h:2/w"]
    assert stream.names() == apart
    assert [(target.name, target.ambiguous) for target in stream.last_workers.targets] == [("w", True)] * 2
    assert {one.worker for one in samples(sent)} == set(apart)
    told = [each.statuses[0] for each in sent if isinstance(each, ExporterSnapshot) and each.statuses]
    assert {(one.worker, one.severity) for one in told} == {("h:1/w", "ok"), ("h:2/w", "critical")}
    assert "both are shown, compared with none" in said[0]
    stream.later(1)
    assert not stream.merging.is_due
    for _ in range(10):
        stream.say("http://h:1", stream.taken())
        stream.later(10)
    stream.publish()
    assert stream.names() == apart
    stream.say("http://h:2", Workers())
    stream.publish()
    assert stream.names() == ["w"]
    assert len(said) == 1


@pytest.mark.parametrize("order", [("good", "bad"), ("bad", "good")])
def test_of_two_of_one_name_nothing_is_sent_of_the_better_one(order):
    """Whichever exporter is named first, and before a sample says what its worker has: or `once` ends with `ok`."""
    stream = Stream(*order)
    for port, name, severity in ((1, "good", "ok"), (2, "bad", "critical")):
        found = Finding(finding="hang", severity="critical", workers=("w",))
        snapshot = ExporterSnapshot(
            complete=True,
            statuses=(StatusSnapshot(worker="w", state="live", severity=severity),),
            findings=(found,) if name == "bad" else (),
            exporter=name,
        )
        workers = Workers(targets=(Target(worker="w", address=f"127.0.0.1:{port}"),), via=(name,))
        stream.say(name, workers, snapshot, stream.taken(traced_s=float(port)))
    sent = stream.publish()
    assert [target.exporter for target in sent[0].targets] == ["bad"]
    assert {each.traced_s for each in samples(sent)} == {2.0}
    (handed,) = (each for each in sent if isinstance(each, ExporterSnapshot) and each.statuses)
    assert (handed.statuses[0].severity, handed.findings[0].workers) == ("critical", ("w",))


def test_what_is_found_of_a_worker_is_sent_again_with_the_exporter_that_counts_for_it_from_now_on():
    """Until that has handed on everything anew."""
    stream = Stream("a", "b")
    stream.say("a", at("w", job="j", via=("1",)), stream.taken())
    found = Finding(finding="hang", severity="critical", workers=("w",))
    status = StatusSnapshot(worker="w", state="live", severity="critical")
    stream.say(
        "b", at("w", job="j", via=("2",)), ExporterSnapshot(complete=True, statuses=(status,), findings=(found,))
    )
    assert not any(isinstance(each, ExporterSnapshot) and each.statuses for each in stream.publish())
    for _ in range(5):
        stream.later(10)
        stream.say("a", stream.taken())
        stream.say("b", stream.taken())
    sent = stream.publish()
    (handed,) = (each for each in sent if isinstance(each, ExporterSnapshot))
    assert (handed.statuses, handed.findings) == ((status,), (found,))
    assert stream.asked == ["b"]


def test_workers_of_an_exporter_that_left_go_to_another():
    """Otherwise they stay."""
    stream = Stream("a", "b")
    stream.say("a", at("w", "v"), stream.taken("w"))
    stream.publish()
    stream.exporters["a"].left_s = stream.now_s
    stream.merging.exporters = [stream.exporters["b"], stream.exporters["a"]]
    stream.say("b", at("w"))
    stream.publish()
    assert [(one.worker, one.exporter) for one in stream.last_workers.targets] == [("w", "b"), ("v", "a")]


def test_there_are_ten_thousand_workers_at_most(monkeypatch, said):
    """One that names more leaves the others theirs, and it is said once."""
    monkeypatch.setattr(merging_module, "MOST_WORKERS", 100)
    stream = Stream("hostile", "a", "b")
    stream.say("hostile", at(*(f"x{number}" for number in range(1000))))
    stream.say("a", at(*(f"a{number}" for number in range(30))))
    stream.say("b", at(*(f"b{number}" for number in range(10))))
    for _ in range(2):
        stream.publish()
    assert stream.names() == [
        *(f"x{number}" for number in range(60)), *(f"a{number}" for number in range(30)), *(f"b{n}" for n in range(10))
    ]  # fmt: skip
    assert said == ["more than 100 workers: of each exporter the first 60 are followed"]
    stream.say("hostile", stream.taken("x999"))
    assert not samples(stream.events)


def test_why_there_are_no_workers():
    """The first reason, and how many more."""
    stream = Stream("a", "b")
    stream.say("a", Workers(waiting="no job"))
    stream.say("b", Workers(waiting="no answer"))
    (sent,) = stream.publish()
    assert sent.waiting == "no job (and 1 more exporters have no workers)"
    stream.merging.publish("the file is empty")
    assert stream.last_workers.waiting == "the file is empty"


@pytest.mark.parametrize("worker", ["gone", "w"])
def test_changes_of_workers_that_left_keep_their_names(worker):
    """Unless another exporter has a worker of that name now."""
    stream = Stream("a", "b")
    stream.say("a", at("v"))
    stream.say("b", at("w"))
    stream.publish()
    change = Change(number=1, time_unix_s=1.0, worker=worker, what="restart", state="live", severity="ok")
    stream.say("a", ExporterSnapshot(complete=False, changes=(change,)))
    assert stream.events[-1].changes == ((change,) if worker == "gone" else ())


def test_exporters_that_do_not_answer_are_named_until_their_workers_are_known():
    stream = Stream("a", "b", "c")
    stream.say("a", at("w0", via=("run-a",)))
    stream.say("b", Workers(waiting="exporter b: refused"))
    stream.say("c", Workers(waiting="no job on this host", via=("run-c",)))
    stream.publish()
    assert stream.last_workers.unheard == ("b",)
    stream.say("b", at("w1", via=("run-b",)))
    stream.publish()
    assert stream.last_workers.unheard == ()

"""The finding hang: how long a silence counts, and how severe it is."""

from __future__ import annotations

from functools import partial

import pytest

from support.samples import failed_sample, sample
from tpumon.analysis import Analysis
from tpumon.errors import NOT_SEEN
from tpumon.model import Process, Spread, StepTimes, Target, Workers
from tpumon.untrusted_text import quote

INTERVAL_S = 10.0
BEGIN_UNIX_S = 10_000.0
PER_MINUTE = int(60 / INTERVAL_S)

STEPS = StepTimes(avg=0.2, min=0.2, max=0.2)
OTHER_STEPS = StepTimes(avg=0.5, min=0.5, max=0.5)


def ran(worker, steps=STEPS, **given):
    return sample(worker, step_time_s=steps, step_source="steps", **given)


def silent(worker, **given):
    return failed_sample(worker, "empty-trace", **given)


def quiet_by_runtime(worker, *, idle_s, **given):
    """Nothing ran, and for how long libtpu says that nothing has."""
    devices = [{"device": "0", "runtime_tensorcore_idle_s": idle_s}]
    return sample(worker, idle_ratio=1.0, devices=devices, runtime={"uptime_s": 1e6}, **given)


def paused(worker, **given):
    return failed_sample(worker, "paused", **given)


class Slice:
    """Workers of one slice that are queried round after round."""

    def __init__(self, *workers, fleet=None, at=BEGIN_UNIX_S):
        self.workers, self.at = workers, at
        self.fleet = fleet or Analysis()
        self.fleet.add(
            Workers(
                targets=tuple(Target(worker=w, address=f"{w}:1", slice="s", job_kind="training") for w in self.workers)
            )
        )

    def go(self, rounds, take, *others):
        """The hang after so many rounds, in which the first worker is as `take` says, and each other as its own."""
        for _ in range(rounds):
            for number, worker in enumerate(self.workers):
                made = (take, *others)[min(number, len(others))]
                self.fleet.add(made(worker, time_unix_s=self.at, interval_s=INTERVAL_S))
            self.at += INTERVAL_S
        return next((one for one in self.fleet.status(self.at - INTERVAL_S).findings if one.finding == "hang"), None)

    def severities(self, minutes, take, *others):
        """The severity minute by minute, each once."""
        found = []
        for _ in range(minutes):
            hang = self.go(PER_MINUTE, take, *others)
            severity = None if hang is None else hang.severity
            if not found or found[-1] != severity:
                found.append(severity)
        return found

    @property
    def last(self):
        """When the last samples were taken."""
        return self.at - INTERVAL_S


def test_without_another_worker_that_goes_on_it_is_info_until_ten_minutes():
    """A checkpoint of nine minutes looks the same, the first one too."""
    for workers in (("w0",), ("w0", "w1", "w2")):
        job = Slice(*workers)
        job.go(12, ran)
        began = job.last
        assert job.severities(9, silent) == ["info"]
        hang = job.go(2 * PER_MINUTE, silent)
        assert (hang.severity, hang.since_unix_s, hang.workers) == ("critical", began, workers)
        assert hang.evidence["no_activity_s"].value == job.last - began


def test_it_is_a_warning_from_five_minutes_where_another_worker_goes_on_with_the_same_steps():
    job = Slice("w0", "w1")
    job.go(12, ran)
    assert job.severities(4, silent, ran) == ["info"]
    hang = job.go(2 * PER_MINUTE, silent, ran)
    assert (hang.severity, hang.workers) == ("warning", ("w0",))
    assert "go on with the same steps" in hang.sentence
    assert job.go(5 * PER_MINUTE, silent, ran).severity == "critical"


def test_it_stays_a_warning_while_a_window_of_the_other_worker_holds_no_whole_step():
    job = Slice("w0", "w1")
    job.go(12, ran)
    assert job.go(6 * PER_MINUTE, silent, ran).severity == "warning"
    assert job.go(1, silent, lambda worker, **given: ran(worker, None, **given)).severity == "warning"


@pytest.mark.parametrize("steps", [OTHER_STEPS, None])
def test_a_worker_that_does_something_else_does_not_go_on(steps):
    """While one evaluates, the others wait."""
    job = Slice("w0", "w1")
    job.go(12, ran)
    assert job.severities(9, silent, lambda worker, **given: ran(worker, steps, **given)) == ["info"]


def test_another_job_on_the_same_slice_does_not_go_on_with_its_steps():
    job = Slice("w0", "w1")
    evaluates = lambda worker, **given: ran(worker, OTHER_STEPS, **given)  # noqa: E731
    job.go(12, ran, evaluates)
    assert job.severities(9, silent, evaluates) == ["info"]


def test_time_in_which_nobody_looked_does_not_count_before_silence_was_seen():
    """It may have worked until a moment ago. Since is the last activity seen."""
    job = Slice("w0")
    job.go(12, ran)
    began = job.last
    job.go(30 * PER_MINUTE, paused)
    first = job.at
    assert job.severities(9, silent) == ["info"]
    hang = job.go(2 * PER_MINUTE, silent)
    assert (hang.severity, hang.since_unix_s) == ("critical", began)
    assert hang.evidence["no_activity_s"].value == job.last - first
    assert f"was last seen running {job.last - began:.0f} s ago; what it did in between is not known" in hang.sentence


def test_a_since_that_is_longer_ago_than_what_was_seen_is_explained():
    job = Slice("w0")
    job.go(12, ran)
    began = job.last
    job.go(3, paused)
    hang = job.go(3, silent)
    assert hang.since_unix_s == began
    assert "was seen for 20 s. It was last seen running 60 s ago; what it did in between is not known" in hang.sentence


def test_time_in_which_nobody_looked_counts_between_two_silences():
    job = Slice("w0")
    job.go(12, ran)
    began = job.last
    assert job.go(PER_MINUTE, silent).severity == "info"
    job.go(30 * PER_MINUTE, paused)
    hang = job.go(1, silent)
    assert (hang.severity, hang.since_unix_s) == ("critical", began)


def test_time_in_which_nobody_looked_counts_where_libtpu_says_that_nothing_ran():
    job = Slice("w0")
    job.go(12, ran)
    job.go(30 * PER_MINUTE, paused)
    first = job.at

    def quiet(worker, time_unix_s, **given):
        return quiet_by_runtime(worker, idle_s=1200.0 + time_unix_s - first, time_unix_s=time_unix_s, **given)

    hang = job.go(3, quiet)
    assert (hang.severity, hang.evidence["no_activity_s"].value) == ("critical", 1220.0)


def test_a_stall_of_tpumon_itself_does_not_count():
    """Its last figures were stale before it saw silence."""
    job = Slice("w0")
    job.go(12, ran)
    job.at += 1800
    assert job.go(3, silent).severity == "info"


def test_time_in_which_tpumon_did_not_run_counts_only_between_two_silences():
    for rounds, severity in ((0, "info"), (PER_MINUTE, "critical")):
        job = Slice("w0")
        job.go(12, ran)
        began = job.last
        job.go(rounds, silent)
        again = Analysis()
        again.resume(job.fleet.kept(job.last), job.last + 1800)
        after = Slice("w0", fleet=again, at=job.last + 1800)
        hang = after.go(3, silent)
        assert (hang.severity, hang.since_unix_s) == (severity, began)
        assert not hang.since_or_earlier, "it was seen running then"


def test_what_cannot_be_seen_is_no_silence():
    """A tpumon that may not trace host events goes on from one that did."""
    job = Slice("w0")
    job.go(12, ran)

    def unseen(worker, **given):
        return silent(worker, detail="not-seen", **given)

    assert job.severities(30, unseen) == [None]
    worker = job.fleet.status(job.last).workers["w0"]
    assert (worker.verdict.severity, "hang" in worker.judged) == ("unknown", False)
    assert {one.finding: one.reason for one in worker.not_judged}["hang"] == NOT_SEEN


def test_a_silence_from_before_the_first_look_is_not_judged_in_plain_words():
    """With the words that scripts look for, whole where an exporter's are quoted."""
    one = Slice("a")
    assert one.go(3, silent) is None
    why = next(each.reason for each in one.fleet.status(one.at).not_judged() if each.finding == "hang")
    assert "silent since before tpumon first looked: since when is unknown" in why
    assert "older than tpumon" in why
    assert quote(why) == f'"{why}"'


@pytest.mark.parametrize(("is_activity_checked", "silent_s"), [(True, 0.0), (False, 1000.0)])
def test_between_rare_samples_short_looks_have_shown_that_it_ran(is_activity_checked, silent_s):
    """A pause that they found after a quarter of an hour is no hang of a quarter of an hour.

    Without them, one sample that shows silence is a warning at most: so may a pause that it happens to meet.
    """
    fleet = Analysis()
    fleet.add(Workers(targets=(Target(worker="w0", address="w0:1", job_kind="training"),)))
    fleet.add(ran("w0", time_unix_s=BEGIN_UNIX_S, interval_s=1000.0, is_activity_checked=is_activity_checked))
    for later_s, severity, others in (
        (1000, None, "warning"),
        (1100, "info", "critical"),
        (1610, "critical", "critical"),
    ):
        fleet.add(silent("w0", time_unix_s=BEGIN_UNIX_S + later_s, interval_s=40.0))
        hang = next((one for one in fleet.status(BEGIN_UNIX_S + later_s).findings if one.finding == "hang"), None)
        assert (None if hang is None else hang.severity) == (severity if is_activity_checked else others)
        assert hang is None or hang.since_unix_s == BEGIN_UNIX_S
        assert hang is None or hang.evidence["no_activity_s"].value == silent_s + later_s - 1000


@pytest.mark.parametrize(
    ("given", "late"),
    [
        ({"interval_s": 1000.0, "is_activity_checked": False}, True),
        ({"interval_s": 1000.0, "is_activity_checked": True}, False),
        ({"interval_s": 300.0, "is_activity_checked": False}, False),
        ({"interval_s": 1000.0}, False),  # not known, as of an exporter or a recording
        ({"interval_s": 1000.0, "is_activity_checked": False, "devices": [{"device": "0"}]}, True),
        (
            {
                "interval_s": 1000.0,
                "is_activity_checked": False,
                "devices": [{"device": "0", "runtime_tensorcore_idle_s": 0.1}],
            },
            False,
        ),
    ],
)
def test_where_samples_are_too_rare_for_its_limits_that_is_said(given, late):
    """It is judged nevertheless, so that all may be well."""
    fleet = Analysis()
    fleet.add(Workers(targets=(Target(worker="w0", address="w0:1", job_kind="training"),)))
    for number in range(2):
        fleet.add(ran("w0", time_unix_s=BEGIN_UNIX_S + 1000 * number, **given))
    status = fleet.status(BEGIN_UNIX_S + 1001)
    reasons = [one.reason for one in status.not_judged() if one.finding == "hang"]
    assert reasons == ["not within 5 min, samples come every 17 min"] * late
    assert "hang" in status.workers["w0"].judged
    hung = fleet.add(silent("w0", time_unix_s=BEGIN_UNIX_S + 2000, interval_s=1000.0))
    assert not [one for one in hung.status.not_judged if one.finding == "hang"]


def test_a_restart_of_tpumon_does_not_make_a_warning_an_info():
    job = Slice("w0", "w1")
    job.go(12, ran)
    assert job.go(6 * PER_MINUTE, silent, ran).severity == "warning"
    again = Analysis()
    again.resume(job.fleet.kept(job.last), job.last + 60)
    assert Slice("w0", "w1", fleet=again, at=job.at).go(4, silent, ran).severity == "warning"


def test_the_longest_pause_that_was_watched_and_ended_by_itself_raises_the_limits():
    job = Slice("w0", "w1")
    for _ in range(3):
        job.go(12, ran)
        assert job.severities(9, silent) == ["info"]
    job.go(12, ran)
    assert job.severities(17, silent, ran) == ["info"]
    assert job.severities(2, silent, ran)[-1] == "critical"


def test_the_limits_are_raised_to_two_hours_at_most():
    job = Slice("w0")
    job.go(12, ran)
    job.go(90 * PER_MINUTE, silent)
    job.go(12, ran)
    assert job.severities(119, silent) == ["info"]
    assert job.severities(2, silent)[-1] == "critical"


def test_one_since_of_a_hang_everywhere():
    """The list, the worker's page, the finding and the change say the last activity, whatever the worker was before."""
    for before in (ran, lambda worker, **given: ran(worker, infeed_ratio=Spread(avg=0.3, min=0.3, max=0.3), **given)):
        job = Slice("w0")
        job.go(12, before)
        began = job.last
        hang = job.go(5, silent)
        status = job.fleet.status(job.last)
        (cause, *_), verdict = status.workers["w0"].verdict.causes, status.workers["w0"].verdict
        assert [hang.since_unix_s, cause.since_unix_s, verdict.since_unix_s] == [began] * 3
        assert [(one.status, one.time_unix_s) for one in status.changes][-1] == ("no-activity", began)


def test_each_severity_above_info_is_a_change_once():
    """Whoever waits for changes is told of a hang; a pause of tpumon, or its restart, tells it no second time."""
    job = Slice("w0", "w1")
    job.go(12, ran)
    assert job.go(12 * PER_MINUTE, silent, ran).severity == "critical"
    job.go(3, paused, ran)
    job.go(3, silent, ran)
    changes = [one for one in job.fleet.status(job.last).changes if one.worker == "w0"]
    assert [one.status for one in changes] == ["no-activity", "warning", "critical", "paused", "no-activity"]
    assert [one.time_unix_s - changes[0].time_unix_s - INTERVAL_S for one in changes[1:3]] == [300, 600]
    assert changes[2].sentence.startswith("critical: no activity seen for 6")
    again = Analysis()
    again.resume(job.fleet.kept(job.last), job.last + 60)
    job.fleet = Slice("w0", "w1", fleet=again, at=job.at).fleet
    assert job.go(PER_MINUTE, silent, ran).severity == "critical"
    assert "critical" not in {one.status for one in again.status(job.last).changes}


def failed(worker, **given):
    return failed_sample(worker, "unavailable", **given)


@pytest.mark.parametrize("gone", [failed, None])
def test_only_who_is_down_is_said_not_to_answer(gone):
    """Who was only not asked for a while may run; it may be what the others wait for, if nobody is down."""
    several = Slice("w0", "w1", "w2")
    several.go(6, ran)
    for _ in range(60):
        several.fleet.add(silent("w0", time_unix_s=several.at, interval_s=INTERVAL_S))
        if gone is not None:
            several.fleet.add(gone("w1", time_unix_s=several.at, interval_s=INTERVAL_S))
        several.at += INTERVAL_S
    status = several.fleet.status(several.at)
    assert status.workers["w2"].verdict.state == "stale"
    (hang,) = (one for one in status.findings if one.finding == "hang")
    if gone is None:
        assert "Of these nothing is known now, and the others may wait for them: w1, w2." in hang.sentence
    else:
        assert "These do not answer, and the others may wait for them: w1." in hang.sentence


def queued(worker, *, size, **given):
    """Nothing ran, and so much work waits."""
    return sample(worker, idle_ratio=1.0, devices=[{"device": "0", "runtime_hlo_queue_size": size}], **given)


def test_who_was_restarted_went_first_whatever_the_queues_say():
    """Down, then in its new run without a step yet; a restart before the others ran their last step says nothing."""

    def has(size, pid):
        process = {"pid": pid, "user": "u", "command": "train.py"}
        return lambda worker, **given: queued(worker, size=size, **given, process=Process(**process))

    def runs(pid):
        process = {"pid": pid, "user": "u", "command": "train.py"}
        return lambda worker, **given: ran(worker, **given, process=Process(**process))

    job = Slice("w0", "w1", "w2")
    job.go(12, runs(1))
    assert "do not answer" in job.go(3, failed, has(4, 1), has(0, 1)).sentence
    hang = job.go(3, has(None, 2), has(4, 1), has(0, 1))
    assert "These were restarted since, and the others may wait for them: w0." in hang.sentence
    assert hang.workers == ("w1", "w2"), "the worst first"
    words = [cause.words for one in job.fleet.status(job.last).all() for cause in one.verdict.causes]
    assert not any("w2" in each for each in words), words
    job.go(12, runs(2), runs(1))
    hang = job.go(3, has(4, 2), has(4, 1), has(0, 1))
    assert hang.workers[0] == "w2"
    assert "Stopped first: w2, with no work in its queue" in hang.sentence


def test_a_restart_of_all_workers_names_none():
    """They are seen again one after the other."""
    first, second = Process(pid=1, user="u", command="train.py"), Process(pid=2, user="u", command="train.py")

    def again(worker, **given):
        devices = [{"device": "0", "runtime_tensorcore_idle_s": 5.0}]
        return sample(worker, idle_ratio=1.0, devices=devices, runtime={"uptime_s": 60.0}, process=second, **given)

    job = Slice("w0", "w1", "w2")
    job.go(12, lambda worker, **given: ran(worker, process=first, **given))
    job.go(1, again, silent)
    hang = job.go(3, again)
    assert hang.workers == ("w0", "w1", "w2")
    assert "restarted" not in hang.sentence


def test_a_job_that_ran_after_it_was_seen_to_hangs_since_libtpu_says_so():
    """The last sample, or what was kept of a run before, may be older."""
    job = Slice("w0")
    job.go(12, ran)
    last = job.last
    job.at += 40.0
    for silent_s in (15.0, 25.0, 35.0):
        hang = job.go(1, partial(quiet_by_runtime, idle_s=silent_s))
    assert hang is not None
    assert hang.since_unix_s == job.last - 35.0 > last
    assert "for 35 s" in hang.sentence

"""Notices: few lines about workers that do not answer, come or go."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.said import Lines
from support.samples import bare_sample
from tpumon.model import Failure, Target, Workers


def sample(worker="w", reason=None, **figures):
    failure = Failure(source="monitor", reason=reason, message=reason, address=f"{worker}:1") if reason else None
    answer = {"errors": (failure,)} if failure else {"source": "monitor"}
    return bare_sample(worker=worker, address=f"{worker}:1", time_unix_s=5.5, window_s=1, took_s=2, **answer, **figures)


def test_trouble_is_told_once_per_kind_and_its_end():
    """One line when a worker stops answering, one when the reason changes, one when it is over; none in between."""
    notices = Lines()
    said = [
        notices.update(step)
        for step in (
            sample(), sample(reason="busy"), sample(reason="busy"), sample(reason="unavailable"), sample(), sample(),
        )
    ]  # fmt: skip
    assert [len(lines) for lines in said] == [0, 1, 0, 1, 1, 0]
    assert said[1] == ["w:1: busy [busy]"]
    assert "answers again after 3 queries" in said[4][0]
    assert notices.notices.any_answered


def test_a_pause_on_purpose_is_no_trouble():
    """Its end is told as what it is, and its queries do not count as unanswered ones."""
    notices = Lines()
    paused, down = sample(reason="paused"), sample(reason="unavailable")
    said = [notices.update(step) for step in (paused, paused, sample(), paused, paused, down, sample())]
    assert said[2] == ["w: sampling goes on after the pause"]
    assert said[6] == ["w: answers again after 1 query without an answer"]


def test_an_exporter_that_is_gone_is_told_once_for_all_workers():
    """No line for each of its workers, neither when it goes nor when it is back."""
    away = Failure(source="exporter", reason="unavailable", message="exporter http://h:1: Connection refused")
    notices = Lines()
    gone = [replace(sample(worker=name, reason="unavailable"), errors=(away,)) for name in ("a", "b", "c")]
    back = [sample(worker="a"), sample(worker="b", reason="busy"), sample(worker="c")]
    said = [notices.update(one) for one in (*gone, *gone, *back)]
    assert said[0] == ["exporter http://h:1: Connection refused [unavailable]"]
    assert said[1:6] == [[]] * 5
    assert said[6:] == [["exporter http://h:1 answers again"], ["b:1: busy [busy]"], []]


def test_of_several_exporters_one_may_be_gone():
    """The others' samples do not say that it answers again."""
    away = Failure(source="exporter", reason="unavailable", message="exporter http://h:1: Connection refused")
    notices = Lines()
    targets = (
        Target(worker="a", address="a:1", exporter="http://h:1"),
        Target(worker="b", address="b:1", exporter="http://h:2"),  # which has it from http://h:3
    )
    gone = replace(sample(worker="a", reason="unavailable"), errors=(away,))
    steps = (Workers(targets=targets), gone, sample(worker="b"), gone, sample(worker="a"), sample(worker="b"))
    said = [notices.update(step) for step in steps]
    assert said == [[], [f"{away.message} [unavailable]"], [], [], ["exporter http://h:1 answers again"], []]
    beyond = replace(away, message="exporter http://h:3: Connection refused")
    notices.update(replace(sample(worker="b", reason="unavailable"), errors=(beyond,)))
    assert notices.update(sample(worker="b")) == ["exporter http://h:3 answers again"]


def test_of_several_exporters_behind_one_that_answers_one_may_be_gone():
    """A fleet's process hands on the failures of one host beside the samples of another."""
    away = Failure(source="exporter", reason="unavailable", message="exporter http://h:1: Connection refused")
    notices = Lines()
    targets = tuple(Target(worker=name, address=f"{name}:1", exporter="http://fleet:1") for name in "ab")
    gone = replace(sample(worker="a", reason="unavailable"), errors=(away,))
    steps = (Workers(targets=targets), gone, sample(worker="b"), gone, sample(worker="b"), sample(worker="a"))
    said = [notices.update(step) for step in steps]
    assert said == [[], [f"{away.message} [unavailable]"], [], [], [], ["exporter http://h:1 answers again"]]


def test_that_a_job_is_traced_is_said_once():
    """The first sample from a trace says what it costs; the figures of a Monitor RPC cost nothing to speak of."""
    notices = Lines()
    traced = bare_sample(
        worker="w", address="w:1", time_unix_s=0, window_s=1, took_s=1, source="trace", traced_s=0.62, interval_s=31.0
    )  # fmt: skip
    assert notices.update(sample()) == []
    (line,) = notices.update(traced)
    assert "figures come from short traces of the job" in line
    assert line.endswith("0.6 s this time")
    assert notices.update(traced) == []


def test_who_shows_the_samples_of_an_exporter_does_not_claim_to_trace():
    """The exporter traced the job; this process costs it nothing."""
    traced = replace(sample(), source="trace", traced_s=0.6)
    shown = Lines()
    shown.update(Workers(targets=(Target(worker=traced.worker, address="w:1", exporter="http://h:1"),)))
    assert shown.update(traced) == []
    assert Lines().update(traced) != []


def test_whatever_source_traces_a_job_says_what_it_costs():
    """Whichever it is; one that only failed, or costs nothing, says nothing."""
    notices = Lines()
    assert notices.update(replace(sample(), source="counters", traced_s=0.0)) == []
    alone = replace(sample(), source="board", companions_only=True, traced_s=0.5)
    assert not any("tracing the job" in line for line in notices.update(alone))
    (line,) = notices.update(replace(sample(worker="v"), source="counters", traced_s=0.5))
    assert "short traces of the job" in line
    assert "0.5 s this time" in line


def test_which_metrics_are_left_is_said():
    """By the name of the extra source that answered alone."""
    for source in ("runtime", "board"):
        failure = Failure(source="trace", reason="busy", message="in use", address="w:1")
        alone = replace(sample(), source=source, companions_only=True, errors=(failure,))
        (line,) = Lines().update(alone)
        assert line.endswith(f"[busy]; showing {source} metrics only")


def test_what_a_trace_warns_of_is_told_once_a_worker():
    """Dropped events, a peak from the table: said when they first show."""
    notices = Lines()
    assert notices.update(sample(warnings=("3 events dropped",))) == ["w: 3 events dropped"]
    assert notices.update(sample(warnings=("3 events dropped",))) == []
    assert notices.update(sample(warnings=("14 events dropped",))) == []
    assert notices.update(sample(worker="v", warnings=("3 events dropped",))) == ["v: 3 events dropped"]


def test_who_never_answered_is_named():
    """One target by its address; several by their number."""
    one, two = Target(worker="a", address="10.0.0.2:9999"), Target(worker="b", address="10.0.0.3:9999")
    notices = Lines()
    notices.update(Workers(targets=(one,)))
    assert notices.notices.none_answered == "10.0.0.2:9999 never answered"
    assert notices.update(Workers(targets=(one, two))) == ["now following b at 10.0.0.3:9999"]
    assert notices.notices.none_answered == "none of 2 workers ever answered"


def test_why_there_is_nobody_is_told_once_and_who_comes_and_goes_each_time():
    """WAITING stands once for each reason; workers that leave are named, of many the first few."""
    notices = Lines()
    assert notices.update(Workers(waiting="no job")) == ["WAITING: no job"]
    assert notices.update(Workers(waiting="no job")) == []
    many = tuple(Target(worker=f"w{i}", address=f"w{i}:1") for i in range(8))
    assert notices.update(Workers(targets=many)) == [
        "now following w0 at w0:1, w1 at w1:1, w2 at w2:1, w3 at w3:1, w4 at w4:1 and 3 more"
    ]
    assert notices.update(Workers(targets=many[1:])) == ["no longer following w0"]


@pytest.mark.parametrize(("reason", "answered"), [("empty-trace", True), ("paused", True), ("unavailable", False)])
def test_who_has_nothing_to_tell_or_is_not_asked_is_not_said_to_be_gone(reason, answered):
    """A job that compiles answers; a host that is paused is not asked."""
    notices = Lines()
    notices.update(sample(reason=reason))
    assert notices.notices.any_answered is answered


def test_a_job_that_runs_again_was_never_gone():
    notices = Lines()
    notices.update(sample(reason="empty-trace"))
    assert notices.update(sample()) == ["w: runs again after 1 query in which nothing ran"]

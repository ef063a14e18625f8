"""Changes that several workers of a slice had together."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tpumon.analysis.history.slice_changes import as_one, together
from tpumon.model import Change, Target


def change(worker, time_unix_s, severity="warning", words="steps 1.20x longer", before="ok"):
    return Change(
        number=1, time_unix_s=time_unix_s, worker=worker, what="severity", state="live", severity=severity,
        before=before, words=words,
    )  # fmt: skip


def went_away(time_unix_s):
    changed = change("w0", time_unix_s, severity="critical", words="connection refused")
    return replace(changed, what="state", state="down")


def targets(*workers, of="s", **given):
    return {name: Target(worker=name, address=f"{name}:1", slice=of, **given) for name in workers}


def lines(changes, known):
    return [(as_one(group, known).worker, as_one(group, known).words) for group in together(changes, known)]


def test_what_happened_to_a_slice_is_one_change():
    """The words are those of the first: figures differ a little."""
    names = [f"w{number}" for number in range(8)]
    changes = [change(name, 10.0 + place, words=f"steps 1.{place}x longer") for place, name in enumerate(names)]
    assert lines(changes, targets(*names)) == [("all 8 workers of s", "steps 1.0x longer")]
    assert lines(changes[:5], targets(*names)) == [("w0, w1, w2 and 2 more", "steps 1.0x longer")]
    assert lines(changes[:2], targets(*names)) == [("w0, w1", "steps 1.0x longer")]


def test_a_restart_of_a_slice_is_one_change_whatever_its_workers_counted_as():
    """One of them was critical before."""
    names = ["w0", "w1", "w2"]
    changes = [
        replace(change(name, 10.0, before=before, severity=severity), what="restart", words="its job was restarted")
        for name, before, severity in zip(names, ("critical", "ok", "down"), ("unknown", "ok", "ok"), strict=True)
    ]
    assert lines(changes, targets(*names)) == [("all 3 workers of s", "its job was restarted")]


@pytest.mark.parametrize(
    ("down_s", "restart_s", "since", "told"),
    [
        (10.0, 14.0, "ok", ["restart"]),
        (15.0, 14.0, "ok", ["restart"]),  # it began before it was found to be away
        (10.0, 14.0, "critical", ["restart", "severity"]),
        (10.0, 30.0, "ok", ["state", "restart", "severity"]),
    ],
)
def test_a_quick_restart_is_one_change(down_s, restart_s, since, told):
    """Its worker was away for seconds, and is as before. All else is told: what is otherwise, or took longer."""
    restart = replace(change("w0", restart_s, before="down", severity="unknown"), what="restart", number=2)
    later = [change("w0", 40.0, before="down", severity=since), change("w0", 99.0, before=since, severity="info")]
    changes = [went_away(down_s), restart, replace(later[0], number=3), replace(later[1], number=4)]
    assert [group[0].what for group in together(changes, targets("w0"))] == [*told, "severity"]


def test_a_job_that_goes_away_soon_after_its_restart_is_told():
    restart = replace(change("w0", 10.0, severity="unknown"), what="restart")
    groups = together([restart, replace(went_away(14.0), number=2)], targets("w0"))
    assert [group[0].what for group in groups] == ["restart", "state"]


def test_it_is_one_change_whatever_each_counted_as_before_and_names_them_in_order():
    """What they were is then left out."""
    names = ["w0", "w1", "w2", "w3"]
    changes = [
        replace(change(name, at, before=before), what="state", state="down", words="connection refused")
        for at, (name, before) in enumerate((("w2", "no-activity"), ("w1", "ok"), ("w0", "ok")))
    ]
    (group,) = together(changes, targets(*names))
    assert (as_one(group, targets(*names)).worker, as_one(group, targets(*names)).before) == ("w0, w1, w2", None)
    assert as_one(together(changes[1:], targets(*names))[0], targets(*names)).before == "ok"


def test_a_hang_of_a_slice_is_one_change_that_names_who_stopped():
    """Whatever words each worker has for it."""
    names = ["w0", "w1", "w2"]
    words = (
        "waits for w1, no activity seen for 606 s",
        "w1 stopped first, no activity seen for 605 s",
        "no activity seen for 610 s",
    )
    changes = [
        replace(change(name, 10.0, severity="critical", words=said, before="no-activity"), state="no-activity")
        for name, said in zip(names, words, strict=True)
    ]
    assert lines(changes, targets(*names)) == [("all 3 workers of s", "w1 stopped first, no activity seen for 605 s")]


def test_other_changes_stay_apart():
    known = targets("a", "b", "c") | targets("d", of="t") | targets("e", "f", independent=True)
    usual = change("a", 10.0)
    for other in (
        change("b", 100.0), change("b", 11.0, severity="critical"), change("b", 11.0, words="own work +3%"),
        change("d", 11.0), change("a", 11.0), change("unknown", 11.0),
    ):  # fmt: skip
        assert len(together([usual, other], known)) == 2, other
    assert len(together([change("e", 10.0), change("f", 10.0)], known)) == 2


def test_a_worker_that_changes_again_begins_another_one():
    changes = [change("a", 1.0), change("b", 2.0), change("a", 3.0), change("b", 4.0)]
    for given in (changes, changes[::-1]):  # an exporter hands them on in the order in which it found them
        groups = together(given, targets("a", "b"))
        assert [[one.time_unix_s for one in group] for group in groups] == [[1.0, 2.0], [3.0, 4.0]]


def named(changes, known):
    """When, who and what."""
    ones = [as_one(group, known) for group in together(changes, known)]
    return [(one.time_unix_s, one.worker, "restart" if one.what == "restart" else one.status) for one in ones]


def state(worker, time_unix_s, state, what="state"):
    severity = {"down": "critical"}.get(state, "ok")
    return replace(change(worker, time_unix_s, severity=severity, words=""), state=state, what=what)


def test_a_worker_that_went_down_meanwhile_stands_apart_from_those_that_did_not():
    """Both when it is as they are, and when all are well again."""
    known = targets("w0", "w1", "w2", "w3")
    changes = [
        *(state(name, 39.0, "no-activity") for name in ("w1", "w2", "w3")),
        state("w0", 40.0, "down"), state("w0", 75.0, "no-activity", what="restart"), state("w0", 75.0, "no-activity"),
        *(state(name, 88.0 + place / 2, "live") for place, name in enumerate(("w1", "w3", "w2"))),
        state("w0", 95.5, "live"),
    ]  # fmt: skip
    assert named(changes, known) == [
        (39.0, "w1, w2, w3", "no-activity"), (40.0, "w0", "down"), (75.0, "w0", "restart"), (75.0, "w0", "no-activity"),
        (88.0, "w1, w2, w3", "ok"), (95.5, "w0", "ok"),
    ]  # fmt: skip
    quick = [*changes[:4], state("w0", 43.0, "no-activity")]
    assert named(quick, known)[-1] == (43.0, "w0", "no-activity"), "however soon"


def test_what_comes_at_once_is_one_change_whatever_came_before():
    """A straggler that hangs with the others; workers that go down as their job ends."""
    known = targets("w0", "w1", "w2")
    hang = [state(name, 60.0 + place, "no-activity") for place, name in enumerate(known)]
    assert named([change("w2", 45.0), *hang], known)[1:] == [(60.0, "all 3 workers of s", "no-activity")]
    downs = [state(name, at, "down") for name, at in (("w0", 70.0), ("w1", 74.0), ("w2", 78.0))]
    assert named([*hang[1:], *downs], known)[1:] == [(70.0, "all 3 workers of s", "down")]


def test_workers_that_had_the_same_before_may_take_a_minute_for_the_next():
    known = targets("w0", "w1")
    changes = [
        state("w0", 10.0, "down"),
        state("w1", 11.0, "down"),
        state("w0", 20.0, "live"),
        state("w1", 60.0, "live"),
    ]
    assert named(changes, known) == [(10.0, "all 2 workers of s", "down"), (20.0, "all 2 workers of s", "ok")]

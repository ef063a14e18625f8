"""What compares workers is judged only where the whole slice is followed and nearly all of it has figures."""

from __future__ import annotations

import pytest

from support.samples import failed_sample, sample
from tpumon.analysis import Analysis
from tpumon.model import ExporterSnapshot, Spread, StatusSnapshot, StepTimes, Target, Workers
from tpumon.model.figure_table import OP_KINDS

COMPARED = {"straggler", "collective-bound", "barrier-wait"}
INTERVAL_S = 10.0
STEP = StepTimes(avg=0.1, min=0.1, max=0.1)


class Job:
    """Workers of some slices that wait for w0 and spend much of their time in collectives and at barriers."""

    def __init__(self, count=10, slices=("s",), **known):
        self.fleet, self.now = Analysis(), 1000.0
        self.names = [f"{name}{number}" for name in slices for number in range(count)]
        self.fleet.add(Workers(targets=tuple(
            Target(**{"worker": name, "address": f"{name}:1", "job": "j", "slice": name[0]} | known)
            for name in self.names
        )))  # fmt: skip

    def rounds(self, count, missing=(), **figures):
        """Findings of all by id, after so many queries of all but some."""
        for _ in range(count):
            self.now += INTERVAL_S
            for number, name in enumerate(self.names):
                if name in missing:
                    self.fleet.add(failed_sample(name, "unavailable", time_unix_s=self.now, interval_s=INTERVAL_S))
                    continue
                collective = 0.6 if number else 0.52
                ratios = dict.fromkeys(OP_KINDS, 0.0) | {"collective": collective, "compute": 1 - collective}
                given = {"op_time_ratios": ratios, "idle_ratio": 0.0, "barrier_ratio": 0.6, "step_time_s": STEP}
                self.fleet.add(sample(name, time_unix_s=self.now, interval_s=INTERVAL_S, **(given | figures)))
        return {one.finding: one for one in self.fleet.status(self.now + 1).findings}

    def reasons(self, worker="s1"):
        return {one.finding: one.reason for one in self.fleet.status(self.now + 1).workers[worker].not_judged}

    def judged(self, worker="s1"):
        return set(self.fleet.status(self.now + 1).workers[worker].judged)


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (lambda: Job(1, slice_workers=64), "follows 1 of 64 workers"),
        (lambda: Job(63, slice_workers=64), "follows 63 of 64 workers"),
        (lambda: Job(2, job_slices=4), "follows 1 of 4 slices"),
        (lambda: Job(1, job=None, slice=None, independent=True, slice_workers=2), "follows 1 of 2 workers"),
    ],
)
def test_without_the_whole_slice_nothing_is_compared(job, reason):
    """Who is not followed may be the one that is waited for."""
    job = job()
    assert not COMPARED & set(job.rounds(4))
    assert not COMPARED & job.judged("s0")
    assert {name: why for name, why in job.reasons("s0").items() if name in COMPARED} == dict.fromkeys(COMPARED, reason)
    assert "input-bound" in job.rounds(3, infeed_ratio=Spread(avg=0.3, min=0.3, max=0.3)), (
        "what it shows by itself is judged"
    )


@pytest.mark.parametrize("known", [{}, {"slice_workers": 10}, {"slice_workers": 10, "job_slices": 1}])
def test_with_the_whole_slice_all_is_compared(known):
    """As far as the numbers are known."""
    found = Job(**known).rounds(4)
    assert set(found) >= {"straggler", "collective-bound"}
    assert found["collective-bound"].severity == "warning"


def test_a_slice_of_which_one_worker_is_not_followed_spoils_the_comparison_of_its_job():
    """Slices are compared, too."""
    job = Job(2, ("a", "b"), slice_workers=2, job_slices=2)
    assert "collective-bound" in job.rounds(4)
    fewer = [Target(worker=name, address=f"{name}:1", job="j", slice=name[0], slice_workers=2) for name in job.names]
    job.fleet.add(Workers(targets=tuple(fewer[:3])))
    job.names.remove("b1")
    assert not COMPARED & set(job.rounds(3))
    assert job.reasons("a0")["straggler"] == "follows 1 of 2 workers of slice b"
    assert job.reasons("b0")["straggler"] == "follows 1 of 2 workers"


def test_a_worker_of_which_there_are_two_is_compared_with_none():
    """One of ten: the others are compared."""
    job = Job()
    job.rounds(4)
    targets = [
        Target(worker=name, address=f"{name}:1", job="j", slice="s", ambiguous=name == "s0") for name in job.names
    ]
    job.fleet.add(Workers(targets=tuple(targets)))
    found = job.rounds(4)
    assert job.reasons("s0")["straggler"] == "two exporters have a worker of this name; tell them apart by --job"
    assert "straggler" not in found
    assert "straggler" in job.judged("s1")
    assert found["collective-bound"].severity == "info"


def test_one_without_figures_may_be_the_one_that_is_waited_for():
    """Of ten: the others are compared, but waiting is information only, until it returns."""
    job = Job()
    assert job.rounds(4)["collective-bound"].severity == "warning"
    found = job.rounds(3, ["s9"])
    assert {found[one].severity for one in ("collective-bound", "barrier-wait")} == {"info"}
    assert found["straggler"].severity == "warning"
    assert job.rounds(1)["collective-bound"].severity == "warning"


def test_with_fewer_than_nine_tenths_nothing_is_compared():
    """Two of ten are down, then stale; whoever hangs is judged all the same."""
    job = Job()
    job.rounds(4)
    assert not COMPARED & set(job.rounds(4, ["s8", "s9"]))
    assert set(job.reasons()) >= COMPARED
    assert job.reasons()["straggler"] == "fewer than nine tenths of its slice's 10 workers have current samples"
    assert "hang" in job.judged()
    assert set(job.rounds(4)) >= {"straggler"}
    job.names = job.names[:8]
    assert not COMPARED & set(job.rounds(40)), "two fell silent"


def _unnamed(**of_last):
    """Five addresses of which nothing else is known, unless of the last."""
    job = Job(5, job=None, slice=None)
    named = [Target(worker=name, address=f"{name}:1", **(of_last if name == "s4" else {})) for name in job.names]
    job.fleet.add(Workers(targets=tuple(named)))
    return job


def test_an_address_that_never_answered_is_no_worker_of_a_slice_that_nothing_names():
    """Else one that was mistyped would end all comparing."""
    job = _unnamed()
    assert job.rounds(4, ["s4"])["straggler"].workers == ("s0",)
    assert "straggler" in job.judged()
    assert not COMPARED & set(job.rounds(4, ["s3", "s4"]))
    reason = "fewer than nine tenths of its slice's 4 workers have current samples"
    assert job.reasons()["straggler"] == reason, "s3 answered before"


def test_before_it_was_asked_an_address_may_answer():
    job = _unnamed()
    job.names.remove("s4")
    assert "straggler" not in job.rounds(4)


@pytest.mark.parametrize("known", [{"job": "j", "slice": "s"}, {"job": "j"}, {"slice": "s"}, {"slice_workers": 5}])
def test_a_worker_counts_before_it_answers_where_something_names_it(known):
    """Its job or slice, or how many workers the slice has."""
    assert "straggler" not in Job(5, **({"job": None, "slice": None} | known)).rounds(4, ["s4"])


def test_a_worker_that_answered_earlier_counts():
    job = _unnamed()
    job.rounds(4)
    assert "straggler" not in job.rounds(4, ["s4"])


@pytest.mark.parametrize(("state", "or_earlier", "is_judged"), [
    ("live", True, False), ("down", False, False), ("down", True, True), ("waiting", False, True),
])  # fmt: skip
def test_an_exporter_tells_whether_a_worker_answered_before(state, or_earlier, is_judged):
    """One that was down when it was first looked at, and is still, never did."""
    job = _unnamed()
    known = StatusSnapshot(worker="s4", state=state, severity="unknown", since_or_earlier=or_earlier)
    job.fleet.add(ExporterSnapshot(complete=False, exporter="e", statuses=(known,)))
    job.rounds(4, ["s4"])
    assert ("straggler" in job.judged()) == is_judged

"""A job is judged alike, whether one exporter samples its 64 workers or each worker has an exporter of its own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.every_output import Clock, Exporter, Reader, exit_of, marks_of, said_of
from support.job_runs import running, simulated, target
from support.scenes import BEGIN_UNIX_S
from tpumon.analysis.findings import RULES
from tpumon.model import Workers

ROUNDS, BEGIN = 13, 6
INTERVAL_S = 30.0
AT_S = BEGIN * INTERVAL_S


def both_of(scenario, rounds=ROUNDS, workers=64, known=None, **given):
    """The readers of one exporter with all workers, and of as many exporters with one each, after the job_run.

    Args:
        known: how many workers the slice has, as the targets say; None: nothing tells.
    """
    job_run = simulated(scenario, rounds, topology=f"v6e-{4 * workers}", interval_s=INTERVAL_S, **given)
    names = [target.worker for target in job_run.workers.targets]
    assert len(names) == workers
    clock = Clock()
    clock.now = job_run.rounds[0][0].time_unix_s
    whole, each = Exporter(clock, "whole"), {name: Exporter(clock, f"of {name}") for name in names}
    whole.add(job_run.workers)
    for one in job_run.workers.targets:
        each[one.worker].add(Workers(targets=(replace(one, slice_workers=known),)))
    one, many = Reader([whole]), Reader(list(each.values()), "many")
    for samples, end in zip(job_run.rounds, job_run.ends, strict=True):
        for sample in samples:
            clock.now = max(clock.now, sample.time_unix_s + sample.took_s)
            whole.add(sample)
            each[sample.worker].add(sample)
        clock.now = end
        for reader in (one, many):
            reader.poll()
    return one.status(), many.status()


def of_all(status):
    """Finding, severity, since, and all workers that have it."""
    found = {}
    for name, each in said_of(status).items():
        for finding, grade, since in each:
            first, workers = found.get((finding, grade), (since, frozenset()))
            found[finding, grade] = min(first, since), workers | {name}
    return found


@pytest.mark.parametrize(
    ("scenario", "wanted"),
    [
        pytest.param("steady", set(), marks=pytest.mark.nightly),
        pytest.param(f"straggler@{AT_S:.0f}:worker=17,by=0.1+jitter", {"straggler"}, marks=pytest.mark.nightly),
        (f"straggler@{AT_S:.0f}:worker=17,by=0.4", {"straggler"}),
        (f"hang@{AT_S:.0f}:worker=17", {"hang"}),
    ],
)
def test_64_exporters_of_a_worker_each_say_what_one_says(scenario, wanted):
    """Of findings that take comparing, since when is within an interval: others are compared at other times."""
    one, many = both_of(scenario, computed=True)
    _same(one, many, wanted)
    ours, theirs = (
        {change.status: change.time_unix_s for change in reversed(status.changes) if change.worker.endswith("-w17")}
        for status in (one, many)
    )
    for mark, time_unix_s in ours.items():
        # A first sample has none of equally long steps to be compared with where it comes before those of the others.
        assert theirs[mark] == pytest.approx(time_unix_s, abs=2 * INTERVAL_S), "what comparing finds is also a change"


@pytest.mark.parametrize("workers", [8, pytest.param(64, marks=pytest.mark.nightly)])
def test_many_exporters_say_the_same_of_collectives(workers):
    """From traces."""
    one, many = both_of(f"collective-bound@{3 * INTERVAL_S:.0f}", rounds=7, workers=workers)
    _same(one, many, {"collective-bound"})


@pytest.mark.parametrize("known", [4, None])
def test_who_waits_for_a_straggler_is_not_marked(known):
    """Its device is idle between programs, as that of a slow host is: its exporter alone cannot tell."""
    _, many = both_of("straggler@90:worker=1,by=0.8", workers=4, known=known, computed=True)
    marked = {name: mark for name, (mark, _) in marks_of(many).items()}
    assert marked.pop("sim-v6e-16-w1") == "critical"
    assert set(marked.values()) <= {"ok", "info"}
    (found,) = (one for one in many.findings if one.finding == "host-bound")
    assert found.severity == "info"
    assert "it waits for its host or for another worker (tpumon follows" in found.sentence
    assert len(found.sentence) < 200, "whole where it is said as an exporter's words"


def test_who_waits_for_a_straggler_is_not_marked_before_that_is_known_either():
    """Each rule takes three samples, and those who wait may be sampled first."""
    for status in both_of("straggler:worker=1,by=0.8", rounds=6, workers=4, computed=True):
        assert {change.worker for change in status.changes if change.status == "critical"} == {"sim-v6e-16-w1"}
        assert "warning" not in {change.status for change in status.changes}


@pytest.mark.parametrize("known", [4, None])
def test_hosts_that_are_slow_are_marked_where_all_are_followed(known):
    one, many = both_of("host-bound@90", workers=4, known=known, computed=True)
    assert of_all(one) == of_all(many)
    assert {(finding, severity) for finding, severity in of_all(many)} == {("host-bound", "warning")}
    (found,) = many.findings
    assert "the host hands out work too slowly" in found.sentence


def _same(one, many, wanted):
    """What an exporter of one waiting worker finds stands, by design: a wider view hides nothing that it explains."""
    ours, theirs = of_all(one), of_all(many)
    names = {finding for finding, _ in ours}
    assert wanted <= names
    beside = {rule.finding for rule in RULES if names & {*rule.hidden_by, *rule.hidden_by_new}}
    same = {key: found for key, found in theirs.items() if key[0] not in beside or key in ours}
    assert {key: workers for key, (_, workers) in same.items()} == {key: workers for key, (_, workers) in ours.items()}
    for key, (since, _) in ours.items():
        assert theirs[key][0] == pytest.approx(since, abs=INTERVAL_S), key
    marked = {name for _, (_, workers) in ours.items() for name in workers} if len(same) < len(theirs) else one.workers
    for name in marked:
        assert marks_of(many)[name][0] == marks_of(one)[name][0]
    assert exit_of(many) == exit_of(one)


def test_what_comparing_has_found_ends_when_nobody_is_left_to_compare_with():
    """A job that shrinks to one exporter, whose samples nobody judges here any more."""
    clock = Clock()
    clock.now = BEGIN_UNIX_S
    exporters = {name: Exporter(clock, name) for name in ("w0", "w1", "w2", "w3")}
    for name, exporter in exporters.items():
        exporter.add(Workers(targets=(target(name),)))
    fleet = Reader(list(exporters.values()))

    def passes(*names):
        clock.now += INTERVAL_S
        for name in names:
            slow = {"step_work_s": 0.09} if name == "w1" else {}
            known = {"address": f"{name}:9999", "time_unix_s": clock.now - 1.3, "interval_s": INTERVAL_S}
            made = running(name, job="j", slice="s", **known, **slow)
            exporters[name].add(made)
        fleet.poll()

    for _ in range(5):
        passes(*exporters)
    assert [one.workers for one in fleet.status().findings] == [("w1",)]
    fleet.only(1)
    for _ in range(2):
        passes("w1")
    assert said_of(fleet.status()) == {"w1": frozenset()}
    assert fleet.status().findings == ()
    assert marks_of(fleet.status())["w1"][0] == "ok"
    assert [change.status for change in fleet.status().changes] == ["critical", "ok"]
    assert "straggler" not in fleet.status().workers["w1"].judged

"""Findings beside the truth of fleets, which a generator makes that knows neither the simulator nor the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from statistics import fmean
from typing import get_args

import pytest

from support.fleets import live
from support.fleets.catalogue import KINDS
from support.fleets.collecting import MIXES
from support.fleets.courses import cores_of, stretch
from support.fleets.programs import COLLECTIVES, training
from support.fleets.table import Row, markdown, ratios, rows_of, wrong
from support.fleets.timelines import Conditions, Step
from support.fleets.truths import kind_of, shares
from support.fleets.xspaces import Look, trace
from support.xprof import open_with_xprof, overview, ratio
from tpumon.model import FindingId

_EACH = 17  # fleets of which one is tried each day
_MOST = 0.01  # of the expected that are missed, and of the others that are found
_MOST_S = 60.0  # by which since may be wrong


def _hold(rows: Sequence[Row]) -> None:
    """Fails unless what the issue wants holds."""
    said = "\n".join(f"{row.result}: {row.finding} of [{row.kind}] {row.fleet}: {row.detail}" for row in wrong(rows))
    assert not [row for row in rows if row.result == "wrong worker"], said
    assert not [row for row in rows if abs(row.since_error_s or 0.0) > _MOST_S]
    for finding in get_args(FindingId):
        missed, false = ratios(rows, finding)
        assert max(missed, false) < _MOST, f"{finding}: {missed:.1%} missed, {false:.1%} false\n{said}"


@pytest.mark.parametrize("kind", KINDS)
def test_findings_of_some_fleets_are_true(kind):
    _hold([row for fleet in islice(KINDS[kind](), 0, None, _EACH) for row in rows_of(fleet)])


@pytest.mark.nightly
def test_findings_of_all_fleets_are_true():
    fleets = [fleet for make in KINDS.values() for fleet in make()]
    assert len({fleet.name for fleet in fleets}) == len(fleets) >= 300
    rows = [row for fleet in fleets for row in rows_of(fleet)]
    print(markdown(rows))
    _hold(rows)


@pytest.mark.nightly
def test_findings_of_live_jobs_are_true(jax_job, tf_job):
    rows = [row for fleet in (*live.jax(jax_job), *live.tensorflow(tf_job)) for row in rows_of(fleet)]
    print(markdown(rows))
    _hold(rows)


@pytest.mark.parametrize("kind", [kind for kind in COLLECTIVES if "permute" not in kind and "send" not in kind])
def test_who_arrives_last_in_a_collective_waits_least(kind):
    slow = Conditions(pace=lambda core, _step: 1.5 if core.worker == 2 else 1.0)
    cores, program = cores_of(4, 2), training(0.1, ((kind, 1.0),))
    ran = stretch(cores, dict.fromkeys(range(4), program), 1, given=slow).cores
    own_s = 1.5 * sum(part.seconds for part in program if part.what == "work")
    last = [part.name for part in program if part.what in {"collect", "done"}]
    for step in range(5):
        for name in last:
            op = {core: next(op for op in ran[core][step].ops if op.part.name == name) for core in cores}
            ends = [each.end_s for each in op.values()]
            assert max(ends) - min(ends) < 1e-5 or "done" in kind  # work of the next layer hides some of it
            waits = {core: each.end_s - each.begin_s for core, each in op.items()}
            assert min(waits, key=waits.__getitem__).worker == 2
    steps = ran[cores[0]]
    period_s = (steps[-1].begin_s - steps[0].begin_s) / (len(steps) - 1)
    transfers_s = 0.0 if "done" in kind else sum(part.seconds for part in program if part.what == "collect")
    assert period_s == pytest.approx(own_s + transfers_s, rel=0.02)


def test_a_job_is_as_fast_as_its_slowest_even_if_each_waits_for_its_neighbour_alone():
    slow = Conditions(pace=lambda core, _step: 1.5 if core.worker == 2 else 1.0)
    for kind in ("collective-permute", "collective-permute -start/-done", "send and recv"):
        ran = stretch(
            cores_of(8), dict.fromkeys(range(8), training(0.1, ((kind, 1.0),))), 1, given=slow, steps=40
        ).cores
        periods = [(steps[-1].begin_s - steps[0].begin_s) / (len(steps) - 1) for steps in ran.values()]
        assert max(periods) == pytest.approx(min(periods), rel=0.01)
        own = {
            core.worker: sum(op.end_s - op.begin_s for op in steps[9].ops if op.part.what == "work")
            for core, steps in ran.items()
        }
        assert max(own, key=own.__getitem__) == 2
        assert own[2] > 1.4 * own[1]


_READ = {
    "a straggler in all-gathers": (
        training(0.1, (("all-gather", 1.0),)),
        Conditions(pace=lambda core, _step: 1.5 - core.worker / 2),
    ),
    "started and done": (training(0.1, MIXES["FSDP"]), Conditions()),
    "late input": (training(0.1, infeed=True), Conditions(batch_s={0: 0.16, 1: 0.13})),
    "a late host": (training(0.1), Conditions(pause_s={0: 0.03, 1: 0.02})),
}


@pytest.mark.parametrize("what", _READ)
def test_xprof_reads_in_the_slices_what_they_were_made_of(tmp_path, what):
    program, given = _READ[what]
    ran = stretch(cores_of(2, 2), {0: program, 1: program}, 1, given=given, steps=30)
    for worker in (0, 1):
        mine = {core: steps for core, steps in ran.cores.items() if core.worker == worker}
        file = tmp_path / f"w{worker}.xplane.pb"
        first = next(iter(mine.values()))
        file.write_bytes(trace(mine, first[0].begin_s - 1e-3, first[-1].end_s + 1e-3, Look()))
        page, found = overview([file]), [shares(steps) for steps in mine.values()]
        assert float(page["steptime_ms_average"]) == pytest.approx(1e3 * _busy_s(first), rel=0.01)
        assert ratio(page, "device_idle_time_percent") == pytest.approx(fmean(each["idle"] for each in found), abs=0.02)
        table = open_with_xprof([file], "hlo_stats")
        names = [column["id"] for column in table["cols"]]
        kinds = Counter()
        for row in table["rows"]:
            kind = kind_of(row["c"][names.index("category")]["v"])
            kinds[kind] += row["c"][names.index("total_self_time_percent")]["v"] / 100
        for kind in ("collective", "infeed", "compute"):
            assert kinds[kind] == pytest.approx(fmean(each.get(kind, 0.0) for each in found), abs=0.02), kind


def _busy_s(steps: Sequence[Step]) -> float:
    return fmean(step.end_s - step.begin_s for step in steps)

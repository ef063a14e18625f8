"""What a finding needs of a query: without it nothing can be judged, and further queries without it change nothing."""

from __future__ import annotations

import random
from dataclasses import asdict, replace

import pytest

from support.samples import sample
from tpumon.figures import OP_KINDS, values
from tpumon.findings import Judge, Seen, Thresholds
from tpumon.findings.base import Member
from tpumon.findings.table import RULES
from tpumon.model import Figures, Spread, StepTimes, Target

NEEDING = [rule for rule in RULES if rule.needs]
TARGETS = [Target(worker=f"w{number}", address=f"w{number}:1", slice="s") for number in range(4)]


def any_sample(chance, worker="w0", at_s=0.0):
    """A sample with any figures that rules look at; each may be absent."""
    step_s = chance.uniform(0.1, 0.2)
    figures = {
        "mxu_utilization_ratio": chance.random(),
        "hbm_bandwidth_utilization_ratio": chance.random(),
        "idle_ratio": chance.uniform(0.0, 0.5),
        "step_time_s": StepTimes(avg=step_s, min=step_s, max=step_s),
        "step_work_s": step_s / 2,
        "infeed_ratio": Spread(avg=chance.choice([0.0, 0.3]), min=0.0, max=0.3),
        "op_time_ratios": {kind: chance.choice([0.0, 0.4]) for kind in OP_KINDS},
        "barrier_ratio": chance.choice([0.0, 0.4]),
        "debug_print_ratio": chance.choice([0.0, 0.4]),
        "per_core": [{"chip": 0, "core": 0, "idle_ratio": 0.1, "collective_ratio": chance.choice([0.0, 0.4])}],
        "hbm_used_bytes": 9,
        "hbm_total_bytes": 16,
        "callback_ratio": chance.random(),
        "input_wait_ratio": chance.random(),
        "compile_ratio": chance.random(),
    }
    given = {name: figure for name, figure in figures.items() if chance.random() < 0.7}
    return sample(worker, time_unix_s=1000.0 + at_s, source=chance.choice(["trace", "monitor"]), **given)


def seen(one, target=TARGETS[0], **given):
    return Seen(target=target, sample=one, state="live", values=values(one.figures), **given)


@pytest.mark.parametrize("kind", NEEDING, ids=lambda kind: kind.finding)
def test_without_what_it_needs_nothing_else_of_a_query_matters(kind):
    rule, chance = kind(Thresholds()), random.Random(1)
    reasons: dict[frozenset[str], set[float | str]] = {}
    for _ in range(300):
        one = any_sample(chance)
        absent = frozenset(name for name in kind.needs if getattr(one.figures, name) is None)
        across = rule.across(()) if not rule.compares else chance.choice([{}, {"s": chance.random()}])
        reasons.setdefault(absent, set()).add(rule.strength(Member(seen(one), rule.memory(), across)))
    told = reasons.pop(frozenset())
    assert any(not isinstance(strength, str) for strength in told)
    assert len(reasons) == 2 ** len(kind.needs) - 1
    assert all(len(same) == 1 and isinstance(next(iter(same)), str) for same in reasons.values())


def test_what_is_needed_are_figures():
    names = frozenset().union(*(rule.needs for rule in RULES))
    assert names
    assert names <= set(Figures.__dataclass_fields__)


def test_what_some_other_figure_tells_is_not_left_out():
    """The share of collectives of each core, where none of all ops is known."""
    judge, one = Judge(Thresholds()), sample(per_core=[{"chip": 0, "core": 0, "collective_ratio": 0.4}])
    judge.follow(TARGETS[:1])
    for number in range(6):
        judge.judge([seen(sample() if number < 3 else replace(one, time_unix_s=2000.0 + number))])
    assert [cause.finding for cause in judge.causes("w0")] == ["collective-bound"]


def course(chance, limits):
    """What a judge says after each query of four workers whose figures come and go, also for long."""
    judge, found = Judge(limits), []
    judge.follow(TARGETS)
    kept = {target.worker: any_sample(chance) for target in TARGETS}
    for number in range(150):
        for target in TARGETS:
            if chance.random() < 0.2:  # otherwise with the same figures as before
                kept[target.worker] = any_sample(chance)
            one = replace(kept[target.worker], worker=target.worker, time_unix_s=1000.0 + number)
            judge.judge([seen(one, target, restarted=chance.random() < 0.01)])
        names = [target.worker for target in TARGETS]
        found.append([
            [asdict(finding) for finding in judge.findings(names)],
            [judge.not_judged(name) for name in names],
            [(judge.judged(name), judge.needs_more(name), judge.causes(name)) for name in names],
        ])  # fmt: skip
    return found


@pytest.mark.parametrize("seed", range(10))
def test_whom_a_query_tells_nothing_new_is_left_out_without_a_trace(seed, monkeypatch):
    left_out = course(random.Random(seed), Thresholds())
    for kind in NEEDING:
        monkeypatch.setattr(kind, "needs", frozenset({"per_core", "devices"}))  # never absent
    assert course(random.Random(seed), Thresholds()) == left_out

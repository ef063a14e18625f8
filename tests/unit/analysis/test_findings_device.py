"""Findings about what devices spend their time on, recompiling, truncated traces: limits, words, what is not judged."""

from __future__ import annotations

import math
import random
import re
from typing import get_args

import pytest

from support import REPOSITORY
from support.samples import sample
from tpumon.analysis import Analysis
from tpumon.analysis.findings.rule_table import RULES
from tpumon.analysis.findings.rules.device.shares import ShareRule
from tpumon.model import CoreFigures, FigureWarning, FindingId, FunctionFigures, Spread, StepTimes, Target, Workers
from tpumon.model.figure_table import OP_KINDS

STEP = StepTimes(avg=0.1, min=0.1, max=0.1)
INTERVAL_S = 10.0


class Job:
    """A slice whose workers are queried round after round."""

    def __init__(self, *workers, job_kind="training"):
        self.workers = workers or ("a",)
        self.fleet, self.now = Analysis(), 1000.0
        self.fleet.add(
            Workers(
                targets=tuple(Target(worker=w, address=f"{w}:1", slice="s", job_kind=job_kind) for w in self.workers)
            )
        )

    def round(self, count=1, others=None, **figures):
        """Findings by id after so many samples of all; `others` have other figures than the first worker."""
        for _ in range(count):
            self.now += INTERVAL_S
            for worker in self.workers:
                own = {**figures, **(others or {})} if worker != self.workers[0] else figures
                self.fleet.add(sample(worker, **{"time_unix_s": self.now, "step_time_s": STEP, **own}))
        return {finding.finding: finding for finding in self.fleet.status(self.now + 1).findings}

    def reasons(self):
        return {one.finding: one.reason for one in self.fleet.status(self.now + 1).not_judged()}


def kinds(**shares):
    """Time by kind of op; what is not given is compute."""
    ratios = dict.fromkeys(OP_KINDS, 0.0) | shares
    ratios["compute"] = shares.get("compute", 0.95 - sum(shares.values()))
    return {"op_time_ratios": ratios, "idle_ratio": 0.05}


# finding: figures just below its limit, above it, and where it becomes a warning; None: never
LIMITS = {
    "outfeed-bound": (kinds(outfeed=0.049), kinds(outfeed=0.051), kinds(outfeed=0.21)),
    "host-transfer-bound": (kinds(host_transfer=0.09), kinds(host_transfer=0.11), kinds(host_transfer=0.51)),
    "async-wait": (kinds(async_wait=0.09), kinds(async_wait=0.11), kinds(async_wait=0.51)),
    "data-shuffle": (kinds(data_shuffle=0.29), kinds(data_shuffle=0.31), kinds(data_shuffle=0.51)),
    "sparsecore-bound": (kinds(sparsecore=0.09), kinds(sparsecore=0.11), kinds(sparsecore=0.51)),
    "collective-bound": (kinds(collective=0.29), kinds(collective=0.31), kinds(collective=0.51)),
    "barrier-wait": ({"barrier_ratio": 0.09}, {"barrier_ratio": 0.11}, {"barrier_ratio": 0.51}),
    "debug-print": ({"debug_print_ratio": 0.045}, {"debug_print_ratio": 0.06}, {"debug_print_ratio": 0.51}),
    "memory-bound": (
        {"mxu_utilization_ratio": 0.4, "hbm_bandwidth_utilization_ratio": 0.69},
        {"mxu_utilization_ratio": 0.4, "hbm_bandwidth_utilization_ratio": 0.71},
        None,
    ),
    "compute-bound": (
        {"mxu_utilization_ratio": 0.69, "hbm_bandwidth_utilization_ratio": 0.4},
        {"mxu_utilization_ratio": 0.71, "hbm_bandwidth_utilization_ratio": 0.4},
        None,
    ),
    "low-mxu": (
        {"mxu_utilization_ratio": 0.21, "hbm_bandwidth_utilization_ratio": 0.4, **kinds()},
        {"mxu_utilization_ratio": 0.19, "hbm_bandwidth_utilization_ratio": 0.4, **kinds()},
        None,
    ),
    "truncated": ({}, {"truncated": "events of TPU:0 are missing"}, None),
}


@pytest.mark.parametrize("finding", LIMITS)
def test_at_its_limit_three_samples_make_a_finding_and_two_end_it(finding):
    below, above, bad = LIMITS[finding]
    assert Job().round(5, **below) == {}
    job = Job()
    assert job.round(2, **above) == {}
    found = job.round(1, **above)
    assert set(found) == {finding}
    assert found[finding].severity == "info"
    assert found[finding].remedy
    assert set(job.round(3, **below)) <= {finding}  # just below it, it stays
    if finding != "truncated":
        assert set(job.round(1)) == {finding}, "one sample that cannot be judged changes nothing"
    else:
        assert job.round(1) == {}
    if bad is not None:
        assert Job().round(3, **bad)[finding].severity == "warning"


def hbm(ratio):
    return {"devices": ({"device": "0", "hbm_used_bytes": int(1000 * ratio), "hbm_total_bytes": 1000},)}


def infeed(ratio):
    return {"infeed_ratio": Spread(avg=ratio, min=ratio, max=ratio), "idle_ratio": 0.05}


def own_work(ratio):
    return {"step_work_s": 0.05 * ratio, "idle_ratio": 0.5 - 0.05 * ratio}


WHILE_ANOTHER_WAITS = {"step_work_s": 0.05, "idle_ratio": 0.4}
PASSED = [
    ("hbm-nearly-full", "hbm_used_ratio", hbm(0.95), "warning", 0.90),
    ("hbm-nearly-full", "hbm_used_ratio", hbm(0.98), "critical", 0.97),
    ("input-bound", "infeed_ratio", infeed(0.1), "warning", 0.05),
    ("input-bound", "infeed_ratio", infeed(0.3), "critical", 0.20),
    ("straggler", "own_work_ratio", own_work(1.2), "warning", 1.03),
    ("straggler", "own_work_ratio", own_work(1.3), "critical", 1.25),
    ("outfeed-bound", "op_time_ratios.outfeed", kinds(outfeed=0.1), "info", 0.05),
    ("outfeed-bound", "op_time_ratios.outfeed", kinds(outfeed=0.3), "warning", 0.20),
]


@pytest.mark.parametrize(("finding", "figure", "figures", "severity", "limit"), PASSED)
def test_the_limit_in_the_evidence_is_that_of_the_severity(finding, figure, figures, severity, limit):
    job = Job("a", "b")
    others = WHILE_ANOTHER_WAITS if finding == "straggler" else {}
    found = job.round(4, others=others, **figures)[finding]
    assert (found.severity, found.evidence[figure].threshold) == (severity, pytest.approx(limit))


def test_where_steps_vary_by_nature_no_slow_down_is_judged():
    """A job whose lengths are between 1 and 3 is not called well: by how much they vary is the reason."""
    job, chance = Job(), random.Random(1)
    for _ in range(40):
        step_s = chance.uniform(0.1, 0.3)
        assert "slow-down" not in job.round(step_time_s=StepTimes(avg=step_s, min=step_s, max=step_s))
    assert re.match(r"its steps vary too much by themselves: none but \d+% longer", job.reasons()["slow-down"])


@pytest.mark.parametrize(("wave_s", "spread", "judged"), [(0, 0.01, True), (0, 0.05, False), (1200, 0.005, False)])
def test_where_6_percent_more_would_not_be_found_no_slow_down_is_judged(wave_s, spread, judged):
    """With noise from sample to sample, or steps that wander: absent is said of what would be found only."""
    job, chance = Job(), random.Random(1)
    for number in range(60):
        wave = 0.03 * math.sin(2 * math.pi * 10 * number / wave_s) if wave_s else 0.0
        step_s = 0.1 * (1 + wave + chance.gauss(0, spread))
        job.round(step_time_s=StepTimes(avg=step_s, min=step_s, max=step_s))
    why = job.reasons().get("slow-down", "")
    assert not why if judged else re.match(r"its steps vary too much .* none but ([7-9]|[1-4]\d)% longer", why)


def test_windows_that_mix_programs_of_one_function_are_not_compared():
    job = Job()
    longer = StepTimes(avg=0.15, min=0.15, max=0.15)

    def ran(*programs, share=0.9):
        train = FunctionFigures(name="jit_train", runs=2, device_time_ratio=1 - share)
        other = FunctionFigures(name="jit_step", runs=2, device_time_ratio=share, programs=len(programs))
        return {"programs": programs, "functions": (train, other)}

    job.round(1, **ran("1", "2"))
    assert job.reasons()["slow-down"].startswith("each trace shows steps of several programs")
    job.round(20, **ran("1"))
    assert "slow-down" not in job.round(20, step_time_s=longer, **ran("1", "2"))
    assert job.reasons()["slow-down"].startswith("each trace shows steps of several programs"), "no longer judged"
    assert "slow-down" in job.round(4, step_time_s=longer, **ran("1", "2", share=0.05))


def test_programs_that_are_always_other_ones_are_no_all_clear_of_recompiling():
    """Pauses between them may have fallen between samples; where one comes back, they were compiled ahead."""

    def ran(number):
        return {"programs": (str(number),), "functions": (FunctionFigures(name="jit_step", runs=2),)}

    job = Job()
    for number in range(20):
        job.round(1, **ran(number))
    assert job.reasons()["recompiling"].startswith("it takes 25 samples where nearly each shows another program")
    job.round(1, **ran(0))
    assert "recompiling" not in job.reasons()


def test_the_limit_of_a_slow_down_and_of_a_hang_is_that_of_the_severity():
    job = Job()
    job.round(20)
    slower = StepTimes(avg=0.2, min=0.2, max=0.2)
    found = job.round(4, step_time_s=slower)["slow-down"]
    assert (found.severity, found.evidence["step_time_s"].threshold) == ("critical", pytest.approx(0.15))

    limits = {}
    for _ in range(70):
        paused(job)
        for one in job.fleet.status(job.now + 1).findings:
            if one.finding == "hang":
                limits[one.severity] = one.evidence["no_activity_s"].threshold
    assert limits == {"info": None, "critical": 600.0}


def test_a_finding_that_came_back_stays_for_one_sample_below():
    """As the first time."""
    job, (_, above, _) = Job(), LIMITS["debug-print"]
    none = {"debug_print_ratio": 0.0}
    assert job.round(3, **above)
    assert not job.round(2, **none)
    assert job.round(3, **above)
    assert job.round(1, **none)
    assert not job.round(1, **none)


def test_workers_that_are_told_anew_keep_their_findings():
    job, (_, above, _) = Job("a", "b"), LIMITS["barrier-wait"]
    assert job.round(4, **above)
    job.fleet.add(Workers(targets=tuple(Target(worker=w, address=f"{w}:1", slice="s") for w in ("b", "a", "c"))))
    assert set(job.round(1, **above)["barrier-wait"].workers) == {"a", "b"}
    verdict = job.fleet.status(job.now + 1).workers["a"].verdict
    assert [cause.finding for cause in verdict.causes] == ["barrier-wait"]


def test_a_restart_ends_a_hang_that_hides_other_findings():
    job = Job()
    job.round(4, runtime={"uptime_s": 1000.0})
    silent = {"step_time_s": None, "idle_ratio": 1.0}
    assert set(job.round(4, **silent, runtime={"uptime_s": 1100.0})) == {"hang"}
    slow = {"infeed_ratio": Spread(avg=0.3, min=0.3, max=0.3)}
    assert set(job.round(3, **slow, runtime={"uptime_s": 5.0})) == {"input-bound"}


@pytest.mark.parametrize("finding", sorted(LIMITS.keys() - {"truncated"}))
def test_without_its_figures_it_is_not_judged(finding):
    """Silence is no all-clear."""
    job = Job()
    assert job.round(4) == {}
    assert job.reasons()[finding]


def test_figures_of_the_monitor_say_nothing_of_ops_or_traces():
    job = Job()
    job.round(3, source="monitor")
    assert {"truncated", "async-wait", "recompiling"} <= set(job.reasons())


def test_each_kind_of_op_that_is_no_computing_has_its_finding():
    """Infeed is input-bound, and collectives exclude the straggler."""
    fields = [rule.field.split(".") for rule in RULES if issubclass(rule, ShareRule)]
    judged = {kind for name, *kinds in fields if name == "op_time_ratios" for kind in kinds}
    assert judged == set(OP_KINDS) - {"compute", "infeed", "collective"}


@pytest.mark.parametrize(
    ("finding", "figures", "others"),
    [
        ("collective-bound", kinds(collective=0.1), kinds(collective=0.5)),
        ("barrier-wait", {"barrier_ratio": 0.02}, {"barrier_ratio": 0.3}),
    ],
)
def test_who_waits_for_a_straggler_is_not_slowed_by_communication(finding, figures, others):
    """All but the first worker wait for it."""
    assert finding not in Job("a", "b", "c", "d").round(4, others, **figures)
    assert set(Job("a", "b", "c", "d").round(4, **others)[finding].workers) == {"a", "b", "c", "d"}


def test_what_another_worker_explains_is_no_longer_a_cause_at_once():
    """The slice's input explains why `b` is idle, before `b` is asked again."""
    idle = {"idle_ratio": 0.4, "op_time_ratios": dict.fromkeys(OP_KINDS, 0.0) | {"compute": 0.6}}
    job = Job("a", "b")
    assert set(job.round(4, **idle)) == {"idle"}

    def causes(worker):
        return {cause.finding for cause in job.fleet.status(job.now + 1).workers[worker].verdict.causes}

    assert causes("b") == {"idle"}
    for _ in range(3):
        job.fleet.add(sample("a", time_unix_s=job.now + 1, step_time_s=STEP, **idle, input_wait_ratio=0.3))
    assert causes("a") == {"input-bound"}
    assert causes("b") == set()
    assert job.fleet.status(job.now + 1).workers["b"].verdict.severity == "ok"


IDLE = {"idle_ratio": 0.4, "op_time_ratios": dict.fromkeys(OP_KINDS, 0.0) | {"compute": 0.6}}


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        (
            {"idle_between_programs_ratio": 0.35},
            "the TPU is idle 40% of the time, 35% between its programs: it waits for",
        ),
        (
            {"idle_between_programs_ratio": 0.01},
            "idle 40% of the time, 1% between its programs: for the rest programs run",
        ),
        ({}, "the TPU is idle 40% of the time: it waits for its host"),
        ({"warnings": (FigureWarning("gpu", "a GPU"),)}, "the GPU is idle 40% of the time: it waits for its host"),
    ],
)
def test_idle_is_between_programs_only_where_it_is(figures, sentence):
    found = Job().round(3, **IDLE, **figures)
    assert set(found) == {"idle"}
    assert sentence in found["idle"].sentence


def test_the_host_is_not_blamed_for_gaps_within_programs():
    """Although it is known that they are not for input."""
    known = {"input_wait_ratio": 0.0, "compile_ratio": 0.0}
    assert set(Job().round(3, **IDLE, **known, idle_between_programs_ratio=0.35)) == {"host-bound"}
    assert set(Job().round(3, **IDLE, **known, idle_between_programs_ratio=0.02)) == {"idle"}


def test_while_too_few_samples_tell_who_waits_for_whom_the_host_is_only_suspected():
    """Then all workers have the finding at once, as severe as each other; a restart changes nothing of that."""
    host_bound = IDLE | {"input_wait_ratio": 0.0, "compile_ratio": 0.0, "idle_between_programs_ratio": 0.35}
    job = Job("a", "b", "c", "d")
    assert not job.round(3, **host_bound)
    assert job.reasons()["host-bound"] == "tpumon has too few samples to tell who waits for whom"
    assert set(job.round(1, **host_bound)["host-bound"].workers) == set("abcd")
    assert severities_of(job) == {"warning"}
    job.round(1, runtime={"uptime_s": 1000.0}, **host_bound)
    job.round(1, runtime={"uptime_s": 5.0}, others={"runtime": {"uptime_s": 1005.0}}, **host_bound)
    job.round(1, **host_bound)
    assert severities_of(job) == {"warning"}


def severities_of(job):
    workers = job.fleet.status(job.now + 3).workers.values()
    return {cause.severity for each in workers for cause in each.verdict.causes if cause.finding == "host-bound"}


def test_idle_time_that_is_neither_mostly_between_programs_nor_mostly_within_is_found():
    """Each part alone is below the limit."""
    known = {"input_wait_ratio": 0.0, "compile_ratio": 0.0}
    found = Job().round(3, **IDLE | {"idle_ratio": 0.26}, **known, idle_between_programs_ratio=0.16)
    assert set(found) == {"idle"}
    assert (
        "16% between its programs: there it waits for its host, and for the rest programs run" in found["idle"].sentence
    )


def test_a_slow_core_is_not_excluded_where_single_cores_are_not_seen():
    """By Monitor; a trace shows them, so that `straggler` finds one."""
    known = {"input_wait_ratio": 0.0, "compile_ratio": 0.0}
    of_monitor = Job().round(3, **IDLE, **known)["host-bound"]
    assert "or one core is slow, which figures of whole workers do not show" in of_monitor.sentence
    of_trace = Job().round(3, **IDLE, **known, idle_between_programs_ratio=0.35)["host-bound"]
    cores = (CoreFigures(chip=0, core=0, idle_ratio=0.4),)
    of_short_trace = Job().round(3, **IDLE, **known, per_core=cores)["host-bound"]
    assert "one core" not in of_trace.sentence + of_short_trace.sentence
    assert (of_monitor.confidence, of_trace.confidence) == ("medium", "high")


def test_idle_time_that_a_finding_explains_is_not_said_to_be_unexplained():
    """One sample showed the input; those after it, which trace less of the host, do not."""
    job = Job()
    job.round(1, **IDLE, input_wait_ratio=0.4)
    assert "input-bound" in job.round(4, **IDLE)
    assert job.reasons()["host-bound"] == "explained by input-bound"
    unseen = Job()
    unseen.round(4, **IDLE)
    assert "idle may be waiting for input" in unseen.reasons()["host-bound"]


@pytest.mark.parametrize("finding", ["host-bound", "idle"])
@pytest.mark.parametrize(
    ("differs", "is_named"),
    [
        ({"idle_ratio": 0.385}, True),
        ({"idle_ratio": 0.398}, False),  # by no more than chance
        ({"idle_ratio": 0.385, "step_time_s": StepTimes(avg=0.2, min=0.2, max=0.2)}, False),  # another job
        ({"idle_ratio": 0.385, "per_core": (CoreFigures(chip=0, core=0, idle_ratio=0.3),)}, False),  # straggler tells
    ],
)
def test_by_figures_of_whole_workers_all_may_wait_for_the_one_that_idles_least(finding, differs, is_named):
    """Which else would be the only one that nothing is said of, or that nothing tells from the others."""
    job = Job("a", "b", "c", "d")
    known = {"input_wait_ratio": 0.0, "compile_ratio": 0.0} if finding == "host-bound" else {}
    others = {"idle_ratio": 0.40}
    found = job.round(4, **{**IDLE, **known, **differs}, others=others | {"step_time_s": STEP, "per_core": ()})[finding]
    assert ("or the others wait for a, which idles least (38.5%)" in found.sentence) == is_named
    assert ("is idle 38.5% to 40.0% of the time" in found.sentence) == is_named
    assert (found.workers[0] == "a") or not is_named
    of_a, of_b = (job.fleet.status(job.now + 1).workers[name].verdict.causes[0].words for name in "ab")
    assert ("may wait for a" in of_b) == is_named
    assert ("idles least (38.5%), others may wait for it" in of_a) == is_named
    assert ("look first at the cores" in found.remedy) == is_named


@pytest.mark.parametrize(("idle", "marked"), [(0.21, {"a", "b", "c", "d"}), (0.195, set())])
@pytest.mark.parametrize("finding", ["host-bound", "idle"])
def test_the_one_that_may_be_waited_for_is_marked_with_those_that_wait_however_little_it_idles(finding, idle, marked):
    """Else the culprit alone would be ok; where nobody idles too much, nobody waits."""
    job = Job("a", "b", "c", "d")
    known = {"input_wait_ratio": 0.0, "compile_ratio": 0.0} if finding == "host-bound" else {}
    found = job.round(4, **{**IDLE, **known, "idle_ratio": idle - 0.012}, others={"idle_ratio": idle})
    assert set(found) == ({finding} if marked else set())
    if marked:
        assert set(found[finding].workers) == marked
        assert found[finding].workers[0] == "a"
        workers = job.fleet.status(job.now + 1).workers
        assert workers["a"].verdict.severity == found[finding].severity == "warning"


@pytest.mark.parametrize("stepless", [1, 2])
def test_a_window_without_a_step_does_not_end_what_is_known_of_input(stepless):
    """Short windows of long steps: some hold none, and so no share of infeed; after two it is no longer known."""
    job, low = Job(), Spread(avg=0.02, min=0.02, max=0.02)
    job.round(1, idle_ratio=0.45, infeed_ratio=low)
    job.round(stepless, idle_ratio=0.45, step_time_s=None)
    found = job.round(1 if stepless > 1 else 2, idle_ratio=0.45, infeed_ratio=low)
    assert set(found) == {"host-bound"}
    assert "and waits for input only 2%" in found["host-bound"].sentence
    assert set(job.round(7, idle_ratio=0.45, step_time_s=None)) == {"idle"}


def test_nobody_is_blamed_before_a_straggler_that_began_between_two_samples_of_its_slice():
    """By Monitor, as measured: c computes longer; a and b are the first whose samples show it, by waiting."""
    job, found = Job("a", "b", "c", "d"), []
    rounds = [{"d": (0.124, 63.8), "c": (0.124, 63.8), "a": (0.123, 63.9), "b": (0.126, 64.0)}] * 12
    rounds.append({"d": (0.138, 64.1), "c": (0.109, 73.1), "a": (0.204, 82.6), "b": (0.216, 85.3)})
    rounds += [{"d": (0.249, 94.3), "c": (0.090, 94.3), "a": (0.250, 94.2), "b": (0.247, 94.4)}] * 4
    for number, one in enumerate(rounds):
        for at, (worker, (idle, step_ms)) in enumerate(one.items()):
            now, step_s = 2.0 * number + 0.2 * at, step_ms / 1e3
            times = StepTimes(avg=step_s, min=step_s, max=step_s)
            figures = {"idle_ratio": idle, "step_time_s": times, "infeed_ratio": Spread(avg=0.02, min=0.02, max=0.02)}
            job.fleet.add(sample(worker, time_unix_s=1000.0 + now, interval_s=2.0, per_core=(), **figures))
            found += [(each.finding, each.workers) for each in job.fleet.status(1000.1 + now).findings]
    assert set(found) == {("straggler", ("c",))}


@pytest.mark.parametrize(("varies", "is_named"), [(0.008, False), (0.001, True)])
def test_who_idles_least_by_chance_is_not_named(varies, is_named):
    """Samples of alike workers differ: the difference counts only if it is several times theirs."""
    job, found = Job("a", "b", "c", "d"), {}
    for number in range(6):
        change = (0.0, varies, -varies)[number % 3]
        waits = {"idle_ratio": 0.471 - change, "infeed_ratio": Spread(avg=0.02, min=0.02, max=0.02)}
        found = job.round(1, **waits | {"idle_ratio": 0.462 + change}, others=waits)
    assert ("others wait for a" in found["host-bound"].sentence) == is_named


@pytest.mark.parametrize("tells", [False, True])
def test_own_work_that_may_hold_collectives_is_called_so(tells):
    """By Monitor: the others wait in them, too, so that the difference is greater than what is seen."""
    work = {"step_work_s": 0.09} if tells else {}
    others = {"idle_ratio": 0.2, **({"step_work_s": 0.08} if tells else {})}
    job = Job("a", "b", "c")
    found = job.round(4, idle_ratio=0.1, **work, others=others)["straggler"]
    (cause,) = job.fleet.status(job.now + 1).workers["a"].verdict.causes
    assert (" or more, others wait for it" in cause.words) == (not tells)
    words = "own work per step (time in collectives counts as work, as no trace tells it) is at least 1"
    assert (words in found.sentence) == (not tells)
    assert ("own work per step is 1" in found.sentence) == tells


def test_what_would_tell_is_named():
    """Host events, and what shows the input of Keras' fit."""
    assert "--host-tracer-level 2" in Job().round(3, **IDLE)["idle"].remedy
    assert "show no input pipeline" in Job().round(3, **IDLE, compile_ratio=0.0)["idle"].remedy


def test_of_one_worker_the_core_counts_that_waits_least():
    def cores(*shares):
        return {"per_core": tuple({"core": i, "collective_ratio": share} for i, share in enumerate(shares))}

    assert Job().round(4, **kinds(collective=0.5), **cores(0.6, 0.6, 0.1)) == {}
    assert set(Job().round(4, **kinds(collective=0.5), **cores(0.6, 0.6, 0.4))) == {"collective-bound"}


def test_matrix_units_are_low_only_on_a_device_that_computes_and_has_bandwidth_left():
    low = {"mxu_utilization_ratio": 0.05, "hbm_bandwidth_utilization_ratio": 0.2}
    assert set(Job().round(3, **low, **kinds())) == {"low-mxu"}
    assert Job().round(3, **low, **kinds(compute=0.4)) == {}
    assert Job().round(3, **(low | {"hbm_bandwidth_utilization_ratio": 0.6}), **kinds()) == {}


def test_padding_is_named_where_it_explains_it():
    low = {"mxu_utilization_ratio": 0.05, "hbm_bandwidth_utilization_ratio": 0.2, **kinds()}
    padded = Job().round(3, **low, matmul_padding_ratio=0.6)["low-mxu"]
    assert "60% of the work of matrix products is padding" in padded.sentence
    assert "padding" not in Job().round(3, **low, matmul_padding_ratio=0.1)["low-mxu"].sentence
    assert Job().round(3, **low, mxu_method="flops")["low-mxu"].confidence == "medium"


def test_callbacks_make_a_host_slow_where_no_idle_time_is_known():
    """Few of them are no all-clear: Python between steps is not seen."""
    job = Job()
    assert job.round(4, callback_ratio=0.1) == {}
    assert job.reasons()["host-bound"] == "idle time is not known, and callbacks take little"
    assert job.round(2, callback_ratio=0.21) == {}
    found = job.round(1, callback_ratio=0.21)["host-bound"]
    assert found.sentence == "On a, compiled programs run Python 21% of the time, in callbacks."
    assert "pure_callback" in found.remedy
    assert set(job.round(2, callback_ratio=0.17)) == {"host-bound"}
    assert job.round(3, callback_ratio=0.0) == {}
    assert "host-bound" not in Job().round(4, callback_ratio=0.9, **kinds())


# Of windows that hold one or two steps, and cut others
LESS = (0.2365, 0.2131, 0.2703, 0.2167, 0.2383, 0.2325, 0.2412, 0.2239, 0.2448)


def test_a_core_that_may_be_slow_is_not_absent_while_few_samples_tell_what_varies():
    job, shown = Job(), []
    for less in LESS:
        cores = tuple({"chip": i, "core": 0, "idle_ratio": 0.3 - less * (i == 2)} for i in range(8))
        found = job.round(1, idle_ratio=0.3, per_core=cores)
        shown.append("found" if "straggler" in found else job.reasons()["straggler"])
    assert all("too few samples" in each for each in shown[2:7])
    assert shown[-1] == "found"
    assert "core 0 of chip 2" in found["straggler"].sentence


def program(number, function="jit_step", **more):
    return {"programs": (str(number),), "functions": (FunctionFigures(name=function, runs=5),), **more}


@pytest.mark.parametrize("every", [1, 4, 12])
def test_compiling_again_and_again_is_found_also_where_few_samples_show_it(every):
    """At intervals of 1 s only one in twelve shows a compilation of 1 s; it is over after twice as long without."""
    job = Job()
    for _ in range(2):
        assert job.round(every - 1, compile_ratio=0.0) == {}
        found = job.round(1, compile_ratio=0.3)
    assert (found["recompiling"].severity, found["recompiling"].evidence["compiling_samples"].value) == ("warning", 2)
    assert set(job.round(max(2 * every, 6) - 1, compile_ratio=0.0)) == {"recompiling"}
    assert job.round(1, compile_ratio=0.0) == {}


def test_compiling_that_was_found_does_not_end_where_samples_show_it_otherwise_or_by_chance_not():
    """Windows of 0.5 s of a JAX job that compiles 0.8 s each 10 steps: few show both, some compiling, some steps."""
    job = Job()
    assert set(job.round(2, compile_ratio=0.3)) == {"recompiling"}
    for _ in range(10):
        assert set(job.round(3, compile_ratio=0.0)) == {"recompiling"}
        assert set(job.round(1, compile_ratio=0.9, step_time_s=None)) == {"recompiling"}
    found = job.round(5, compile_ratio=0.0)["recompiling"]
    assert found.since_unix_s == 1010
    assert job.round(2, compile_ratio=0.0) == {}


def test_what_compiles_in_most_of_its_first_samples_is_not_judged_before_it_is_found():
    """A job that begins looks the same, until two samples show steps alone; later pauses are judged by themselves."""
    why = "compiling in {} of {} samples: the job begins, or it compiles again and again"
    job = Job()
    job.round(1, compile_ratio=0.9, step_time_s=None)
    for number in range(2, 10):
        assert job.round(1, compile_ratio=0.9, step_time_s=None) == {}
        assert job.reasons()["recompiling"] == why.format(number, number)
    job.round(1, compile_ratio=0.0)
    assert job.reasons()["recompiling"] == why.format(9, 10)
    job.round(1, compile_ratio=0.0)
    assert "recompiling" not in job.reasons()
    for _ in range(6):
        assert job.round(1, compile_ratio=0.9, step_time_s=None) == {}
        assert "recompiling" not in job.reasons()


@pytest.mark.parametrize("step_s", [None, STEP])
def test_one_sample_that_compiles_speaks_for_nothing(step_s):
    """So does a profile, which is one; and where steps alone are seen more often."""
    job = Job()
    job.round(1, compile_ratio=0.9, step_time_s=step_s)
    assert not any(one.is_suspected for one in job.fleet.status(job.now).not_judged())
    rare = Job()
    for ratio in (0.0, 0.9, 0.0, 0.0):
        rare.round(1, compile_ratio=ratio, step_time_s=None if ratio else STEP)
        assert not any(one.is_suspected for one in rare.fleet.status(rare.now).not_judged())


def test_a_notebook_that_compiles_is_no_suspect():
    """What it compiles again and again is only info."""
    job = Job(job_kind="interactive")
    job.round(3, compile_ratio=0.9, step_time_s=None)
    assert not any(one.is_suspected for one in job.fleet.status(job.now).not_judged())


def test_since_when_it_compiles_again_and_again_does_not_move():
    """Pauses to compile, seen longer ago, are counted enough when it compiles amid steps no more."""
    job = Job()
    for _ in range(3):
        job.round(1, compile_ratio=0.9, step_time_s=None)
        job.round(2, compile_ratio=0.0)
    job.round(1, compile_ratio=0.3)
    since = job.round(1, compile_ratio=0.3)["recompiling"].since_unix_s
    for _ in range(9):
        job.round(1, compile_ratio=0.9, step_time_s=None)
        assert job.round(2, compile_ratio=0.0)["recompiling"].since_unix_s == since


@pytest.mark.parametrize(("ran", "earlier"), [(0, True), (1, False)])
def test_compiling_again_and_again_began_with_the_first_sample_that_shows_it(ran, earlier):
    """Or earlier, unless the job was seen to run without."""
    job = Job()
    job.round(1, compile_ratio=0.0, step_time_s=None)
    job.round(ran, compile_ratio=0.0)
    began = job.now + 10
    job.round(1, compile_ratio=0.3)
    job.round(2, compile_ratio=0.0)
    found = job.round(1, compile_ratio=0.3)["recompiling"]
    assert (found.since_unix_s, found.since_or_earlier) == (began, earlier)
    found = job.round(9, compile_ratio=0.3)["recompiling"]
    assert (found.since_unix_s, found.since_or_earlier) == (began, earlier)


@pytest.mark.parametrize(("ran", "amid_steps"), [(0, True), (1, True), (1, False)])
def test_compiling_again_and_again_goes_on_when_tpumon_is_restarted(ran, amid_steps):
    """What was found is over after so many samples without, as if tpumon had run on."""
    job = Job()
    job.round(ran, compile_ratio=0.0)
    for _ in range(4):
        job.round(1, compile_ratio=0.3, step_time_s=STEP if amid_steps else None)
        before = job.round(1, compile_ratio=0.0).get("recompiling")
    kept, job.fleet = job.fleet.kept(job.now), Analysis()
    job.fleet.resume(kept, job.now)
    job.fleet.add(Workers(targets=(Target(worker="a", address="a:1", slice="s", job_kind="training"),)))
    assert set(job.round(4, compile_ratio=0.0)) == {"recompiling"}
    for count in (5, 1):
        after = job.round(1, compile_ratio=0.3)["recompiling"]
        assert (after.since_unix_s, after.since_or_earlier) == (before.since_unix_s, before.since_or_earlier)
        assert set(job.round(count, compile_ratio=0.0)) == {"recompiling"}
    job.round(24, compile_ratio=0.0)
    assert job.round(1, compile_ratio=0.3) == {}


def test_what_compiles_is_not_judged_where_nothing_tells():
    job = Job()
    job.round(3)
    assert job.reasons()["recompiling"].startswith("nothing tells what is compiled")
    job.round(1, compile_ratio=0.0)
    assert job.reasons()["recompiling"] == "it takes 2 samples"
    job.round(1, compile_ratio=0.0)
    assert "recompiling" not in job.reasons()


@pytest.mark.parametrize("pauses", [0, 3])
def test_what_compiles_is_not_judged_before_programs_could_show_it(pauses):
    """Three programs made anew, each after a pause; a job that never pauses shows none, either."""
    job = Job()
    for _ in range(pauses):
        paused(job)
    for _ in range(6 - pauses):
        job.round(1, **program(1))
        assert job.reasons()["recompiling"] == "it takes 7 samples"
    job.round(1, **program(1))
    assert "recompiling" not in job.reasons()


def paused(job, rounds=1, **figures):
    """Rounds in which nothing runs."""
    return job.round(rounds, step_time_s=None, idle_ratio=1.0, functions=(), mxu_utilization_ratio=0.0, **figures)


@pytest.mark.parametrize("every", [1, 4, 12])
def test_a_job_that_pauses_and_goes_on_with_another_program_compiles(every):
    """As on TPUs, whose traces have no events of the host; it is over when the program stays the same."""
    job = Job()
    for number in range(4):
        paused(job)
        found = job.round(every, **program(number))
        assert ("recompiling" in found) == (number == 3)
    assert found["recompiling"].evidence["new_programs"].value == 3
    assert (
        "after a pause jit_step runs as a program that never ran before, 3 times lately"
        in found["recompiling"].sentence
    )
    for _ in range(3):
        paused(job)
        assert "recompiling" not in job.round(max(2 * every + 2, 8), **program(3))


def test_what_its_programs_show_stays_where_the_host_compiles_between_steps():
    """As with host events from some moment on: what these show by themselves is too little yet."""
    job = Job()
    for number in range(4):
        paused(job)
        job.round(1, **program(number))
    for _ in range(4):
        assert "recompiling" in job.round(1, **program(3), step_time_s=None, compile_ratio=0.9)


def test_two_programs_made_soon_after_another_are_remembered_until_the_third():
    """It may come 24 samples later."""
    job = Job()
    for number, rounds in enumerate((1, 1, 20, 1)):
        paused(job)
        found = job.round(rounds, **program(number))
    assert found["recompiling"].evidence["new_programs"].value == 3


def test_pauses_alone_and_other_functions_are_no_compiling():
    """Checkpoints between batches of a few sizes, evaluation; the host tells that it does not compile."""
    job = Job()
    for number in (1, 2, 1, 2, 2, 1, 2, 1):
        paused(job)
        assert "recompiling" not in job.round(2, **program(number))
    for number, name in enumerate(("jit_a", "jit_b", "jit_c", "jit_d"), 10):
        paused(job)
        assert "recompiling" not in job.round(2, **program(number, name))
    told = Job()
    for number in range(6):
        paused(told, compile_ratio=0.0)
        assert "recompiling" not in told.round(2, **program(number), compile_ratio=0.0)


@pytest.mark.parametrize("seed", range(8))
def test_many_sizes_and_checkpoints_are_no_compiling(seed):
    """A batch of any of 64 sizes in each sample, all compiled ahead, and a checkpoint after every fourth sample."""
    job, draw = Job(), random.Random(seed)
    for _ in range(40):
        assert "recompiling" not in job.round(1, **program(draw.randrange(64)))
        for _ in range(3):
            assert "recompiling" not in job.round(1, **program(draw.randrange(64)))
        paused(job)


def test_programs_none_of_which_comes_back_are_compiled_also_where_few_pauses_are_seen():
    """As with samples that are further apart than the compilations; a program that comes back was kept."""
    job, kept = Job(), Job()
    for number in range(32):
        if number % 4 == 0:
            paused(job)
            paused(kept)
        found = job.round(1, **program(number))
        assert ("recompiling" in found) == (number >= 24)
        assert "recompiling" not in kept.round(1, **program(0 if number == 20 else number))


def test_a_function_that_became_another_program_some_time_ago_is_judged():
    job = Job()
    for number in range(3):
        job.round(1, **program(number))
    assert "another program" in job.reasons()["recompiling"]
    job.round(30, **program(2))
    assert "recompiling" not in job.reasons()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sizes", [4, 16])
def test_sizes_that_were_compiled_ahead_are_no_compiling(sizes, seed):
    """Batches sorted by length, and checkpoints between them."""
    job, draw = Job(), random.Random(seed)
    for number in range(80):
        assert "recompiling" not in job.round(1, **program(draw.randrange(sizes)))
        if number % 4 == 3:
            paused(job)
    assert "recompiling" not in job.reasons()


@pytest.mark.parametrize("compile_ratio", [None, 0.0])
def test_programs_that_are_only_new_to_tpumon_were_not_compiled_anew(compile_ratio):
    """Training and evaluation in turn, batches of twelve sizes compiled ahead."""
    job = Job()
    for number in (1, 1, 2, 1, 2, *range(3, 15), 1, 2, 3):
        assert job.round(1, **program(number), compile_ratio=compile_ratio) == {}
    job.round(1, **program(7, "jit_eval"), compile_ratio=compile_ratio)
    assert job.round(1, **program(8, "jit_test"), compile_ratio=compile_ratio) == {}


def test_compiling_amid_steps_counts_compiling_at_the_start_does_not():
    job = Job()
    assert job.round(2, compile_ratio=0.0) == {}
    assert job.round(1, compile_ratio=0.3) == {}
    found = job.round(1, compile_ratio=0.3)["recompiling"]
    assert "the host compiles 30% of the time" in found.sentence
    assert Job().round(5, compile_ratio=0.9, step_time_s=None) == {}


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_job_that_stops_to_compile_again_and_again_is_found_where_no_window_has_both(steps):
    """As on a real JAX job with a new shape each second, windows of 0.3 s: each shows one of the two."""
    job = Job()
    for pause in range(4):
        assert "recompiling" not in job.round(steps, compile_ratio=0.0)
        assert "recompiling" not in job.round(1, compile_ratio=0.6 + pause / 10, step_time_s=None)
    found = job.round(1, compile_ratio=0.0)["recompiling"]
    assert (found.severity, found.evidence["compiling_samples"].value) == ("warning", 4)
    assert "in 4 of the pauses" in found.sentence
    assert "compiled 90% of the time" in found.sentence
    assert job.round(2 * (steps + 1) + 2, compile_ratio=0.0) == {}


def test_the_first_compilations_of_a_job_are_not_again_and_again():
    """Its step over many samples, then evaluation and a checkpoint, some time later another program."""
    job = Job()
    for _ in range(3):
        assert job.round(9, compile_ratio=0.9, step_time_s=None) == {}
        assert job.round(5, compile_ratio=0.0) == {}
    assert job.round(60, compile_ratio=0.0) == {}
    assert job.round(2, compile_ratio=0.9, step_time_s=None) == {}
    assert job.round(1, compile_ratio=0.0) == {}


def test_the_page_has_every_finding_and_its_limit():
    """Its address is in each finding."""
    page = (REPOSITORY / "docs" / "findings.md").read_text()
    sections = re.findall(r"^### (.+)$", page, re.MULTILINE)
    assert sorted(sections) == sorted(get_args(FindingId))
    for rule in RULES:
        if issubclass(rule, ShareRule):
            (section,) = re.findall(rf"^### {rule.finding}\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL)
            assert f"above {rule.limit_ratio:.0%}".replace("%", " %") in " ".join(section.split())
            assert f"`warning` above {rule.warns_above:.0%}".replace("%", " %") in " ".join(section.split())


def test_the_page_has_every_finding_that_takes_other_samples_than_usual():
    page = (REPOSITORY / "docs" / "findings.md").read_text()
    one_sample, own = re.search(r"Exceptions:\n\n- (.*?)\n- (.*?)\n- ", page, re.DOTALL).groups()
    exceptional = {rule.finding: rule for rule in RULES if rule.samples is not None}
    (name,) = re.findall(r"`(.+?)`", one_sample)
    assert f"below {exceptional.pop(name).leaves_below:.1%}".replace("%", " %") in one_sample
    assert sorted(re.findall(r"`(.+?)`", own)) == sorted(exceptional)


def test_the_one_sample_that_shows_waiting_for_input_stands_while_the_device_is_as_idle():
    """The host is asked for so many events once: later samples say nothing of input."""
    job = Job()
    assert "input-bound" not in job.round(3, idle_ratio=0.9)
    job.round(idle_ratio=0.9, input_wait_ratio=0.88)
    found = job.round(3, idle_ratio=0.9)
    assert found["input-bound"].severity == "critical"
    assert "88% of the time, as the one sample" in found["input-bound"].sentence
    assert "idle" not in found
    assert "input-bound" not in job.round(4, idle_ratio=0.02)
    assert "input-bound" not in job.round(4, idle_ratio=0.9), "it may be idle for another reason now"


@pytest.mark.parametrize(
    ("then", "later", "stands"),
    [
        pytest.param({"idle_ratio": 0.95}, {"idle_ratio": 0.9}, True, id="as idle"),
        pytest.param({"idle_ratio": 0.95}, {"idle_ratio": 0.3}, False, id="less idle: the input is faster now"),
        pytest.param({"idle_ratio": None}, {"idle_ratio": None}, True, id="no device, steps as long"),
        pytest.param(
            {"idle_ratio": None},
            {"idle_ratio": None, "step_time_s": StepTimes(avg=0.02, min=0.02, max=0.02)},
            False,
            id="no device, shorter steps",
        ),
    ],
)
def test_the_one_sample_that_shows_waiting_for_input_stands_while_later_ones_look_like_it(then, later, stands):
    job, step = Job(), {"step_time_s": StepTimes(avg=0.1, min=0.1, max=0.1)}
    job.round(1, **step, **then, input_wait_ratio=0.9)
    job.round(1, **step, **then)
    job.round(1, **step | later)
    assert "input-bound" in job.round(2, **step, **then), "a single sample that is unlike ends nothing"
    assert ("input-bound" in job.round(4, **step | later)) == stands

"""What is remembered of a worker, and what state that makes it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from support.samples import failed_sample, sample
from tpumon.analysis.history import FIRST_STEP_BUCKET, STEP_BUCKETS_S, STEP_SCHEMA, Histories, WorkerHistory
from tpumon.model import Failure, Process, Target, Workers
from tpumon.outputs.metrics import SAMPLE_METRICS, TARGET_METRICS

NOW = 1_000_000.0


def answered(**fields):
    """A sample of a worker asked every 10 s with windows of 1 s."""
    return sample(**({"worker": "w", "time_unix_s": NOW} | fields))


def failed(reason, **fields):
    """A query that the profiler did not answer."""
    return failed_sample("w", reason, **({"time_unix_s": NOW} | fields))


def history_of(*samples):
    history = WorkerHistory(Target(worker="w", address="w:1"))
    for each in samples:
        history = history.with_sample(each)
    return history


def exposed(name, history, now=NOW):
    """The values of a metric about watching the worker, by label values."""
    (metric,) = (metric for metric in TARGET_METRICS if metric.name == name)
    return dict(metric.values(history, now))


@pytest.mark.parametrize(
    ("samples", "state", "up"),
    [
        ([], "waiting", None),
        ([answered()], "live", True),
        ([answered(), failed("unavailable")], "down", False),
        ([failed("deadline")], "down", False),
        ([failed("not-a-profiler")], "down", False),
        ([answered(), failed("busy")], "busy", True),
        ([answered(), failed("paused")], "paused", None),
        ([failed("empty-trace")], "no-activity", True),
        ([failed("unavailable", source="runtime")], "live", True),
        ([failed("busy", source="runtime")], "busy", True),
        ([failed("unavailable"), answered()], "live", True),
    ],
)
def test_state_and_up(samples, state, up):
    """State says what to show; up says whether it answers, if only with a reason or runtime metrics."""
    history = history_of(*samples)
    assert history.state(NOW) == state
    assert history.is_up(NOW) is up
    assert exposed("tpumon_target_up", history) == ({} if up is None else {(): float(up)})


def test_a_history_never_changes():
    """Whoever holds one keeps what it said: a sample makes another one."""
    before = history_of(answered(step_durations_s=(0.1,)), failed("busy"))
    after = before.with_sample(answered(truncated="some", step_durations_s=(0.1,)))
    assert (before.samples, before.queries, before.last_state, sum(before.steps.counts)) == (1, 2, "busy", 1)
    assert (after.samples, after.queries, after.last_state, sum(after.steps.counts)) == (2, 3, "live", 2)
    assert (after.with_sample(failed("busy")).errors, after.errors, before.errors) == ({"busy": 2}, *[{"busy": 1}] * 2)


def test_an_old_sample_is_stale_and_no_longer_the_present_one():
    """After 2.5 intervals and a window there is nothing to show, and the worker counts as not answering."""
    history = history_of(answered())
    assert history.current(NOW + 26.0) is history.last
    assert history.current(NOW + 26.1) is None
    assert history.state(NOW + 26.1) == "stale"
    assert history.is_up(NOW + 26.1) is False
    assert history.answer is not None, "what it last said stays known"


def test_runtime_metrics_alone_are_shown_but_are_no_answer_of_the_profiler():
    """HBM is present while the profiler does not answer; the failure counts."""
    history = history_of(answered(), failed("unavailable", source="runtime", time_unix_s=NOW + 10, hbm_used_bytes=5))
    assert history.current(NOW + 10).figures.hbm_used_bytes == 5
    assert (history.samples, dict(history.errors)) == (1, {"unavailable": 1})
    assert exposed("tpumon_target_last_success_timestamp_seconds", history) == {(): NOW + 1.2}


@pytest.mark.parametrize(
    ("samples", "active"),
    [
        ([], {}),
        ([answered()], {(): 1.0}),
        ([answered(), failed("empty-trace")], {(): 0.0}),
        ([failed("empty-trace", detail="not-seen")], {}),
        ([answered(idle_ratio=1.0)], {(): 0.0}),
        ([answered(), failed("busy")], {}),
        ([answered(), failed("unavailable")], {}),
    ],
)
def test_a_worker_on_which_nothing_runs_is_up_and_not_active(samples, active):
    """Absent where that is not known."""
    history = history_of(*samples)
    assert exposed("tpumon_target_active", history) == active
    assert exposed("tpumon_target_active", history, NOW + 100) == {}, "stale"


def test_an_answer_without_activity_is_current_and_has_no_series():
    """It did not fail; but there is nothing to tell of the device."""
    history = history_of(answered(), failed("empty-trace", time_unix_s=NOW + 10))
    assert history.current(NOW + 11) is history.last
    assert not [series for metric in SAMPLE_METRICS for series in metric.values(history.last)]


def test_an_exporter_that_is_gone_counts_for_nothing():
    """Whether its workers are up is not known, and none of them failed a query."""
    away = answered(source=None, errors=(Failure(source="exporter", reason="unavailable", message="gone"),))
    history = history_of(answered(), away)
    assert (history.state(NOW), history.is_up(NOW), dict(history.errors), history.samples) == ("stale", None, {}, 1)


def test_counts_are_of_all_queries():
    """Answers, failures by reason and traced time are counted from the first query on."""
    history = history_of(answered(traced_s=0.5), failed("busy"), failed("busy"), answered(traced_s=0.25))
    assert exposed("tpumon_samples_total", history) == {(): 2.0}
    usual = dict.fromkeys(("unavailable", "deadline", "busy", "malformed", "too-large", "internal"), 0.0)
    errors = {reason: count for (reason,), count in exposed("tpumon_sample_errors_total", history).items()}
    assert errors == usual | {"busy": 2.0}
    assert exposed("tpumon_traced_seconds_total", history) == {(): 0.75}
    assert history.traced_ratio(NOW) == pytest.approx(0.75 / 600)


def test_the_traced_share_is_of_the_last_ten_minutes():
    """Whenever it began; what was traced before counts no longer, minute by minute."""
    samples = [answered(time_unix_s=NOW + second, traced_s=0.1) for second in range(0, 3600, 10)]
    history = history_of(*samples)
    assert history.traced_s == pytest.approx(36)
    for later_s, ratio in ((0, 0.01), (300, 0.005), (599, 0.0), (3600, 0.0)):
        assert history.traced_ratio(NOW + 3600 + later_s) == pytest.approx(ratio, abs=0.001), later_s
    assert history_of(*samples[:3]).traced_ratio(NOW + 30) == pytest.approx(0.3 / 600)
    assert history_of(answered()).traced_ratio(NOW) is None


def test_truncated_samples_are_counted():
    history = history_of(answered(), answered(truncated="TPU:0 has 3 runs without any op"), answered())
    assert exposed("tpumon_truncated_samples_total", history) == {(): 1.0}
    assert exposed("tpumon_samples_total", history) == {(): 3.0}


def test_steps_of_traces_are_counted_in_buckets():
    """A step on a bound is in that bucket, as `le` says; one beyond the last is only in +Inf."""
    history = history_of(answered(step_durations_s=(0.0009766, 0.001, 200.0)), answered(step_durations_s=(0.05,)))
    counts = dict(zip([*STEP_BUCKETS_S, "+Inf"], history.steps.counts, strict=True))
    assert {bound: count for bound, count in counts.items() if count} == {
        0.0009766: 1,
        0.001161: 1,
        0.05256: 1,
        "+Inf": 1,
    }
    assert history.steps.total == pytest.approx(200.0519766)


def test_buckets_of_steps_are_close():
    """15 to 20 % apart, from 1 ms to 100 s, and those of a native histogram, to four digits."""
    ratios = [high / low for low, high in pairwise(STEP_BUCKETS_S)]
    assert (STEP_BUCKETS_S[0], STEP_BUCKETS_S[-1]) == (0.0009766, 107.6)
    assert 1.15 < min(ratios) < max(ratios) < 1.2
    exact = [2 ** (place / 2**STEP_SCHEMA) for place in range(FIRST_STEP_BUCKET, FIRST_STEP_BUCKET + len(ratios) + 1)]
    assert pytest.approx(exact, rel=5e-4) == STEP_BUCKETS_S


def test_a_jobs_counts_begin_when_its_runtime_started():
    """To the second the same for all samples of a job, although uptimes are rounded; of the next job, its own start."""

    def at(seconds, **runtime):
        return answered(time_unix_s=NOW + seconds, runtime=runtime)

    job = at(0), at(60, uptime_s=100.0), at(120, uptime_s=161.0)
    assert history_of(*job[:1]).job_began_unix_s is None
    assert history_of(*job[:2]).job_began_unix_s == NOW - 40
    assert history_of(*job).job_began_unix_s == NOW - 40
    assert history_of(*job, at(180, uptime_s=5.0), at(240, uptime_s=66.0)).job_began_unix_s == NOW + 175


def test_workers_that_stay_keep_their_history():
    """A new set of workers drops those that are gone, and what is still said of them."""
    histories = Histories()
    w, v = Target(worker="w", address="w:1"), Target(worker="v", address="v:1")
    histories.follow(Workers(targets=(w, v)))
    histories.add(answered())
    histories.follow(Workers(targets=(Target(worker="w", address="w:2"),)))
    assert [(h.target.address, h.samples) for h in histories.all()] == [("w:2", 1)]
    assert histories.add(answered(worker="v")) is None
    histories.follow(Workers(waiting="nobody here"))
    assert (histories.all(), histories.waiting) == ([], "nobody here")


def test_absent_figures_are_no_series():
    """A sample without figures exposes its identity and nothing else; a zero is a value."""
    exposed_by = {m.name: list(m.values(answered())) for m in SAMPLE_METRICS}
    assert {name for name, series in exposed_by.items() if series} == {"tpu_worker_info"}
    (mxu,) = (m for m in SAMPLE_METRICS if m.name == "tpu_mxu_utilization_ratio")
    assert list(mxu.values(answered(mxu_utilization_ratio=0.0))) == [((), 0.0)]


def job(pid=7, started_unix_s=NOW):
    return Process(pid=pid, started_unix_s=started_unix_s)


def runtime(uptime_s):
    return {"uptime_s": uptime_s}


CLOSED = failed("unavailable", detail="connection-refused")


@pytest.mark.parametrize(
    ("samples", "is_restart"),
    [
        ([answered(process=job()), answered(process=job(8))], True),
        ([answered(process=job()), answered(process=job(7, NOW + 5))], True),
        ([answered(process=job()), answered(process=job(7, NOW + 1))], False),  # somebody set the clock
        ([answered(process=job()), answered(), answered(process=job())], False),
        ([answered(process=job()), answered(), answered(process=job(8))], True),
        ([answered(process=job()), failed("empty-trace", process=job(8))], True),
        # One that ended is not replaced by a query that nobody answered.
        ([answered(process=job()), failed("unavailable", process=job(8)), answered(process=job(8))], True),
        ([answered(process=job(), runtime=runtime(5.0)), answered(process=job(8), runtime=runtime(6.0))], True),
        ([answered(process=job()), CLOSED, answered(process=job())], False),  # its profiler server was stopped
        ([answered(process=job()), CLOSED, answered()], True),
        ([answered(process=job()), CLOSED, answered(), answered(process=job(8))], False),  # told already, by the port
        ([answered(process=job(started_unix_s=None)), answered(process=job())], False),
    ],
)
def test_another_process_is_a_restart(samples, is_restart):
    history = history_of(*samples)

    assert (history.restarted is samples[-1]) == is_restart

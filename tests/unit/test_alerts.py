"""Which alerts fire on which series: as promtool evaluates grafana/prometheus/*.rules.yml."""

from __future__ import annotations

import pytest

from support.alerting import check_alerts

pytestmark = pytest.mark.real

W = 'job="t", instance="e"'


def worker(name, *, up=None, minutes=120, where=W, slice_name="s", more=""):
    """The series of a worker that responds, is not paused, and has figures; `up` says otherwise."""
    labels = f'{where}, worker="{name}"'
    series = {
        f"tpumon_target_up{{{labels}{more}}}": up or f"1x{minutes}",
        f"tpumon_target_paused{{{labels}{more}}}": f"0x{minutes}",
        f"tpumon_target_busy{{{labels}{more}}}": f"0x{minutes}",
        f"tpumon_target_active{{{labels}{more}}}": f"1x{minutes}",
        f"tpumon_target_last_success_timestamp_seconds{{{labels}{more}}}": f"0+60x{minutes}",
    }
    if slice_name is not None:
        series[f'tpu_worker_info{{{labels}{more}, slice="{slice_name}", source="trace"}}'] = f"1x{minutes}"
    return series


def figures(metric, values, *, where=W, more=""):
    """`metric` of several workers, by worker's name."""
    return {f'{metric}{{{where}, worker="{name}"{more}}}': series for name, series in values.items()}


def test_a_worker_that_others_wait_for_pages_when_it_is_down(tmp_path):
    """One of a slice that responded before; it leaves when the worker is back."""
    series = worker("a") | worker("b", up="1x29 0x20 1x80")
    down = ["TpuWorkerDown worker=b slice=s severity=critical"]
    check_alerts(tmp_path, series, {31: [], 37: down, 48: down, 60: []})


def test_a_worker_that_is_mostly_down_pages(tmp_path):
    """Down 3 of 4 minutes: with one answer in between, a `for` of five minutes never passed."""
    series = worker("a") | worker("b", up="1x29 " + "0 0 0 1 " * 20)
    check_alerts(tmp_path, series, {60: ["TpuWorkerDown worker=b severity=critical"]})


def test_a_worker_that_never_answered_does_not_page(tmp_path):
    """A sidecar whose job's image is still being pulled."""
    check_alerts(tmp_path, worker("a") | worker("b", up="0x120", slice_name=None), {15: [], 90: []})


def test_the_end_of_a_job_is_no_page(tmp_path):
    """All workers stop responding, or vanish with their pods: a warning, one per slice, and no page."""
    stopped = worker("a", up="1x29 0x60") | worker("b", up="1x29 0x60")
    gone = ["TpuJobGone job=t slice=s severity=warning"]
    check_alerts(tmp_path, stopped, {31: [], 45: gone})

    vanished = {name: f"{values.split()[0]} stale" if "0+" not in values else "0+60x29 stale"
                for name, values in (worker("a", minutes=29) | worker("b", minutes=29)).items()}  # fmt: skip
    check_alerts(tmp_path, vanished, {31: [], 45: gone, 380: gone, 400: []})


def test_a_worker_that_vanishes_with_its_pod_pages(tmp_path):
    """Its series are gone, and TpuWorkerDown with them."""
    lost = {f"{name}": f"{values} stale" for name, values in worker("b", minutes=29).items()}
    missing = ["TpuWorkersMissing job=t slice=s severity=critical"]
    check_alerts(tmp_path, worker("a") | lost, {32: [], 45: missing, 80: missing, 100: []})


def test_pausing_one_host_is_no_worker_missing(tmp_path):
    """A paused worker has no tpumon_target_up."""
    series = worker("a") | worker("b")
    series[f'tpumon_target_up{{{W}, worker="b"}}'] = "1x29 stale"
    series[f'tpumon_target_paused{{{W}, worker="b"}}'] = "0x29 1x90"
    check_alerts(tmp_path, series, {45: [], 110: []})

    both = worker("a") | worker("b")
    for name in ("a", "b"):
        both[f'tpumon_target_up{{{W}, worker="{name}"}}'] = "1x29 stale"
        both[f'tpumon_target_paused{{{W}, worker="{name}"}}'] = "0x29 1x90"
    check_alerts(tmp_path, both, {45: [], 110: []})


def test_a_pause_or_a_session_that_does_not_end_is_said(tmp_path):
    """After two hours, nobody knows anything about the job."""
    series = worker("busy", minutes=200) | worker("paused", minutes=200)
    series[f'tpumon_target_busy{{{W}, worker="busy"}}'] = "0x20 1x180"
    series[f'tpumon_target_up{{{W}, worker="paused"}}'] = "1x20 stale"
    series[f'tpumon_target_paused{{{W}, worker="paused"}}'] = "0x20 1x180"
    late = ["TpuNotObserved worker=busy severity=warning", "TpuNotObserved worker=paused severity=warning"]
    check_alerts(tmp_path, series, {100: [], 160: late})


def test_equal_names_in_two_namespaces_are_two_jobs(tmp_path):
    """A slow job is no straggler of a fast one, and a worker that is down there is not up here."""
    series = {}
    for namespace, step in (("x", "0.1"), ("y", "0.3")):
        where = f'{W}, namespace="{namespace}", tpu_job="train"'
        for name in ("a", "b", "c"):
            series |= worker(name, where=where, slice_name="")
        series |= figures("tpu_step_time_seconds", dict.fromkeys("abc", f"{step}x120"), where=where)
    check_alerts(tmp_path, series, {60: []})


def test_workers_that_do_not_work_together_are_not_compared(tmp_path):
    """Two jobs of one host, one with long steps; the fast one ends, and nobody's steps have become longer."""
    series = worker("fast", slice_name="", minutes=89) | worker("slow", slice_name="") | worker("slow2", slice_name="")
    series |= {f'tpumon_target_independent{{{W}, worker="{name}"}}': "1x120" for name in ("fast", "slow", "slow2")}
    series |= figures("tpu_step_time_seconds", {"fast": "0.1x89 stale", "slow": "0.3x120", "slow2": "0.31x120"})
    fast = {name for name in series if 'worker="fast"' in name}
    series |= {name: f"{series[name]} stale" for name in fast if "step_time" not in name}
    check_alerts(tmp_path, series, {60: [], 115: ["TpuJobGone slice=e/fast"]})


def test_a_straggler_is_found_through_gaps(tmp_path):
    """Each ninth query failed: with a `for` of ten minutes it was never found. It leaves when it is fast again."""
    series = worker("a") | worker("b") | worker("c")
    gap = "0.3 0.3 0.3 0.3 0.3 0.3 0.3 0.3 stale " * 8
    series |= figures("tpu_step_time_seconds", {"a": "0.1x120", "b": "0.1x120", "c": f"{gap} 0.1x60"})
    slow = ["TpuStraggler worker=c slice=s severity=warning"]
    check_alerts(tmp_path, series, {8: [], 40: slow, 71: slow, 90: []})


def test_a_worker_that_does_not_idle_is_the_straggler(tmp_path):
    """All steps are equally long, because the others wait for it."""
    series = worker("a") | worker("b") | worker("c")
    series |= figures("tpu_idle_ratio", {"a": "0.3x120", "b": "0.3x120", "c": "0.12x120"})
    check_alerts(tmp_path, series, {60: ["TpuStraggler worker=c slice=s"]})


def test_what_is_silent_is_not_slow(tmp_path):
    """A straggler that stops responding is down."""
    series = worker("a") | worker("b") | worker("c", up="1x39 0x80")
    series |= figures("tpu_step_time_seconds", {"a": "0.1x120", "b": "0.1x120", "c": "0.3x39 stale"})
    check_alerts(tmp_path, series, {60: ["TpuWorkerDown worker=c"]})


def test_steps_that_become_longer(tmp_path):
    """The median of the slice; not for a moment, and not in a job that has just begun."""
    series = worker("a", minutes=200) | worker("b", minutes=200)
    series |= figures("tpu_step_time_seconds", dict.fromkeys("ab", "0.1x89 0.2x110"))
    check_alerts(tmp_path, series, {92: [], 110: ["TpuStepTimeUp job=t slice=s severity=warning"]})
    moment = worker("a") | figures("tpu_step_time_seconds", {"a": "0.1x79 0.4x3 0.1x40"})
    check_alerts(tmp_path, moment, {84: [], 95: []})
    young = worker("a") | figures("tpu_step_time_seconds", {"a": "_x60 0.1x9 0.2x50"})
    check_alerts(tmp_path, young, {85: []})


def test_waiting_for_input_is_one_alert_per_slice(tmp_path):
    """However many workers wait, since all of a slice wait together."""
    series = {}
    for name in ("a", "b", "c", "d"):
        series |= worker(name)
    series |= figures("tpu_infeed_ratio", {"a": "0.4x120", "b": "0.38x120", "c": "0.41x120", "d": "0.15x120"})
    check_alerts(tmp_path, series, {8: [], 60: ["TpuInputBound job=t slice=s severity=warning"]})


def test_a_jax_job_that_idles_is_said(tmp_path):
    """80 % idle for half an hour, whatever it waits for; without figures of the profiler, by the duty cycle."""
    series = worker("a") | worker("b")
    series |= figures("tpu_idle_ratio", {"a": "0.85x120", "b": "0.9x120"})
    check_alerts(tmp_path, series, {20: [], 90: ["TpuIdle job=t slice=s severity=warning"]})
    duty = worker("a") | figures("tpu_runtime_duty_cycle_ratio", {"a": "0.01x120"}, more=', device="0"')
    check_alerts(tmp_path, duty, {20: [], 90: ["TpuIdle job=t slice=s"]})
    busy = worker("a") | figures("tpu_idle_ratio", {"a": "0.5x120"})
    check_alerts(tmp_path, busy, {90: []})


def test_a_job_that_hangs_pages_soon(tmp_path):
    """It is alive and runs nothing, on all workers, though it did; one that never ran anything does not page."""
    series = worker("a", minutes=200) | worker("b", minutes=200)
    series |= figures("tpumon_target_active", dict.fromkeys("ab", "1x39 0x160"))
    series |= figures("tpumon_target_last_success_timestamp_seconds", dict.fromkeys("ab", "0+60x39 2340x160"))
    hung = ["TpuHang job=t slice=s severity=critical"]
    check_alerts(tmp_path, series, {45: [], 53: hung, 190: hung})
    never = worker("a") | figures("tpumon_target_active", {"a": "0x120"})
    check_alerts(tmp_path, never, {20: [], 90: ["TpuIdle severity=warning"]})
    one_works = worker("a") | worker("b") | figures("tpumon_target_active", {"a": "1x39 0x80"})
    check_alerts(tmp_path, one_works, {60: []})


def test_full_hbm_pages_only_if_it_grows(tmp_path):
    """Many jobs run at 98 %, flat. One that will be full within the hour will crash."""
    total = figures("tpu_hbm_total_bytes", dict.fromkeys(("flat", "grows", "drops"), "100x120"), more=', device="0"')
    used = figures("tpu_hbm_used_bytes", {"flat": "98x120", "grows": "40+0.5x100", "drops": "90-0.5x100"},
                   more=', device="0"')  # fmt: skip
    series = worker("flat") | worker("grows") | worker("drops") | total | used
    check_alerts(
        tmp_path, series,
        {60: ["TpuHbmNearlyFull worker=flat severity=warning"],
         85: ["TpuHbmNearlyFull worker=flat", "TpuHbmGrowing worker=grows severity=critical"]},
    )  # fmt: skip


def test_one_failed_query_in_nine_minutes_hides_nothing(tmp_path):
    """HBM is full all the time; its series has a gap each nine minutes."""
    gap = "98 98 98 98 98 98 98 98 stale " * 10
    series = worker("w") | figures("tpu_hbm_used_bytes", {"w": gap}, more=', device="0"')
    series |= figures("tpu_hbm_total_bytes", {"w": "100x90"}, more=', device="0"')
    check_alerts(tmp_path, series, {45: ["TpuHbmNearlyFull worker=w"], 50: ["TpuHbmNearlyFull worker=w"]})


def test_labels_that_flip_break_no_rule(tmp_path):
    """Without staleness, the old tpu_worker_info stands beside the new one, with another method or another slice."""
    series = worker("a") | worker("b") | worker("c")
    series[f'tpu_worker_info{{{W}, worker="c", slice="s", source="monitor"}}'] = "_x30 1x90"
    series[f'tpu_worker_info{{{W}, worker="a", slice="old", source="trace"}}'] = "1x40"
    series |= figures("tpu_step_time_seconds", {"a": "0.1x120", "b": "0.1x120", "c": "0.3x120"})
    check_alerts(tmp_path, series, {60: ["TpuStraggler worker=c slice=s"]})


def test_an_exporter_that_cannot_be_scraped_pages(tmp_path):
    """Targets that exported within a day, and scrape jobs with tpumon in their names; no other target."""
    series = {
        'up{job="train", instance="e"}': "1x9 0x40",
        'tpumon_build_info{job="train", instance="e", version="1"}': "1x9 stale",
        'up{job="team/tpumon", instance="never"}': "0x50",
        'up{job="other", instance="e"}': "0x50",
        'up{job="train", instance="gone"}': "1x9 stale",
        'tpumon_build_info{job="train", instance="gone", version="1"}': "1x9 stale",
        'up{job="train", instance="flaps"}': "1x9 0 0 0 1 0 0 0 1 0 0 0 1x30",
        'tpumon_build_info{job="train", instance="flaps", version="1"}': "1x50",
    }
    check_alerts(
        tmp_path, series,
        {30: ["TpumonExporterDown job=train instance=e severity=critical", "TpumonExporterDown instance=never"]},
    )  # fmt: skip


def test_a_worker_that_answers_without_figures_is_said(tmp_path):
    """After ten minutes; not while it is busy, or runs nothing (another alert), or can give runtime metrics only."""
    series = {}
    for name in ("mute", "busy", "inactive", "no-profiler"):
        series |= worker(name, slice_name=None)
        series[f'tpumon_target_last_success_timestamp_seconds{{{W}, worker="{name}"}}'] = "60x120"
    series[f'tpumon_target_busy{{{W}, worker="busy"}}'] = "1x120"
    series[f'tpumon_target_active{{{W}, worker="inactive"}}'] = "0x120"
    series[f'tpu_worker_info{{{W}, worker="no-profiler", source="runtime"}}'] = "1x120"
    check_alerts(tmp_path, series, {9: [], 40: ["TpuNoSamples worker=mute severity=warning"]})


def test_several_tpumon_of_one_job_are_summed(tmp_path):
    """Each stays below the limit; the job is traced by all of them."""
    series = {f'tpumon_traced_seconds_total{{job="t", instance="{one}", worker="w"}}': "0+1.8x120" for one in "abc"}
    check_alerts(tmp_path, series, {100: ["TpumonTracingShareHigh worker=w severity=warning"]})
    alone = {'tpumon_traced_seconds_total{job="t", instance="a", worker="w"}': "0+1.8x120"}
    check_alerts(tmp_path, alone, {100: []})


def test_truncated_traces_and_old_textfiles_are_said(tmp_path):
    """Figures that rest on too little, and figures that are not current."""
    series = figures("tpumon_truncated_samples_total", {"w": "0+5x120", "x": "0+1x120"})
    series |= figures("tpumon_samples_total", {"w": "0+6x120", "x": "0+6x120"})
    series['node_textfile_mtime_seconds{job="node", instance="n", file="/x/tpumon.prom"}'] = "60x120"
    series['node_textfile_mtime_seconds{job="node", instance="n", file="/x/other.prom"}'] = "60x120"
    check_alerts(tmp_path, series, {100: ["TpuTruncated worker=w severity=warning", "TpumonTextfileStale instance=n"]})


def test_errors_of_the_runtime_page(tmp_path):
    """As libtpu reports them, through a gap of a scrape."""
    series = worker("hung") | worker("well")
    series |= figures("tpu_runtime_megascale_error", {"hung": "0x5 1x20 0x90", "well": "0x120"})
    series |= figures("tpu_runtime_slice_error", {"hung": "0x120", "well": "0x120"})
    check_alerts(tmp_path, series, {4: [], 10: ["TpuRuntimeError worker=hung severity=critical"], 60: []})

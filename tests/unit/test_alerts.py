"""Which alerts fire on which series: as promtool evaluates grafana/prometheus/*.rules.yml."""

from __future__ import annotations

import pytest

from support.alerting import check_alerts, descriptions, evaluated

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


def finding(name, values, *, where=W):
    """`tpumon_finding` of several workers, by worker's name: 1 present, 0 judged and absent."""
    return {f'tpumon_finding{{{where}, worker="{worker}", finding="{name}"}}': told for worker, told in values.items()}


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
    check_alerts(tmp_path, series, {100: [], 160: ["TpuNotObserved job=t slice=s severity=warning"]})


def test_equal_names_in_two_namespaces_are_two_jobs(tmp_path):
    """A slow job is no straggler of a fast one, and a worker that is down there is not up here."""
    series = {}
    for namespace, step in (("x", "0.1"), ("y", "0.3")):
        for name in ("a", "b", "c"):
            where = f'job="t", instance="{name}", namespace="{namespace}", tpu_job="train"'
            series |= worker(name, where=where, slice_name="")
            series |= figures("tpu_step_time_seconds", {name: f"{step}x120"}, where=where)
    check_alerts(tmp_path, series, {60: []})


@pytest.mark.parametrize("instances", ["ee", "ef"])
def test_workers_that_do_not_work_together_are_not_compared(tmp_path, instances):
    """Two jobs, of one host or of two, one with long steps. The fast one ends: nobody's steps have become longer."""
    series = {}
    for name, instance, step_s, end in (("fast", instances[0], 0.1, "x89 stale"), ("slow", instances[1], 0.3, "x120")):
        where = f'job="t", instance="{instance}"'
        of_worker = worker(name, where=where, slice_name="")
        of_worker |= figures("tpumon_target_independent", {name: "1x120"}, where=where)
        of_worker |= figures("tpu_step_time_seconds", {name: f"{step_s}x120"}, where=where)
        series |= {name: values.replace("x120", end) for name, values in of_worker.items()}
    check_alerts(tmp_path, series, {60: [], 107: ["TpuJobGone slice=e/fast severity=warning"]})


FOUND = [
    ("hang", "TpuHang", "critical", 10),
    ("slow-down", "TpuSlowDown", "warning", 10),
    ("straggler", "TpuStraggler", "warning", 10),
    ("input-bound", "TpuInputBound", "warning", 10),
    ("recompiling", "TpuRecompiling", "warning", 10),
    ("idle", "TpuIdle", "warning", 30),
    ("hbm-nearly-full", "TpuHbmNearlyFull", "warning", 10),
    ("hbm-growing", "TpuHbmGrowing", "warning", 10),
    ("truncated", "TpuTruncated", "warning", 30),
]


def alerts_of(slice_name, minute, started):
    """The alerts about findings that have been there since that minute."""
    return [
        f"{alert} job=t slice={slice_name} finding={name} severity={severity}"
        for name, alert, severity, lasting in FOUND
        if minute > started + lasting
    ]


def test_a_finding_that_lasts_is_one_alert_per_slice(tmp_path):
    """However many workers have it; of nine scrapes one failed, and one is without it. It leaves when it ends."""
    series = {}
    for name in ("a", "b", "c"):
        series |= worker(name, minutes=180)
    present, absent = "1 1 1 1 1 1 0 1 stale " * 6, "0 0 0 0 0 0 0 0 stale " * 6
    for name, *_ in FOUND:
        flaw = f"0x59 {present} 0x70"
        series |= finding(name, {"a": flaw, "b": flaw, "c": f"0x59 {absent} 0x70"})
    expected = {minute: alerts_of("s", minute, 60) for minute in (58, 62, 67, 73, 94, 112)}
    check_alerts(tmp_path, series, expected | {150: []})


def test_a_finding_that_does_not_last_or_cannot_be_judged_is_no_alert(tmp_path):
    """For some minutes; not there at all; of a worker that is silent since; of a job that has just begun."""
    series = worker("unjudged", slice_name="u")
    for name in ("moment", "silent", "young"):
        series |= worker(name, slice_name=name)
    for name, _, _, lasting in FOUND:
        series |= finding(name, {"moment": f"0x59 1x{lasting // 2} 0x60", "silent": "1x49 stale", "young": "_x80 1x40"})
    check_alerts(
        tmp_path,
        series,
        {48: alerts_of("silent", 48, 0), 56: [], 62: [], 71: [], 85: [], 100: alerts_of("young", 100, 82)},
    )


def test_an_alert_names_the_workers(tmp_path):
    """Those that have the finding now, five at most."""
    series = {}
    for number in range(8):
        series |= worker(f"w{number}")
    series |= finding("input-bound", {f"w{number}": "0x120" if number == 3 else "1x120" for number in range(8)})
    (rows,) = evaluated(tmp_path, series, [('topk(5, worker:tpumon_finding:present{finding="input-bound"})', 60)])
    assert len(rows) == 5
    assert {labels["slice"] for labels, _ in rows} == {"s"}
    assert "w3" not in {labels["worker"] for labels, _ in rows}
    described = descriptions(tmp_path, worker("a") | worker("b") | finding("straggler", {"a": "0x60", "b": "1x60"}), 50)
    assert described["TpuStraggler"] == "The other workers of the slice wait for it. Workers: b ."


def test_since_when_a_finding_is_there_survives_gaps(tmp_path):
    """The minute at which it was first seen, through a failed scrape; another one after it was away."""
    series = worker("a") | finding("idle", {"a": "0x9 1x5 stale 1x20 0x19 1x50"})
    rows = evaluated(tmp_path, series, [("worker:tpumon_finding:since / 60", minute) for minute in (12, 30, 50, 90)])
    assert [[value for _, value in row] for row in rows] == [[10.0], [10.0], [], [58.0]]
    labels, _ = rows[0][0]
    assert (labels["worker"], labels["slice"], labels["finding"]) == ("a", "s", "idle")


def test_hbm_that_will_be_full_within_the_hour_pages(tmp_path):
    """tpumon says that it grows; many jobs run at 98 %, flat."""
    total = figures("tpu_hbm_total_bytes", dict.fromkeys(("fast", "slow", "drops"), "100x120"), more=', device="0"')
    used = figures("tpu_hbm_used_bytes", {"fast": "40+0.5x100", "slow": "40+0.05x120", "drops": "90-0.5x100"},
                   more=', device="0"')  # fmt: skip
    series = worker("fast", slice_name="1") | worker("slow", slice_name="2") | worker("drops", slice_name="3")
    series |= total | used | finding("hbm-growing", {"fast": "1x120", "slow": "1x120", "drops": "0x120"})
    check_alerts(
        tmp_path, series,
        {90: ["TpuHbmGrowing slice=1 severity=critical", "TpuHbmGrowing slice=2 severity=warning"]},
    )  # fmt: skip


def one_per_host(metric, values, *, minutes=120):
    """A slice whose workers have an exporter each, which judges its worker's cores and finds no straggler."""
    series = {}
    for name, told in values.items():
        where = f'job="t", instance="{name}"'
        series |= worker(name, where=where, minutes=minutes) | figures(metric, {name: told}, where=where)
        series |= finding("straggler", {name: f"0x{minutes}"}, where=where)
    return series


def test_one_tpumon_per_host_leaves_stragglers_to_prometheus(tmp_path):
    """No single one sees the slice; through gaps. One that watches the whole slice judges alone."""
    gap = "0.3 0.3 0.3 0.3 0.3 0.3 0.3 0.3 stale " * 8
    steps = {"a": "0.1x120", "b": "0.1x120", "c": f"{gap} 0.1x60"}
    slow = ["TpuStraggler job=t slice=s severity=warning"]
    check_alerts(tmp_path, one_per_host("tpu_step_time_seconds", steps), {8: [], 40: slow, 71: slow, 95: []})

    whole = worker("a") | worker("b") | worker("c") | figures("tpu_step_time_seconds", steps)
    check_alerts(tmp_path, whole | finding("straggler", dict.fromkeys("abc", "0x120")), {40: []})


def test_a_worker_that_does_not_idle_is_the_straggler(tmp_path):
    """All steps are equally long, because the others wait for it."""
    series = one_per_host("tpu_idle_ratio", {"a": "0.3x120", "b": "0.3x120", "c": "0.12x120"})
    check_alerts(tmp_path, series, {60: ["TpuStraggler slice=s"]})


def test_what_is_silent_is_not_slow(tmp_path):
    """A straggler that stops responding is down."""
    series = one_per_host("tpu_step_time_seconds", {"a": "0.1x120", "b": "0.1x120", "c": "0.3x39 stale"})
    series['tpumon_target_up{job="t", instance="c", worker="c"}'] = "1x39 0x80"
    check_alerts(tmp_path, series, {38: ["TpuStraggler slice=s"], 60: ["TpuWorkerDown worker=c"]})


def test_labels_that_flip_break_no_rule(tmp_path):
    """Without staleness, the old tpu_worker_info stands beside the new one, with another method or another slice."""
    series = one_per_host("tpu_step_time_seconds", {"a": "0.1x120", "b": "0.1x120", "c": "0.3x120"})
    series['tpu_worker_info{job="t", instance="c", worker="c", slice="s", source="monitor"}'] = "_x30 1x90"
    series['tpu_worker_info{job="t", instance="a", worker="a", slice="old", source="trace"}'] = "1x40"
    check_alerts(tmp_path, series, {60: ["TpuStraggler slice=s"]})


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
    check_alerts(tmp_path, series, {9: [], 40: ["TpuNoSamples job=t slice= severity=warning"]})


def test_several_tpumon_of_one_job_are_summed(tmp_path):
    """Each stays below the limit; the job is traced by all of them."""
    series = {f'tpumon_traced_seconds_total{{job="t", instance="{one}", worker="w"}}': "0+1.8x120" for one in "abc"}
    check_alerts(tmp_path, series, {100: ["TpumonTracingShareHigh job=t severity=warning"]})
    alone = {'tpumon_traced_seconds_total{job="t", instance="a", worker="w"}': "0+1.8x120"}
    check_alerts(tmp_path, alone, {100: []})


def test_an_old_textfile_is_said(tmp_path):
    """Its figures stay on node_exporter's page and are not current."""
    series = {
        'node_textfile_mtime_seconds{job="node", instance="n", file="/x/tpumon.prom"}': "60x120",
        'node_textfile_mtime_seconds{job="node", instance="n", file="/x/other.prom"}': "60x120",
        'node_textfile_mtime_seconds{job="node", instance="new", file="/x/tpumon.prom"}': "0+60x120",
    }
    check_alerts(tmp_path, series, {8: [], 100: ["TpumonTextfileStale instance=n severity=warning"]})


def test_a_targets_file_that_cannot_be_read_is_said(tmp_path):
    """Or a name server, or the API, for ten minutes; not one failure; it leaves."""
    series = {
        'tpumon_discovery_up{job="t", instance="e", finder="targets-file"}': "1x9 0x30 1x60",
        'tpumon_discovery_up{job="t", instance="e", finder="dns"}': "1x9 0x3 1x90",
        'tpumon_discovery_up{job="t", instance="flaps", finder="dns"}': "1 0 0 0 " * 20,
    }
    said = ["TpumonDiscoveryFailing instance=e finder=targets-file severity=warning"]
    check_alerts(tmp_path, series, {12: [], 15: [], 25: said, 50: []})


def test_errors_of_the_runtime_page(tmp_path):
    """As libtpu reports them, through a gap of a scrape."""
    series = worker("hung") | worker("well")
    series |= figures("tpu_runtime_megascale_error", {"hung": "0x5 1x20 0x90", "well": "0x120"})
    series |= figures("tpu_runtime_slice_error", {"hung": "0x120", "well": "0x120"})
    check_alerts(tmp_path, series, {4: [], 10: ["TpuRuntimeError job=t slice=s severity=critical"], 60: []})

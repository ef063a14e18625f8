"""Which alerts fire on which series: as promtool evaluates grafana/prometheus/*.rules.yml."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations

import pytest

from support.alerting import annotated, check_alerts, described, evaluated

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SCRAPE = 'job="tpumon", instance="e"'
JOB = 'tpu_job="ml/t", tpu_slice="s"'
W = f"{SCRAPE}, {JOB}"
OTHER, THIRD = W.replace("ml/t", "ml/u"), W.replace("ml/t", "ml/v")  # jobs of their own share a run of promtool


def worker(name, *, up=None, minutes=120, where=W, answers=True, independent=0):
    """The series of a worker that responds, is not paused, and has figures; `up` says otherwise."""
    labels = f'{where}, worker="{name}"'
    page = ", ".join(part for part in where.split(", ") if "tpu_" not in part)
    series = {
        f"up{{{page}}}": f"1x{minutes}",
        f"tpumon_target_info{{{labels}}}": f"1x{minutes}",
        f"tpumon_target_independent{{{labels}}}": f"{independent}x{minutes}",
        f"tpumon_target_up{{{labels}}}": up or f"1x{minutes}",
        f"tpumon_target_paused{{{labels}}}": f"0x{minutes}",
        f"tpumon_target_busy{{{labels}}}": f"0x{minutes}",
        f"tpumon_target_active{{{labels}}}": f"1x{minutes}",
        f"tpumon_target_last_success_timestamp_seconds{{{labels}}}": f"0+60x{minutes}",
    }
    if answers:
        series[f'tpu_worker_info{{{labels}, source="trace"}}'] = f"1x{minutes}"
    return series


def figures(metric, values, *, where=W, more=""):
    """`metric` of several workers, by worker's name."""
    return {f'{metric}{{{where}, worker="{name}"{more}}}': series for name, series in values.items()}


def finding(name, values, *, since=None, where=W):
    """A finding's severity on several workers, by worker's name, and since which minute."""
    more = f', finding="{name}"'
    series = figures("tpumon_finding_severity", values, where=where, more=more)
    active = {worker: re.sub(r"\b[01]x", "stale _x", severities) for worker, severities in values.items()}
    series |= figures("tpumon_finding_active_severity", active, where=where, more=more)
    if since is not None:
        known = dict.fromkeys(values, f"{60 * since}x240")
        series |= figures("tpumon_finding_since_timestamp_seconds", known, where=where, more=more)
    return series


def test_a_worker_that_others_wait_for_pages_when_it_is_down(tmp_path):
    """One of a slice that responded before; it leaves when the worker is back."""
    series = worker("a") | worker("b", up="1x29 0x20 1x80")
    down = ["TpuWorkerDown worker=b tpu_job=ml/t tpu_slice=s severity=critical"]
    check_alerts(tmp_path, series, {31: [], 37: down, 48: down, 60: []})


def test_a_worker_that_is_mostly_down_pages(tmp_path):
    """Down 3 of 4 minutes: with one answer in between, a `for` of five minutes never passed."""
    series = worker("a") | worker("b", up="1x29 " + "0 0 0 1 " * 20)
    check_alerts(tmp_path, series, {60: ["TpuWorkerDown worker=b severity=critical"]})


def test_a_worker_that_never_answered_does_not_page(tmp_path):
    """A sidecar whose job's image is still being pulled."""
    check_alerts(tmp_path, worker("a") | worker("b", up="0x120", answers=False), {15: [], 90: []})


def test_the_end_of_a_job_is_no_alert(tmp_path):
    """All workers stop responding, or vanish with their pods: whoever runs the job tells how it has ended."""
    stopped = worker("a", up="1x29 0x90", where=OTHER) | worker("b", up="1x29 0x90", where=OTHER)
    vanished = {name: f"{values.split()[0]} stale" if "0+" not in values else "0+60x29 stale"
                for name, values in (worker("a", minutes=29) | worker("b", minutes=29)).items()}  # fmt: skip
    check_alerts(tmp_path, stopped | vanished, {31: [], 45: [], 100: []})


def test_a_worker_that_vanishes_with_its_pod_pages(tmp_path):
    """Its series are gone, and TpuWorkerDown with them: where the slice has less than it should, or stops."""
    series = {}
    for where in (W, OTHER, THIRD):
        series |= {name: f"{values} stale" for name, values in worker("b", minutes=29, where=where).items()}
        series |= worker("a", where=where)
    series |= figures("tpumon_target_slice_workers", {"a": "2x120"})
    series |= figures("tpumon_target_active", {"a": "1x29 0x90"}, where=OTHER)
    missing = [f"TpuWorkersMissing tpu_job={job} tpu_slice=s severity=critical" for job in ("ml/t", "ml/u")]
    check_alerts(tmp_path, series, {32: [], 45: missing, 100: missing})
    of_size = {name: values for name, values in series.items() if "ml/t" in name or name.startswith("up")}
    told = described(tmp_path, of_size, 50)["TpuWorkersMissing"]
    assert told["summary"] == "ml/t, slice s has lost 1 of its workers"
    assert told["description"].startswith("Missing: b. ")


def test_missed_scrapes_are_no_workers_missing(tmp_path):
    """Of one host in four at each minute, after half an hour without."""
    series = {}
    for place in range(4):
        where = W.replace('"e"', f'"{place}"')
        for name, values in worker(f"w{place}", where=where).items():
            turns = [values[0]] * 4
            turns[place] = "stale"
            series[name] = values if "+" in values else f"{values[0]}x30 {' '.join(turns * 20)}"
    check_alerts(tmp_path, series, {40: [], 61: [], 83: []})


def test_pausing_one_host_is_no_worker_missing(tmp_path):
    """A paused worker has no tpumon_target_up."""
    series = worker("a") | worker("b")
    series[f'tpumon_target_up{{{W}, worker="b"}}'] = "1x29 stale"
    series[f'tpumon_target_paused{{{W}, worker="b"}}'] = "0x29 1x90"
    for name in ("a", "b"):
        series |= worker(name, where=OTHER)
        series[f'tpumon_target_up{{{OTHER}, worker="{name}"}}'] = "1x29 stale"
        series[f'tpumon_target_paused{{{OTHER}, worker="{name}"}}'] = "0x29 1x90"
    check_alerts(tmp_path, series, {45: [], 110: []})


def test_equal_names_in_two_jobs_are_two_workers(tmp_path):
    """The last one of a job is gone while one of that name responds in another; in another cluster, too."""
    series = {}
    for where in (f'{SCRAPE}, tpu_job="ml/x"', f'{SCRAPE}, tpu_job="ml/y"', f'{SCRAPE}, tpu_job="ml/x", cluster="eu"'):
        series |= worker("a", where=where) | worker("b", where=where)
    series[f'tpumon_target_up{{{SCRAPE}, tpu_job="ml/y", worker="b"}}'] = "1x29 0x90"
    check_alerts(tmp_path, series, {60: ["TpuWorkerDown tpu_job=ml/y worker=b"]})


def test_the_end_of_a_job_without_a_name_is_no_page(tmp_path):
    """Nothing tells whether workers of two exporters, or two found on one host, work together."""
    series = worker("a", where='job="t", instance="one"', up="1x29 0x90")
    series |= worker("b", where='job="t", instance="two"')
    series |= worker("c", where='job="t", instance="two"', up="1x29 0x90", independent=1)
    check_alerts(tmp_path, series, {60: []})


def test_workers_named_together_are_one_job_without_a_name(tmp_path):
    """Of one exporter: one of them that is down is waited for."""
    series = worker("a", where=SCRAPE) | worker("b", where=SCRAPE, up="1x29 0x90")
    check_alerts(tmp_path, series, {60: ["TpuWorkerDown worker=b"]})


def test_a_worker_that_gets_a_job_is_not_gone(tmp_path):
    """Its job was not known at first, or it works for another one now."""
    early = {name: values.replace("x120", "x29 stale") for name, values in worker("a", where=SCRAPE).items()}
    late = {name: values.replace("1x120", "_x30 1x90") for name, values in worker("a").items()}
    check_alerts(tmp_path, early | late, {25: [], 60: []})


FOUND = [
    ("hang", "TpuHang", 0, {2, 3}),
    ("stuck", "TpuStuck", 0, {3}),
    ("slow-down", "TpuSlowDown", 10, {2, 3}),
    ("straggler", "TpuStraggler", 10, {2, 3}),
    ("input-bound", "TpuInputBound", 10, {2, 3}),
    ("recompiling", "TpuRecompiling", 10, {2}),
    ("host-gap", "TpuHostGap", 10, {2}),
    ("compiling-while-serving", "TpuCompilingWhileServing", 10, {2}),
    ("idle", "TpuIdle", 30, {2}),
    ("hbm-nearly-full", "TpuHbmNearlyFull", 10, {2, 3}),
    ("hbm-growing", "TpuHbmGrowing", 0, {2, 3}),
    ("not-observed", "TpuNotObserved", 0, {2}),
]
SEVERITIES = {1: "info", 2: "warning", 3: "critical"}


def alerts_of(number, minute, since, job="ml/t"):
    """The alerts about findings of a severity that have been there since that minute."""
    return [
        f"{alert} tpu_job={job} tpu_slice=s finding={name} severity={SEVERITIES[number]}"
        for name, alert, lasting, numbers in FOUND
        if minute > since + lasting and number in numbers
    ]


def test_a_finding_that_lasts_is_one_alert_of_its_severity(tmp_path):
    """Per slice, however many workers have it; through gaps of some minutes; info is none. It leaves when it ends."""
    series, jobs = {}, dict(zip(SEVERITIES, ("ml/t", "ml/u", "ml/v"), strict=True))
    for number, where in zip(SEVERITIES, (W, OTHER, THIRD), strict=True):
        for name in ("a", "b", "c"):
            series |= worker(name, minutes=180, where=where)
        present = f"_x60 {number} {number} {number} stale _ _ _ " + f"{number}x48 0x60"
        series |= figures("tpumon_target_active", dict.fromkeys("ab", "1x63 stale _x2 1x120"), where=where)
        for name, *_ in FOUND:
            series |= finding(name, {"a": present, "b": present, "c": "0x180"}, since=60, where=where)
    expected = {
        minute: [alert for number, job in jobs.items() for alert in alerts_of(number, minute, 60, job)]
        for minute in (58, 62, 66, 73, 94, 112)
    }
    check_alerts(tmp_path, series, expected | {150: []})


def test_the_worst_that_anyone_says_counts(tmp_path):
    """Of several tpumons about one worker, and of several workers of a slice."""
    series = worker("a") | worker("b") | finding("straggler", {"a": "0x120", "b": "2x120"}, since=30)
    fleet = W.replace('instance="e"', 'instance="fleet"')
    series |= finding("straggler", {"a": "_x60 3x60"}, since=20, where=fleet)
    check_alerts(
        tmp_path, series,
        {5: [], 45: ["TpuStraggler tpu_slice=s severity=warning"], 70: ["TpuStraggler tpu_slice=s severity=critical"]},
    )  # fmt: skip


def test_it_has_lasted_by_the_clock_of_prometheus(tmp_path):
    """What a host says, whose clock is off, is shown only."""
    ahead = finding("slow-down", {"a": "_x80 2x40"}, since=95) | finding("idle", {"a": "_x80 2x40"}, since=5)
    check_alerts(
        tmp_path,
        worker("a") | ahead,
        {89: [], 93: ["TpuSlowDown"], 109: ["TpuSlowDown"], 113: ["TpuSlowDown", "TpuIdle"]},
    )
    rows = evaluated(tmp_path, ahead, [("worker:tpumon_finding_since_timestamp_seconds:min / 60", 100)])
    told = {(labels["worker"], labels["finding"], value) for labels, value in rows[0]}
    assert told == {("a", "slow-down", 95.0), ("a", "idle", 5.0)}


def test_a_finding_that_has_ended_or_cannot_be_judged_is_no_alert(tmp_path):
    """For some minutes; not there at all; of a worker that is silent since, five minutes later."""
    series = worker("unjudged") | worker("moment")
    for name, *_ in FOUND:
        series |= finding(name, {"moment": "0x59 2x4 0x60", "silent": "2x49 stale"}, since=0)
    check_alerts(tmp_path, series, {52: alerts_of(2, 52, 0), 57: [], 70: []})


def test_an_alert_names_the_job_and_the_workers(tmp_path):
    """Those that have had the finding longest, five at most."""
    series = {}
    for number in range(8):
        name = f"w{number}"
        series |= worker(name) | finding("input-bound", {name: "0x120" if number == 3 else "2x120"}, since=20 - number)
    told = described(tmp_path, series, 50)["TpuInputBound"]
    assert told["summary"] == "ml/t, slice s waits for input"
    longest = ", ".join(f"w{number} for {30 + number}m 0s" for number in (7, 6, 5, 4, 2))
    assert told["description"] == (
        f"Much of each step is spent waiting for input. Workers: {longest}, and more (7 in all)."
    )
    series |= figures("tpu_step_time_seconds", {"w1": "0.5x40 2x80"})
    told = described(tmp_path, series, 85)["TpuInputBound"]
    assert told["description"].endswith(" Step time: 2s, an hour before 500ms.")
    bare = worker("a", where='job="t", cluster="eu"') | finding("hang", {"a": "3x120"}, where='job="t", cluster="eu"')
    assert described(tmp_path, bare, 50)["TpuHang"]["summary"] == "a job without a name (eu) hangs"


def test_what_an_exporter_that_is_down_watches_is_not_missing(tmp_path):
    """One of two of a slice: its workers are not known to be gone, nor is a job that it alone watched."""
    alone = 'job="tpumon", instance="alone", tpu_job="ml/alone"'
    beside = W.replace('instance="e"', 'instance="beside"')
    lost = {f"{name}": f"{values} stale" for where, its in ((beside, "b"), (alone, "c"))
            for name, values in worker(its, minutes=29, where=where).items()}  # fmt: skip
    ups = {f'up{{job="tpumon", instance="{name}"}}': values
           for name, values in (("e", "1x120"), ("beside", "1x29 0x90"), ("alone", "1x29 0x90"))}  # fmt: skip
    down = ["TpumonExporterDown tpu_job=ml/t severity=warning", "TpumonExporterDown tpu_job=ml/alone severity=warning"]
    check_alerts(tmp_path, worker("a") | lost | ups, {45: down, 60: down})


def test_an_exporter_that_cannot_be_scraped_is_told(tmp_path):
    """Those that exported within a day, and scrape jobs with tpumon in their names, later; no other target."""
    series = {
        'up{job="train", instance="e"}': "1x9 0x60",
        'tpumon_build_info{job="train", instance="e", version="1"}': "1x9 stale",
        'up{job="team/tpumon", instance="never"}': "0x70",
        'up{job="other", instance="e"}': "0x70",
        'up{job="train", instance="gone"}': "1x9 stale",
        'tpumon_build_info{job="train", instance="gone", version="1"}': "1x9 stale",
        'up{job="train", instance="flaps"}': "1x9 0 0 0 1 0 0 0 1 0 0 0 1x30",
        'tpumon_build_info{job="train", instance="flaps", version="1"}': "1x50",
    }
    down, never = "TpumonExporterDown severity=warning", "TpumonExporterDown instance=never severity=warning"
    check_alerts(tmp_path, series, {18: [], 28: [down], 40: [never, down]})
    assert "could not scrape tpumon at e." in described(tmp_path, series, 28)["TpumonExporterDown"]["description"]


def test_a_worker_that_answers_without_figures_is_said(tmp_path):
    """After ten minutes; not while it is busy, or runs nothing (another alert), or can give runtime metrics only.

    After an hour where intervals are long, as with long steps.
    """
    series = {}
    for name in ("mute", "busy", "inactive", "no-profiler"):
        series |= worker(name, answers=False)
        series[f'tpumon_samples_total{{{W}, worker="{name}"}}'] = "9x120"
    for name, answered in (("rare", "1 1 1 1 1 2 2 2 2 2 3 3 3 3 3 4 4 4 4 4 5x100"), ("often", "0+1x120")):
        series |= worker(name, answers=False) | figures("tpumon_sample_interval_seconds", {name: "300x120"})
        series[f'tpumon_samples_total{{{W}, worker="{name}"}}'] = answered
    series[f'tpumon_target_busy{{{W}, worker="busy"}}'] = "1x120"
    series[f'tpumon_target_active{{{W}, worker="inactive"}}'] = "0x120"
    series[f'tpu_worker_info{{{W}, worker="no-profiler", source="runtime"}}'] = "1x120"
    muted = ["TpuNoSamples tpu_job=ml/t tpu_slice=s severity=warning"]
    check_alerts(tmp_path, series, {9: [], 40: muted, 100: muted})
    summaries = [described(tmp_path, series, minute)["TpuNoSamples"]["summary"] for minute in (40, 100)]
    assert summaries == [f"ml/t, slice s: {count} TPU workers respond without figures" for count in (1, 2)]
    series |= figures("tpumon_sample_errors_total", {"mute": "0+2x120"}, more=', reason="internal"')
    told = described(tmp_path, series, 40)["TpuNoSamples"]["description"]
    assert told.endswith("have returned no figures for 10 minutes or longer; errors: mute (internal).")


def test_several_tpumon_of_one_job_are_summed(tmp_path):
    """Each stays below the limit; the job is traced by all of them."""
    traced = 'tpumon_traced_seconds_total{job="t", instance="%s", tpu_job="ml/t", worker="w"}'
    series = {traced % one: "0+1.8x120" for one in "abc"}
    check_alerts(tmp_path, series, {100: ["TpumonTracingShareHigh tpu_job=ml/t severity=warning"]})
    alone = {traced % "a": "0+1.8x120"}
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
    check_alerts(tmp_path, series, {4: [], 10: ["TpuRuntimeError tpu_job=ml/t tpu_slice=s severity=critical"], 60: []})
    told = described(tmp_path, series, 10)["TpuRuntimeError"]["description"]
    assert told == "libtpu's megascale.error.detected has been set for most of the last 5 minutes, by hung."


LABELS = {"cluster": "eu", "tpu_job": "ml/t", "tpu_slice": "s"}


def of_slice(present):
    """Series by which each alert about a job fires, with some of the labels that tell a slice."""
    where = ", ".join(
        (SCRAPE.replace('"e"', f'"e{"".join(present)}"'), *(f'{name}="{LABELS[name]}"' for name in present))
    )
    series = worker("a", where=where) | worker("b", where=where, up="1x29 0x90") | worker("mute", where=where)
    series |= {name: f"{values.split()[0]} stale" for name, values in worker("c", minutes=29, where=where).items()}
    series |= figures("tpumon_target_slice_workers", {"a": "4x120"}, where=where)
    series |= figures("tpumon_samples_total", {"mute": "9x120"}, where=where)
    series |= figures("tpu_runtime_slice_error", {"a": "1x120"}, where=where)
    series |= figures("tpumon_traced_seconds_total", {"a": "0+6x120"}, where=where)
    series |= figures("tpu_step_time_seconds", {"a": "0.5x40 2x80"}, where=where)
    for name, _, _, numbers in FOUND:
        series |= finding(name, {"a": f"{max(numbers)}x120"}, since=20, where=where)
    return series


def test_each_alert_reads_as_a_sentence(tmp_path):
    """With none, each and all of the labels that tell a slice."""
    combinations_of_labels = [names for count in (0, 1, 3) for names in combinations(LABELS, count)]
    told = annotated(tmp_path, dict(item for names in combinations_of_labels for item in of_slice(names).items()), 75)
    alerts = {alert for _, alert, _, _ in FOUND}
    alerts |= {"TpuWorkerDown", "TpuWorkersMissing", "TpuNoSamples", "TpuRuntimeError", "TpumonTracingShareHigh"}
    assert Counter(name for name, _ in told) == dict.fromkeys(alerts, len(combinations_of_labels))
    begins = {
        ("ml/t" if "tpu_job" in names else "a job without a name")
        + (", slice s" if "tpu_slice" in names else "")
        + (" (eu)" if "cluster" in names else "")
        for names in combinations_of_labels
    }
    for name, texts in told:
        assert any(re.match(rf"{re.escape(begin)}(:| [a-z])", texts["summary"]) for begin in begins), (name, texts)
        assert texts["description"].endswith("."), (name, texts)
        for text in texts.values():
            assert not re.search(r"  |\{\{|<no value>|<error|: \.|, ,|\.\.|NaN|%!", text), (name, text)
    descriptions = {(name, texts["description"]) for name, texts in told}
    assert any(name == "TpuSlowDown" and "Step time: 2s, an hour before 500ms." in text for name, text in descriptions)
    assert all("Missing: c. " in text for name, text in descriptions if name == "TpuWorkersMissing")


def test_tpumons_of_a_job_that_are_down_are_named(tmp_path):
    series = {}
    for name in ("e1", "e2", "e3"):
        series |= worker(name, minutes=29, where=W.replace('"e"', f'"{name}"'))
        series[f'up{{job="tpumon", instance="{name}"}}'] = "1x120" if name == "e1" else "1x29 0x90"
    ((_, texts),) = annotated(tmp_path, series, 75)
    assert texts["summary"] == "ml/t: 2 tpumon cannot be scraped"
    assert re.search("at (e2, e3|e3, e2).", texts["description"])

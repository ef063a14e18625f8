"""The page of metrics: what stands on it, and that it is what prometheus_client would have written."""

from __future__ import annotations

import io
import math
import re
from itertools import accumulate

import pytest
from google.protobuf import proto
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.utils import floatToGoString

from support.exporter import found, sample
from support.library import Library
from support.made_up import healthy
from support.prometheus import promtool
from support.samples import changed
from tpumon import __version__
from tpumon.analysis import Analysis, FleetStatus
from tpumon.analysis.history import STEP_BUCKETS_S
from tpumon.errors import REASONS
from tpumon.model import Cause, Spread, StepTimes, Target, Workers
from tpumon.outputs import metrics
from tpumon.proto.metric_family_pb2 import MetricFamily, MetricType
from tpumon_exporters.exposition import END, Exposition

pytestmark = pytest.mark.usefixtures("quiet")

NOW = 1_769_000_000.0


def remembered(*samples, workers=("w",)):
    fleet = Analysis()
    fleet.add(found(*workers))
    for each in samples:
        fleet.add(each)
    return fleet


def exposed(status, **options):
    return Exposition("prometheus").render(status, **options)


def page(fleet, *, now_unix_s=NOW, **options):
    return exposed(fleet.status(now_unix_s), **options)


def series(text):
    return {line.split(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def values_of(families):
    return [(each.name, each.labels, each.value) for family in families for each in family.samples]


def read_binary(body):
    """Its families, by generated code."""
    stream, families = io.BytesIO(body), []
    while (family := proto.parse_length_prefixed(MetricFamily, stream)) is not None:
        families.append(family)
    return families


def flattened(family):
    """Name, labels and value of each series that the text has."""
    for each in family.metric:
        labels = {pair.name: pair.value for pair in each.label}
        if family.type != MetricType.HISTOGRAM:
            yield family.name, labels, each.counter.value if family.type == MetricType.COUNTER else each.gauge.value
            continue
        told = each.histogram
        for bucket in told.bucket:
            yield f"{family.name}_bucket", labels | {"le": floatToGoString(bucket.upper_bound)}, bucket.cumulative_count
        yield f"{family.name}_bucket", labels | {"le": "+Inf"}, told.sample_count
        yield f"{family.name}_count", labels, told.sample_count
        yield f"{family.name}_sum", labels, told.sample_sum


FULL = sample(
    time_unix_s=NOW,
    device_type="TPU v6 Lite",
    cores=2,
    mxu_method="counter",
    step_source="steps",
    idle_ratio=0.0,
    duty_cycle_ratio=0.75,
    flops_utilization_ratio=0.3,
    hbm_bandwidth_utilization_ratio=0.2,
    step_time_s=StepTimes(avg=0.010, min=0.009, max=0.012),
    infeed_ratio=Spread(avg=0.1, min=0.0, max=0.2),
    step_parts_s={"infeed": 0.001, "idle": 0.002},
    per_core=({"chip": 0, "core": 1, "idle_ratio": 0.1, "flops_utilization_ratio": None, "step_time_s": 0.01},),
    devices=({"device": "0", "hbm_used_bytes": 17_179_869_184, "hbm_total_bytes": 34_359_738_368,
              "runtime_duty_cycle_ratio": 0.5},),
    runtime={"uptime_s": 12.0},
    step_durations_s=(0.0005, 0.010, 0.0101, 500.0),
)  # fmt: skip


CAUSES = {
    "hang": Cause(words="hangs", finding="hang", severity="critical", since_unix_s=NOW - 600.5),
    "idle": Cause(words="idle", finding="idle", severity="warning"),
    "straggler": None,
    "truncated": Cause(words="truncated", finding="truncated", severity="info", since_unix_s=NOW),
}
JUDGED = {"findings": tuple(cause for cause in CAUSES.values() if cause is not None), "judged": tuple(CAUSES)}


def in_order(text):
    """Labels sorted by name, as the library has them."""

    def sorted_labels(match):
        return "{" + ",".join(sorted(re.findall(r'\w+="(?:[^"\\]|\\.)*"', match[1]))) + "}"

    return re.sub(r'(?<=\w)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\}(?= )', sorted_labels, text)


# As long as they can be encoded: a lone surrogate makes the library raise.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ratios = st.none() | st.floats(0, 1)
amounts = st.floats(0, 1e18) | st.integers(0, 10**12)
spreads = st.none() | st.builds(Spread, avg=amounts, min=amounts, max=amounts)
rows = st.fixed_dictionaries({"hbm_used_bytes": st.none() | amounts, "runtime_hlo_queue_size": st.none() | amounts})


@st.composite
def statuses(draw):
    names = draw(st.lists(texts, max_size=4, unique=True))
    followed = Analysis()
    named = st.none() | texts
    followed.add(
        Workers(
            targets=tuple(
                Target(worker=name, address=f"a{i}:1", job=draw(named), slice=draw(named))
                for i, name in enumerate(names)
            )
        )
    )
    for name in names:
        for _ in range(draw(st.integers(0, 2))):
            if draw(st.booleans()):
                followed.add(sample(name, reason=draw(st.sampled_from(REASONS)), time_unix_s=NOW))
                continue
            devices = draw(st.lists(rows, max_size=3))
            followed.add(
                sample(
                    name,
                    time_unix_s=NOW - draw(st.sampled_from([0, 1000])),
                    device_type=draw(texts),
                    mxu_utilization_ratio=draw(ratios),
                    infeed_ratio=draw(spreads),
                    step_parts_s=draw(st.none() | st.dictionaries(texts, amounts, max_size=3)),
                    devices=tuple({"device": str(at), **row} for at, row in enumerate(devices)),
                    step_durations_s=tuple(draw(st.lists(st.floats(0, 1e4), max_size=3))),
                    traced_s=draw(st.floats(0, 1e9)),
                    **draw(st.sampled_from([{}, JUDGED])),
                )
            )
    return followed.status(NOW)


@given(statuses())
def test_the_page_is_what_the_library_writes(status):
    """Text format 0.0.4, byte for byte but for the order of labels, whatever workers are called."""
    assert in_order(exposed(status)) == in_order(generate_latest(Library(status)).decode())


@given(statuses())
def test_the_openmetrics_page_is_what_the_library_writes(status):
    """The same for OpenMetrics 1.0: counters without `_total` in their headers, units, the end mark."""
    theirs = generate_openmetrics(Library(status, openmetrics=True)).decode()
    assert in_order(exposed(status, openmetrics=True) + END) == in_order(theirs)


@given(statuses())
def test_the_librarys_parsers_read_it_back(status):
    """Every series is read with the labels and the value that went in; both formats say the same."""
    wanted = values_of(Library(status).collect())
    assert values_of(parse_text(exposed(status))) == wanted
    read = values_of(parse_openmetrics(exposed(status, openmetrics=True) + END))
    assert [each for each in read if not each[0].endswith("_created")] == wanted


@given(statuses())
def test_the_binary_page_says_the_same(status):
    """Every family of the text, with all its values; read with generated code, as a scraper does."""
    families = read_binary(Exposition("prometheus").render_binary(status))
    assert [(each.name, each.help, MetricType.Name(each.type).lower()) for each in families] == [
        (each.name, each.help, each.kind) for each in metrics.METRICS
    ]
    assert [each for family in families for each in flattened(family)] == values_of(Library(status).collect())


def test_the_step_histogram_is_native_in_the_binary_page():
    """Buckets of a quarter of a power of two; the shortest are zero, and what is beyond the last is in the next one."""
    families = {each.name: each for each in read_binary(Exposition("p").render_binary(remembered(FULL).status(NOW)))}
    (told,) = families["tpu_step_duration_seconds"].metric
    histogram = told.histogram
    assert (histogram.schema, histogram.zero_threshold, histogram.zero_count) == (2, 2**-10, 1)
    (span,) = histogram.positive_span
    counts = list(accumulate(histogram.positive_delta))
    used = {2 ** ((span.offset + place) / 4): count for place, count in enumerate(counts) if count}
    assert used == {2**-6.5: 2, 2**7.0: 1}
    assert len(counts) == span.length
    assert (histogram.sample_count, histogram.sample_sum) == (4, 500.0206)


def test_since_when_counts_count():
    """Of tpumon's own since the worker is followed, of the runtime's since its job started; only OpenMetrics has it."""
    counts = {"runtime_counts": {"tcp_sent_bytes": 5.0}, "runtime": {"uptime_s": 12.0}}
    fleet = remembered(replace(FULL, time_unix_s=NOW - 60), changed(FULL, **counts), workers=("w", "not asked yet"))
    lines = page(fleet, openmetrics=True).splitlines()
    began = f"{(NOW - 60) / 1e9}e+09"
    at = lines.index('tpumon_samples_total{worker="w"} 2.0')
    assert lines[at + 1] == f'tpumon_samples_created{{worker="w"}} {began}'
    assert f'tpu_step_duration_seconds_created{{worker="w"}} {began}' in lines
    assert f'tpu_runtime_megascale_tcp_sent_bytes_created{{worker="w"}} {(NOW - 72) / 1e9}e+09' in lines
    assert not [line for line in lines if "_created{" in line and "not asked yet" in line]
    assert "_created" not in page(fleet)
    families = {each.name: each for each in read_binary(Exposition("p").render_binary(fleet.status(NOW)))}
    assert families["tpumon_samples_total"].metric[0].counter.created_timestamp.seconds == NOW - 60
    assert families["tpu_step_duration_seconds"].metric[0].histogram.created_timestamp.seconds == NOW - 60


def test_promtool_finds_no_fault_with_it(tmp_path):
    """Names, help, types and units as Prometheus' own checker wants them; its OpenMetrics reader takes the page, too.

    The checker reads only text 0.0.4: there a counter's series has no header of its own name in OpenMetrics.
    """
    busy = sample("busy", reason="busy", time_unix_s=NOW)
    fleet = remembered(healthy(7, NOW), FULL, busy, workers=("w7", "w", "busy", "waiting"))
    promtool("check", "metrics", text=page(fleet))
    text = page(fleet, openmetrics=True) + END
    said = promtool("check", "metrics", text=text, expect=3)
    assert set(re.findall(r"^\S+?((?:_total|_created)? .+)$", said, re.MULTILINE)) == {
        *("_total no help text", "_created no help text")
    }
    (tmp_path / "page").write_text(re.sub(r"^([^#].*)$", rf"\1 {NOW:.0f}", text, flags=re.MULTILINE))
    promtool("tsdb", "create-blocks-from", "openmetrics", str(tmp_path / "page"), str(tmp_path / "data"))


def test_every_metric_is_declared_even_without_series():
    """An empty fleet's page holds all headers, and the version."""
    text = exposed(FleetStatus(time_unix_s=NOW))
    for metric in metrics.METRICS:
        assert f"# HELP {metric.name} " in text
        assert f"# TYPE {metric.name} {metric.kind}\n" in text
    assert series(text) == {f'tpumon_build_info{{version="{__version__}"}}'}


def test_absent_is_no_series_and_zero_is_zero():
    """A measured zero is shown; what is not to be had is not."""
    lines = page(remembered(FULL)).splitlines()
    assert 'tpu_idle_ratio{worker="w"} 0.0' in lines
    assert 'tpu_core_idle_ratio{worker="w",core="0.1"} 0.1' in lines
    assert 'tpu_hbm_used_bytes{worker="w",device="0"} 1.7179869184e+10' in lines
    assert not [line for line in lines if line.startswith("tpu_core_flops_utilization_ratio{")]
    assert not [line for line in lines if line.startswith("tpu_core_infeed_ratio{")]


def test_steps_are_counted_in_classic_buckets():
    """Cumulated, with count and sum; a step longer than the last bound is only above it."""
    lines = page(remembered(FULL)).splitlines()
    assert 'tpu_step_duration_seconds_bucket{worker="w",le="0.0009766"} 1.0' in lines
    assert 'tpu_step_duration_seconds_bucket{worker="w",le="0.009291"} 1.0' in lines
    assert 'tpu_step_duration_seconds_bucket{worker="w",le="0.01105"} 3.0' in lines
    assert 'tpu_step_duration_seconds_bucket{worker="w",le="107.6"} 3.0' in lines
    assert 'tpu_step_duration_seconds_bucket{worker="w",le="+Inf"} 4.0' in lines
    assert 'tpu_step_duration_seconds_count{worker="w"} 4.0' in lines
    assert 'tpu_step_duration_seconds_sum{worker="w"} 500.0206' in lines


@pytest.mark.parametrize(
    ("cores", "devices", "told"),
    [
        ([(0, 0), (0, 1), (1, 0), (1, 1)], ["8", "9", "10", "11"], ["0.0=8", "0.1=9", "1.0=10", "1.1=11"]),
        ([(0, 0), (0, 1), (1, 0), (1, 1)], ["4", "5"], ["0.0=4", "0.1=4", "1.0=5", "1.1=5"]),
        ([(0, 0), (1, 0)], ["4", "5"], ["0.0=4", "1.0=5"]),
        ([(0, 0), (1, 0)], ["4", "5", "6"], []),
        ([(0, 0)], [], []),
    ],
)
def test_cores_and_devices_can_be_joined(cores, devices, told):
    """By order, where their numbers fit."""
    text = page(remembered(sample(
        time_unix_s=NOW,
        per_core=tuple({"chip": chip, "core": core, "idle_ratio": 0.1} for chip, core in cores),
        devices=tuple({"device": device, "hbm_used_bytes": 1} for device in devices),
    )))  # fmt: skip
    pairs = re.findall(r'^tpu_core_info\{worker="w",core="(.+)",device="(.+)"\} 1.0$', text, re.MULTILINE)
    assert [f"{core}={device}" for core, device in pairs] == told


def test_empty_buckets_at_the_start_have_no_series():
    """Of many workers they are half of all series. Four stay: the shortest step's bucket begins where the last ends."""
    steps = (0.075, 0.08, 0.3)
    text = page(remembered(sample(time_unix_s=NOW, step_durations_s=steps)))
    shown = dict(re.findall(r'tpu_step_duration_seconds_bucket\{worker="w",le="(.+)"\} (.+)', text))
    assert [float(bound) for bound in shown] == [*(b for b in STEP_BUCKETS_S if b >= 0.04419), math.inf]
    assert [shown[bound] for bound in ("0.04419", "0.07433", "0.08839", "0.2973", "0.3536", "+Inf")] == [
        *("0.0", "0.0", "2.0", "2.0", "3.0", "3.0")
    ]


@pytest.mark.parametrize("end", ["failed", "old"])
def test_a_worker_without_a_present_sample_keeps_only_what_is_about_watching_it(end):
    """Its tpu_* series vanish, the histogram's too; tpumon_target_up says 0."""
    followed = remembered(FULL)
    assert 'tpumon_target_up{worker="w"} 1.0' in page(followed)
    if end == "failed":
        followed.add(sample(reason="unavailable", time_unix_s=NOW))
    text = page(followed, now_unix_s=NOW + (1 if end == "failed" else 1000))
    assert not [name for name in series(text) if name.startswith("tpu_")]
    assert 'tpumon_target_up{worker="w"} 0.0\n' in text
    assert 'tpumon_samples_total{worker="w"} 1.0\n' in text
    assert f'tpumon_target_last_success_timestamp_seconds{{worker="w"}} {(NOW + 1.25) / 1e9}e+09\n' in text


def test_what_is_no_number_is_left_out():
    """NaN and infinity from a source's bug are not shown as figures."""
    rows = ({"chip": 0, "core": 0, "idle_ratio": math.nan},)
    odd = changed(FULL, mxu_utilization_ratio=math.nan, idle_ratio=math.inf, duty_cycle_ratio=0.5, per_core=rows)
    text = page(remembered(odd))
    assert "NaN" not in text
    assert not re.search(r"Inf$", text, re.MULTILINE)
    assert 'tpu_duty_cycle_ratio{worker="w"} 0.5\n' in text


def test_a_metric_that_raises_is_left_out_and_told_once(monkeypatch, said):
    """The page never breaks: the other metrics are there, and the other workers' series of this one."""

    def values(current):
        if current.worker == "bad":
            raise KeyError("boom")
        return (((), 1.0),)

    broken = metrics.SampleMetric(name="tpu_broken_ratio", help="Broken.", values=values)
    monkeypatch.setattr(metrics, "METRICS", (broken, *metrics.METRICS))
    shown = Exposition("prometheus")
    followed = remembered(FULL, sample("bad", time_unix_s=NOW), workers=("w", "bad"))
    texts = [shown.render(followed.status(NOW)) for _ in range(3)]
    for text in texts:
        assert 'tpu_broken_ratio{worker="w"} 1.0\n' in text
        assert 'tpu_broken_ratio{worker="bad"}' not in text
        assert 'tpu_mxu_utilization_ratio{worker="bad"} 0.425\n' in text
    assert said == ["prometheus: tpu_broken_ratio is left out of the page: KeyError: 'boom'"]
    said.clear()


def test_two_rows_of_the_same_core_are_one_series():
    """A scraper would refuse the page for a series that is there twice."""
    rows = ({"chip": 0, "core": 0, "idle_ratio": 0.1}, {"chip": 0, "core": 0, "idle_ratio": 0.2})
    text = page(remembered(changed(FULL, per_core=rows)))
    assert text.count('tpu_core_idle_ratio{worker="w",core="0.0"} ') == 1


def test_only_the_metrics_asked_for():
    """By the names of their series, as `name[]` has them."""
    text = page(remembered(FULL), names={"tpu_idle_ratio", "tpu_step_duration_seconds_sum", "tpumon_samples_total"})
    assert set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)) == {
        "tpu_idle_ratio",
        "tpu_step_duration_seconds",
        "tpumon_samples_total",
    }


def test_job_and_slice_are_labels_of_everything_about_a_worker():
    """Of histograms, findings and a worker that does not answer, too; what is not known is no label."""
    followed = Analysis()
    followed.add(
        Workers(
            targets=(
                Target(worker="w", address="a:1", job='ml/"gemma"', slice="0"),
                Target(worker="down", address="b:1", job="", slice="1"),
            )
        )
    )
    followed.add(replace(FULL, **JUDGED))
    followed.add(sample("down", reason="unavailable", time_unix_s=NOW))
    names = series(page(followed))
    assert 'tpumon_finding_severity{worker="w",tpu_job="ml/\\"gemma\\"",tpu_slice="0",finding="hang"}' in names
    assert 'tpumon_target_up{worker="down",tpu_slice="1"}' in names
    own = {metric.name for metric in metrics.EXPORTER_METRICS}
    told = {re.match(r'\w+\{(worker="(?:w",tpu_job="ml/\\"gemma\\"",tpu_slice="0|down",tpu_slice="1)")', name)
            for name in names if name.partition("{")[0] not in own}  # fmt: skip
    assert None not in told


def test_a_finding_has_its_severity_and_since_when():
    """0 to 3; no time where it is absent or since when is not known; nothing of a worker that is down or unjudged."""
    judged = replace(FULL, **JUDGED)
    text = page(remembered(judged))
    told = re.findall(r'^tpumon_finding_(\w+)\{worker="w",finding="(\w+)"\} (\S+)$', text, re.MULTILINE)
    assert [(name, finding, float(value)) for name, finding, value in told] == [
        ("severity", "hang", 3),
        ("severity", "idle", 2),
        ("severity", "straggler", 0),
        ("severity", "truncated", 1),
        ("active_severity", "hang", 3),
        ("active_severity", "idle", 2),
        ("since_timestamp_seconds", "hang", NOW - 600.5),
        ("since_timestamp_seconds", "truncated", NOW),
    ]
    for reason, there in (("busy", True), ("paused", True), ("unavailable", False)):
        kept = page(remembered(judged, sample(reason=reason, time_unix_s=NOW)), now_unix_s=NOW + 1)
        assert ("tpumon_finding_severity{" in kept) is there, reason
    assert "tpumon_finding_severity{" not in page(remembered(judged), now_unix_s=NOW + 1000)


def test_worker_is_the_first_label_of_everything_about_workers():
    """People read pages, too."""
    text = page(remembered(FULL))
    own = {metric.name for metric in metrics.EXPORTER_METRICS}
    assert all("{worker=" in name for name in series(text) if name.partition("{")[0] not in own)


def test_waiting_for_a_worker_is_told_apart_from_not_knowing():
    """1 while there is none, 0 while there is one; no series before anything is known."""
    followed = Analysis()
    assert "\ntpumon_waiting " not in page(followed)
    followed.add(Workers(waiting="no job here"))
    text = page(followed)
    assert "\ntpumon_waiting 1.0\n" in text
    assert in_order(text) == in_order(generate_latest(Library(followed.status(NOW))).decode())
    promtool("check", "metrics", text=text)
    followed.add(found("w"))
    assert "\ntpumon_waiting 0.0\n" in page(followed)

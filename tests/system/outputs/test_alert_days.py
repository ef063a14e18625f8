"""Which alerts fire on which days, as promtool evaluates the rules; grafana/README.md has the same table."""

from __future__ import annotations

import re
from functools import cache

import pytest
from msgspec.structs import replace

from support import REPOSITORY
from support.alert_days import BEGIN, ORDINARY, TROUBLE, Fleet, together
from support.alerting import described, firing
from support.dashboards import OWN_RULE_FILES, rules
from support.scenes import BEGIN_UNIX_S, Scene
from tpumon.analysis import Analysis
from tpumon.model import Failure, Figures, Workers
from tpumon.outputs.metrics import METRICS
from tpumon_exporters.exposition import Exposition

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

DAY = 24 * 60
LONG = {"0.5 % of the scrapes of 200 hosts fail", "5 % of the scrapes of 64 hosts fail"}
OF_A_DAY = {name for name in ORDINARY if name.startswith("25 jobs")}
ALONE = LONG | OF_A_DAY | {"Prometheus is away for 12 min and for an hour"}


@pytest.fixture(scope="module")
def fired(tmp_path_factory):
    """`fired(DAY)`: the minutes at which each alert began to fire, as `NAME SEVERITY`.

    Most of what promtool takes is for the rules, so days are clusters of one Prometheus where it is no part of them.
    """
    directory, days = tmp_path_factory.mktemp("days"), {**ORDINARY, **TROUBLE}

    @cache
    def begun(names):
        fleets = [Fleet(DAY if name in OF_A_DAY else 240) for name in names]
        for name, fleet in zip(names, fleets, strict=True):
            days[name](fleet)
        alerts_of = firing(directory, together(fleets), range(fleets[0].minutes))
        mine = lambda alert, own: alert.get("cluster", own).startswith(own)  # noqa: E731
        return {
            name: begun_by({at: [one for one in told if mine(one, f"{number}-")] for at, told in alerts_of.items()})
            for number, name in enumerate(names)
        }

    beside = tuple(name for name in days if name not in ALONE)
    return lambda name: begun((name,) if name in ALONE else beside)[name]


def begun_by(alerts_of):
    """The minutes in which each alert begins to fire, by the alerts that fire in each minute."""
    begun, before = {}, set()
    for minute, alerts in alerts_of.items():
        now = {tuple(sorted(one.items())) for one in alerts}
        for one in sorted(now - before):
            labels = dict(one)
            begun.setdefault(f"{labels['alertname']} {labels['severity']}", []).append(minute)
        before = now
    return begun


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly) if name in LONG | OF_A_DAY else name for name in ORDINARY],
)
def test_an_ordinary_day_is_silent(fired, name):
    assert fired(name) == {}


@pytest.mark.parametrize("name", TROUBLE)
def test_trouble_is_told_once_and_in_time(fired, name):
    """Each alert at the minute that the table says, or the next one: groups of rules are evaluated in any order."""
    begun, expected = fired(name), table()[name]
    assert begun.keys() == expected.keys()
    for alert, minutes in begun.items():
        assert len(minutes) == 1
        assert abs(minutes[0] - BEGIN - expected[alert]) <= 1, (alert, minutes)


def test_the_table_has_each_day():
    assert list(table()) == list(TROUBLE)
    text = (REPOSITORY / "grafana" / "README.md").read_text()
    assert re.findall(r"^- (.*)$", text.partition("silent:\n\n")[2].partition("\n\n")[0], re.MULTILINE) == list(
        ORDINARY
    )


def table():
    """Minutes from the begin to each alert, by trouble."""
    text = (REPOSITORY / "grafana" / "README.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ((?:Tpu\w+ \w+, \d+ min(?:; )?)+) \|$", text, re.MULTILINE)
    return {
        name: {alert: int(minutes) for alert, minutes in re.findall(r"(Tpu\w+ \w+), (\d+) min", told)}
        for name, told in rows
    }


def failing(sample, has_begun):
    """Its profiler fails; its runtime answers."""
    if not has_begun:
        return sample
    failure = Failure(source="trace", reason="internal", message="the server failed (INTERNAL): device in use")
    figures = Figures(devices=sample.figures.devices, runtime=sample.figures.runtime)
    return replace(sample, source="runtime", companions_only=True, errors=(failure,), figures=figures)


def slice_failed(sample, has_begun):
    runtime = replace(sample.figures.runtime, slice_error=float(has_begun))
    return replace(sample, figures=replace(sample.figures, runtime=runtime))


def written(scenario, change, minutes=50):
    """What an exporter writes of a simulated job, each minute; its samples change at the begin of trouble."""
    scene, now_s, series = Scene(scenario, "v5e-8", computed=True), [BEGIN_UNIX_S], {}
    analysis, exposition = Analysis(monotonic_s=lambda: now_s[0]), Exposition("prometheus")
    names = frozenset(name for metric in METRICS for name in metric.series_names)
    analysis.add(Workers(targets=tuple(replace(one, job="ml/t", slice_workers=1) for one in scene.workers.targets)))
    for number in range(6 * minutes):
        for sample in scene.round(number):
            now_s[0] = sample.time_unix_s + sample.took_s
            analysis.add(change(sample, number >= 6 * FAULT_BEGIN))
        for metric, labels, text in re.findall(
            r"^(tpu\w+)\{(.*)\} (\S+)$",
            exposition.render(analysis.status(now_s[0]), names=names) if number % 6 == 5 else "",
            re.MULTILINE,
        ):
            value = float(text) - (BEGIN_UNIX_S if metric.endswith("_timestamp_seconds") else 0.0)
            of_series = series.setdefault(f'{metric}{{job="tpumon",instance="e",{labels}}}', ["stale"] * minutes)
            of_series[number // 6] = f"{value:.15g}"
    return {'up{job="tpumon",instance="e"}': f"1x{minutes}"} | {
        labels: " ".join(values) for labels, values in series.items() if "_bucket{" not in labels
    }


FAULT_BEGIN = 10


@pytest.mark.parametrize(
    ("scenario", "change", "expected", "words"),
    [
        (
            f"hbm-leak@{60 * FAULT_BEGIN}:over=1500", lambda sample, _: sample,
            {"TpuHbmGrowing critical": 10}, r"Workers: sim-v5e-8-w0 for \d+m \d+s\. HBM in use: \d\d\.\d+%\.$",
        ),
        ("steady", failing, {"TpuNoSamples warning": 20}, r"or longer; errors: sim-v5e-8-w0 \(internal\)\.$"),
        ("steady", slice_failed, {"TpuRuntimeError critical": 4}, r"last 5 minutes, by sim-v5e-8-w0\.$"),
    ],
    ids=["HBM leaks", "a profiler fails", "a slice fails"],
)  # fmt: skip
def test_what_an_exporter_writes_of_a_fault_makes_its_alert(tmp_path, scenario, change, expected, words):
    """Minutes from the begin of the fault; a leak of 25 min is told before it ends the job."""
    series = written(scenario, change)
    begun = begun_by(firing(tmp_path, series, range(FAULT_BEGIN + 24)))
    assert begun.keys() == expected.keys()
    for alert, (minute, *again) in begun.items():
        assert not again
        assert abs(minute - FAULT_BEGIN - expected[alert]) <= 1, alert
        told = described(tmp_path, series, minute)[alert.split()[0]]
        assert told["summary"].startswith("ml/t, slice s")
        assert re.search(words, told["description"]), told


def test_what_remote_write_must_carry_is_told():
    """All that rules ask for, but for what is only shown in a description."""
    text = (REPOSITORY / "grafana" / "README.md").read_text().partition("**Remote write**")[2].partition("\n\n")[0]
    kept = [re.compile(f"(?:{names})") for names in re.findall(r"`([a-z_|.*]+)`", text)]
    asked = {
        name
        for rule in rules(OWN_RULE_FILES)
        for name in re.findall(r"(?<![\w:])((?:tpu|tpumon)_\w+|up)(?=[{\[ )]|$)", rule["expr"])
    }
    asked -= {"tpu_job", "tpu_slice"}
    assert len(asked) > 15
    assert {name for name in asked if not any(each.fullmatch(name) for each in kept)} == set()

"""What Prometheus makes of the step histogram, scraped each minute: quantiles, and who is slow."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from itertools import chain

import pytest

from support.alerting import evaluated
from support.exporter import found, sample
from tpumon.analysis import Analysis
from tpumon_exporters.exposition import Exposition

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("quiet")]

NOW = 1_769_000_000.0


def scraped(steps_of, minutes=12):
    """The series of the histogram, one value a minute, of workers whose steps a function gives by minute."""
    fleet, series = Analysis(), defaultdict(dict)
    fleet.add(found(*steps_of))
    for minute in range(minutes):
        for worker, steps in steps_of.items():
            fleet.add(sample(worker, time_unix_s=NOW + 60 * minute, step_durations_s=tuple(steps(minute))))
        page = Exposition("prometheus").render(
            fleet.status(NOW + 60 * minute), names={"tpu_step_duration_seconds_bucket"}
        )
        for name, value in re.findall(r"^(tpu_step_duration_seconds_bucket.+\}) (.+)$", page, re.MULTILINE):
            series[name][minute] = value
    return {name: " ".join(values.get(minute, "_") for minute in range(minutes)) for name, values in series.items()}


def quantiles(tmp_path, series, *ratios, by="", minute=11):
    """Quantiles over the last five minutes, by label values."""
    summed = f"sum by (le{by}) (rate(tpu_step_duration_seconds_bucket[5m]))"
    told = evaluated(tmp_path, series, [(f"histogram_quantile({ratio}, {summed})", minute) for ratio in ratios])
    return [{labels.get("worker", ""): value for labels, value in rows} for rows in told]


def steps_between(low_s, high_s, seed=1):
    chance = random.Random(seed)
    return lambda _minute: [chance.uniform(low_s, high_s) for _ in range(200)]


def test_quantiles_of_steps_are_right(tmp_path):
    """Of steps of 50 to 100 ms; with bounds 1, 2, 5 any of these had p50 75 ms and p99 99.5 ms."""
    series = scraped({"spread": steps_between(0.05, 0.1), "narrow": steps_between(0.06, 0.063)})
    (median, high) = quantiles(tmp_path, series, 0.5, 0.99, by=", worker")

    assert median["spread"] == pytest.approx(0.075, rel=0.03)
    assert high["spread"] == pytest.approx(0.0995, rel=0.06)
    assert median["narrow"] == pytest.approx(0.0615, rel=0.19)
    assert high["narrow"] == pytest.approx(0.063, rel=0.19)


def test_a_straggler_of_86_ms_is_visible(tmp_path):
    """Beside workers of 70 ms: both were in the bucket from 50 to 100 ms."""
    series = scraped({"a": steps_between(0.069, 0.071), "slow": steps_between(0.085, 0.087)})
    (median,) = quantiles(tmp_path, series, 0.5, by=", worker")

    assert median["slow"] / median["a"] > 1.15


def test_sums_over_workers_with_other_buckets_are_right(tmp_path):
    """Each has series from its own shortest step on; up to the last bound, where a missing one would be wrong."""
    series = scraped({"short": steps_between(0.02, 0.021), "long": steps_between(2, 2.1)})
    low, median, high = quantiles(tmp_path, series, 0.25, 0.5, 0.75)

    assert low[""] == pytest.approx(0.02, rel=0.19)
    assert median[""] == pytest.approx(0.021, rel=0.19)
    assert high[""] == pytest.approx(2.05, rel=0.19)
    with_short = {re.search('le="(.+)"', name)[1] for name in series if 'worker="short"' in name}
    with_long = {re.search('le="(.+)"', name)[1] for name in series if 'worker="long"' in name}
    assert with_long < with_short


def test_buckets_that_appear_later_change_no_quantile(tmp_path):
    """A step below all others makes new series; those of the others go on as they were."""
    steady = steps_between(0.08, 0.081)
    one_short = [0.002]
    series = scraped({"w": lambda minute: chain(steady(minute), one_short if minute == 9 else ())})
    minutes = [quantiles(tmp_path, series, 0.5, 0.99, minute=minute) for minute in (8, 9, 10, 11)]

    for median, high in minutes:
        assert median[""] == pytest.approx(0.08, rel=0.1)
        assert high[""] == pytest.approx(0.081, rel=0.19)

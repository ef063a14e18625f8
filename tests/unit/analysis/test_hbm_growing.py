"""Memory that grows, and memory that only comes back to where it was; by samples made up here."""

import math

import pytest

from support.samples import sample
from tpumon.analysis import Analysis
from tpumon.model import DeviceFigures, Target, Workers

BEGIN_S, INTERVAL_S, TOTAL = 1.8e9, 10.0, 32 << 30


def said(used_at, minutes):
    """Seconds when growth was said, each with its since."""
    now_s = [BEGIN_S]
    analysis = Analysis(monotonic_s=lambda: now_s[0])
    analysis.take(Workers(targets=(Target(worker="w0", address="w0:1"),)))
    found = []
    for number in range(int(minutes * 60 / INTERVAL_S)):
        at_s = INTERVAL_S * number
        now_s[0] = BEGIN_S + at_s
        used = {"hbm_used_bytes": round(used_at(at_s) * TOTAL), "hbm_total_bytes": TOTAL}
        device = DeviceFigures(device="0", **used)
        given = {"time_unix_s": now_s[0], "interval_s": INTERVAL_S, "idle_ratio": 0.1, "devices": (device,), **used}
        analysis.take(sample("w0", **given))
        found += [
            (at_s, one.since_unix_s - BEGIN_S)
            for one in analysis.status(now_s[0]).findings
            if one.finding == "hbm-growing"
        ]
    return found


def wave(period_s, begin):
    return lambda at_s: 0.6 + 0.05 * math.sin(2 * math.pi * (at_s / period_s + begin))


@pytest.mark.parametrize("begin", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("period_s", [90.0, 440.0])
def test_memory_that_goes_up_and_down_does_not_grow(period_s, begin):
    assert said(wave(period_s, begin), 180) == []


@pytest.mark.parametrize("period_s", [900.0, 2400.0, 5400.0])
def test_to_come_back_to_where_it_was_is_no_growth(period_s):
    """Of waves so long only the first rise is one; begun at the top, there is none."""
    assert said(wave(period_s, 0.25), 300) == []


@pytest.mark.parametrize(("full_s", "within_s"), [(1500.0, 400.0), (7200.0, 960.0), (18000.0, 1150.0)])
def test_a_leak_is_found_from_where_it_began_and_began_there(full_s, within_s):
    leak_s = 1200.0
    found = said(lambda at_s: 0.5 + 0.5 * max(at_s - leak_s, 0.0) / full_s, 45)
    at_s, since_s = found[0]
    assert at_s <= leak_s + within_s
    assert since_s == pytest.approx(leak_s, abs=190)
    assert all(since == pytest.approx(leak_s, abs=190) for _, since in found)


def test_a_leak_in_a_job_whose_memory_goes_up_and_down_is_found_above_its_peaks():
    usual = wave(440.0, 0.0)
    found = said(lambda at_s: usual(at_s) if at_s < 3000 else usual(3000) + (at_s - 3000) / 3600, 65)
    assert found
    assert found[0][0] <= 3000 + 620

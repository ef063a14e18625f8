"""Memory that grows, and memory that only comes back to where it was; by samples made up here."""

import math
import random
import re

import pytest

from support.samples import sample
from tpumon.analysis import Analysis
from tpumon.analysis.findings.rules.hbm import HbmBlocks, _Blocks, _Left
from tpumon.analysis.history import Moment
from tpumon.model import DeviceFigures, Target, Workers
from tpumon.simulator.scenario import USABLE_HBM_RATIO, SimulatedJob
from tpumon.simulator.topology import parse_topology

BEGIN_S, INTERVAL_S, TOTAL = 1.8e9, 10.0, 32 << 30


def found(used_at, minutes):
    """Seconds when growth was said, each with the finding."""
    now_s = [BEGIN_S]
    analysis = Analysis(monotonic_s=lambda: now_s[0])
    analysis.add(Workers(targets=(Target(worker="w0", address="w0:1"),)))
    for number in range(int(minutes * 60 / INTERVAL_S)):
        at_s = INTERVAL_S * number
        now_s[0] = BEGIN_S + at_s
        used = {"hbm_used_bytes": round(used_at(at_s) * TOTAL), "hbm_total_bytes": TOTAL}
        device = DeviceFigures(device="0", **used)
        given = {"time_unix_s": now_s[0], "interval_s": INTERVAL_S, "idle_ratio": 0.1, "devices": (device,), **used}
        analysis.add(sample("w0", **given))
        yield from ((at_s, one) for one in analysis.status(now_s[0]).findings if one.finding == "hbm-growing")


def said(used_at, minutes):
    """Seconds when growth was said, each with its since."""
    return [(at_s, one.since_unix_s - BEGIN_S) for at_s, one in found(used_at, minutes)]


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


@pytest.mark.parametrize(
    ("full_s", "within_s"), [(1500.0, 400.0), (7200.0, 400.0), (14400.0, 750.0), (18000.0, 1150.0)]
)
def test_a_leak_is_found_from_where_it_began_and_began_there(full_s, within_s):
    leak_s = 1200.0
    seen = said(lambda at_s: 0.5 + 0.5 * max(at_s - leak_s, 0.0) / full_s, 45)
    at_s, since_s = seen[0]
    assert at_s <= leak_s + within_s
    assert since_s == pytest.approx(leak_s, abs=190)
    assert all(since == pytest.approx(leak_s, abs=190) for _, since in seen)


def test_a_leak_in_a_job_whose_memory_goes_up_and_down_is_found_above_its_peaks():
    usual = wave(440.0, 0.0)
    seen = said(lambda at_s: usual(at_s) if at_s < 3000 else usual(3000) + (at_s - 3000) / 3600, 65)
    assert seen
    assert seen[0][0] <= 3000 + 620


def leak(full_s):
    """The simulator's, with its waves."""
    job = SimulatedJob(topology=parse_topology("v5e-8"), scenario=f"hbm-leak:over={full_s}", seed=1)
    total = int(job.topology.device_hbm_bytes * USABLE_HBM_RATIO)
    return lambda at_s: job.hbm_used_bytes(0, 0, int(at_s * 1e9)) / total / 0.995


def saw(rise_s, tooth, period_s):
    return lambda at_s: 0.6 + 0.4 * at_s / rise_s + tooth * (at_s % period_s) / period_s


def faster(full_s):
    return lambda at_s: 0.6 + 0.4 * (at_s / full_s) ** 2


@pytest.mark.parametrize(
    ("used_at", "is_steady"),
    [
        *((leak(full_s), True) for full_s in (1500, 3600)),
        *((saw(3600, tooth, period_s), True) for tooth, period_s in ((0.03, 120), (0.05, 200))),
        *((faster(full_s), False) for full_s in (2400, 7200)),
    ],
)
def test_it_is_full_when_it_is_said_to_be(used_at, is_steady):
    """When the first peak does not fit. At the earliest it is as told, whether it grows steadily or ever faster."""
    full_s = next(at_s for at_s in range(10_000) if used_at(at_s) >= 1)
    early, ranges = [], 0
    for at_s, one in found(used_at, (full_s - 300) / 60):
        left_s = one.evidence["hbm_full_in_s"].value / (full_s - at_s)
        assert 0.65 < left_s < 1.2, (at_s, one.sentence)
        early.append(left_s)
        ranges += bool(re.search(r"full in [\d.]+ to ", one.sentence))
    assert len(early) > 50
    assert sum(early) / len(early) == pytest.approx(1.0, abs=0.1)
    assert ranges < len(early) / 2 if is_steady else ranges > len(early) / 2


def test_a_slow_leak_that_becomes_fast_is_told_by_its_last_minutes():
    slow_s, full_s = 1200, 2100

    def used_at(at_s):
        return 0.2 + 0.1 * at_s / slow_s if at_s < slow_s else 0.3 + 0.7 * (at_s - slow_s) / (full_s - slow_s)

    told = {at_s: one.evidence["hbm_full_in_s"].value for at_s, one in found(used_at, full_s / 60)}
    late = {at_s: left_s for at_s, left_s in told.items() if slow_s + 300 <= at_s < full_s}
    assert len(late) == 60
    assert late == {at_s: pytest.approx(full_s - at_s, abs=1) for at_s in late}


@pytest.mark.parametrize("interval_s", [10, 60])
def test_little_growth_that_is_not_steady_is_not_told_soon(interval_s):
    """Of values that vary by 1 % by chance, in as many first hours."""
    told = 0
    for seed in range(100):
        blocks, chance = HbmBlocks(), random.Random(seed)
        for at_s in range(0, 3600, interval_s):
            used = 0.6 + chance.gauss(0, 0.01)
            for one in blocks.shorter:
                one.add(used, Moment(at_s, at_s))
                told += one.left(used, Moment(at_s, at_s)) is not None
    assert told == 0


@pytest.mark.parametrize("pause_after_s", range(0, 1200, 60))
def test_a_pause_of_samples_makes_no_full_device(pause_after_s):
    """It grew between them, too: more from block to block, at a lower pace."""
    blocks, at_s = _Blocks(60.0, 0.05), 0.0
    for seen_s in range(0, 1200, 10):
        at_s = seen_s + 7200.0 * (seen_s > pause_after_s)
        used = 0.1 + 0.4 * (seen_s / 1200) ** 2
        blocks.add(used, Moment(at_s, at_s))
        left = blocks.left(used, Moment(at_s, at_s))
        assert left is None or 300 < left.least_s <= left.most_s, (seen_s, left)


@pytest.mark.parametrize(
    ("least_s", "most_s", "words"),
    [
        (0.0, 0.0, "within 1 min"),
        (20.0, 25.0, "within 1 min"),
        (20.0, 140.0, "within 2 min"),
        (31.0, 140.0, "in 1 to 2 min"),
        (480.0, 720.0, "in 8 to 12 min"),
    ],
)
def test_what_is_nearly_full_is_not_told_as_0_min(least_s, most_s, words):
    assert _Left(least_s, most_s).words == words


def test_what_grows_ever_faster_is_told_as_a_range():
    at_s, one = list(found(faster(2400), 25))[-1]
    assert at_s == 1490
    assert one.sentence.endswith("at this pace the device is full in 15 to 30 min.")


def test_a_device_that_has_filled_up_is_not_told_to_be_full_soon():
    sentences = [one.sentence for at_s, one in found(lambda at_s: min(0.5 + at_s / 1800, 0.995), 16)]
    assert "at this pace" in sentences[0]
    assert re.search(r"HBM in use grew without a pause \(\d+\.\d% to 99\.5%\): the device is full\.$", sentences[-1])

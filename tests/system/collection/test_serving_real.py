"""Figures and findings of a real small server, beside its own log of the same spans."""

from __future__ import annotations

import json

import pytest

from fakes.run import Tpumon, tpumon
from support.serving import FAMILIES, serving

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]

NEAR = 0.03
WINDOW_S = 5.0
STARTS_S = (0.0, 0.05, 0.1)  # from a sample's begin to that of its trace
RANKS = 0.015  # of a quantile: there are few steps of the longest kinds


def spans_of(samples):
    """Begins and ends of what the samples show; empty windows are as long as they were to be."""
    spans = []
    for sample in samples:
        empty = any(error["reason"] == "empty-trace" for error in sample["errors"])
        assert empty or sample["source"] == "trace", sample["errors"]
        # A sample that is to explain idle time is shorter.
        least_s = 0.0 if empty else WINDOW_S if sample["traced_s"] >= WINDOW_S else 0.5
        window_s = max(sample["window_s"], least_s)
        spans.append((sample["time_unix_s"], sample["time_unix_s"] + window_s))
    return spans


def check(server, samples):
    """Its figures are those of its log."""
    spans = spans_of(samples)
    truth = server.truth(spans)
    figures = samples[-1]["server"]
    found = {each["family"]: each for each in figures["families"]}
    print("busy", figures["busy_ratio"], truth.busy_ratios, "steps", len(truth.steps))
    assert set(found) & set(FAMILIES.values()) == {FAMILIES[row["program"]] for row in truth.whole}
    assert between(figures["busy_ratio"], busy_ratios(server, spans))
    for family in set(found) & set(FAMILIES.values()):
        mine, seconds, least_s = found[family], truth.seconds(family), truth.least_seconds(family)
        print(family, mine["executions_per_s"], truth.rate(family), mine["duration_s"], mine["sizes"], len(seconds))
        edges = len(samples) ** 0.5 / truth.spans_s  # a window may hold a step more or less
        assert abs(mine["executions_per_s"] - truth.rate(family)) <= NEAR * truth.rate(family) + edges
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            ranks = RANKS + 1 / len(seconds)
            low, high = quantile(least_s, share - ranks), quantile(seconds, share + ranks)
            print(name, mine["duration_s"][name], low, high)
            assert low * (1 - NEAR) <= mine["duration_s"][name] <= high * (1 + NEAR)
        assert set(mine["sizes"]) == {row["bucket"] for row in truth.whole if FAMILIES[row["program"]] == family}
    join(server, samples, spans)
    if truth.whole:
        print("padding", figures["padding_ratio"], truth.padding_ratio)
        assert figures["padding_ratio"] == pytest.approx(truth.padding_ratio, abs=NEAR)


def join(server, samples, spans):
    """What its programs and its own metrics say together."""
    figures = samples[-1]["server"]
    gap, each_s = figures["host_gap_ratio"], figures["device_s_per_token"]
    having = [span for span, sample in zip(spans, samples, strict=True) if sample["server"]["requests_running"]]
    if gap is not None:
        least, most = server.truth(having).busy_ratios
        print("gap", gap, 1 - most, 1 - least)
        assert 1 - most - NEAR <= gap <= 1 - least + NEAR
    (first_s, before), *_, (last_s, generated) = server.readings
    if generated > before:
        counted = [(begin, end) for begin, end in spans if first_s <= (begin + end) / 2 < last_s]
        times_s = [ratio * (last_s - first_s) for ratio in busy_ratios(server, counted)]
        print("device seconds per token", each_s, times_s, generated - before)
        assert between(each_s, [time_s / (generated - before) for time_s in times_s])


def busy_ratios(server, spans):
    """Shares of the spans in its model's program: as asked for, and as they may have begun."""
    moved = [[(first + at_s, last + at_s) for first, last in spans] for at_s in STARTS_S]
    return [ratio for each in moved for ratio in server.truth(each).busy_ratios]


def between(figure, truths):
    """True if it is within 3 % of one of these, or between two."""
    return min(truths) * (1 - NEAR) <= figure <= max(truths) * (1 + NEAR)


def quantile(ascending, share):
    return ascending[round(min(max(share, 0.0), 1.0) * (len(ascending) - 1))]


def look(server, queries):
    options = ("--interval", "0", "--max-duty", "100%", "--duration-ms", f"{WINDOW_S * 1000:.0f}", "--output", "jsonl")
    result = tpumon(*options, "--num-queries", str(queries), "--service-addr", server.address,
                    "--server-metrics", server.page, timeout_s=300)  # fmt: skip
    return result.ended(0).samples


def test_a_steady_load(tmp_path):
    with serving(tmp_path, "300@1", "--slots", "8", "--batch-tokens", "64") as server:
        check(server, look(server, 4))


PATTERNS = {
    "steady": ("400@0.7",),
    "low": ("400@0.15",),
    "trickle": ("400@0.04", "--output-tokens", "10"),
    "bursts": (",".join(["7@2,9@0"] * 20), "--output-tokens", "8"),
    "quiet": ("15@1,60@0,400@1", "--output-tokens", "10"),
    "saturated": ("400@5",),
    "split": ("400@0.7", "--style", "split"),
    "split-bursts": (",".join(["7@2,9@0"] * 20), "--output-tokens", "8", "--style", "split"),
    "long-context": ("400@0.15", "--length", "1024", "--prompt-tokens", "300", "--batch-tokens", "64"),
    "long-prompts": ("400@0.5", "--prompt-tokens", "200", "--output-tokens", "4", "--batch-tokens", "64"),
    "ramp": ("15@0.1,15@0.3,15@0.6,15@1.2,400@2.4",),
    "host-gap": ("400@0.7", "--host-pause-ms", "100"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_of_load(tmp_path, pattern):
    load, *options = PATTERNS[pattern]
    with serving(tmp_path, load, *options) as server:
        samples = look(server, 11)
        check(server, samples)
    assert samples[-1]["job_kind"]["kind"] == "serving"
    assert above_info(each["findings"] for each in samples) <= ({"host-gap"} if pattern == "host-gap" else set())
    assert pattern != "host-gap" or "host-gap" in {one["finding"] for one in samples[-1]["findings"]}


def above_info(said):
    return {one["finding"] for findings in said for one in findings if one["severity"] != "info"}


def findings(out):
    """Of each line so far; by id."""
    lines = out[: out.rfind("\n") + 1].splitlines()
    return [{one["finding"]: one for one in json.loads(line)["findings"]} for line in lines]


@pytest.mark.nightly
def test_a_server_that_stops_amid_requests_is_stuck_after_a_minute(tmp_path):
    with serving(tmp_path, "400@0.7", "--stall-at", "30") as server:
        options = ("--interval", "0", "--max-duty", "100%", "--duration-ms", "2000", "--output", "jsonl")
        with Tpumon(*options, "--service-addr", server.address, "--server-metrics", server.page) as process:
            process.wait_for(lambda: "stuck" in (findings(process.out) or [{}])[-1], 240)
            *before, found = findings(process.out)
        last = server.rows[-1]
    stuck, stopped_s = found["stuck"], last["time_unix_s"] + last["seconds"]
    print("stuck", stuck, stopped_s, before[-1])
    assert above_info(each.values() for each in before) == set()
    assert stuck["severity"] == "critical"
    assert stopped_s - 5.0 < stuck["since_unix_s"] < stopped_s + 10.0


@pytest.mark.nightly
@pytest.mark.timeout(3000)
def test_a_server_that_compiles_after_its_first_half_hour_is_told_while_requests_wait(tmp_path):
    with serving(tmp_path, "2600@0.5", "--host-pause-ms", "60", FORGET_AFTER_S="1830") as server:
        options = ("--output", "jsonl", "--service-addr", server.address, "--server-metrics", server.page)
        with Tpumon(*options) as process:
            told = lambda: "compiling-while-serving" in (findings(process.out) or [{}])[-1]  # noqa: E731
            process.wait_for(told, 2400)
            *before, found = findings(process.out)
    assert len(before) > 20
    assert above_info(each.values() for each in before) <= {"host-gap"}, "the pauses of its host are one"
    assert found["compiling-while-serving"]["severity"] == "warning"

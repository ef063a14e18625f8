"""Figures of a real small server, beside its own log of the same spans."""

from __future__ import annotations

import pytest

from fakes.run import tpumon
from support.serving import FAMILIES, serving

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]

NEAR = 0.03
WINDOW_S = 5.0
LEAST_DECODED = 0.6  # of all tokens: the log does not tell the first ones of requests
EDGES = 0.1  # the server counts a token when it is made, and tpumon asks every few seconds
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
    print("busy", figures["busy_ratio"], truth.program_ratio, truth.busy_ratio, "steps", len(truth.steps))
    assert set(found) & set(FAMILIES.values()) == {FAMILIES[row["program"]] for row in truth.whole}
    # Of a step, what is before and after the model's program is partly the host's.
    assert truth.program_ratio * (1 - NEAR) - 0.01 <= figures["busy_ratio"] <= truth.busy_ratio * (1 + NEAR) + 0.01
    for family in set(found) & set(FAMILIES.values()):
        mine, seconds = found[family], truth.seconds(family)
        print(family, mine["executions_per_s"], truth.rate(family), mine["duration_s"], mine["sizes"], len(seconds))
        edges = len(samples) ** 0.5 / truth.spans_s  # a window may hold a step more or less
        assert abs(mine["executions_per_s"] - truth.rate(family)) <= NEAR * truth.rate(family) + edges
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            low, high = (quantile(seconds, share + sign * (RANKS + 1 / len(seconds))) for sign in (-1, 1))
            print(name, mine["duration_s"][name], low, high)
            assert low * (1 - NEAR) <= mine["duration_s"][name] <= high * (1 + NEAR)
        assert set(mine["sizes"]) == {row["bucket"] for row in truth.whole if FAMILIES[row["program"]] == family}
    join(figures, truth, server.truth(spans[:-1]))
    if truth.whole:
        print("padding", figures["padding_ratio"], truth.padding_ratio)
        assert figures["padding_ratio"] == pytest.approx(truth.padding_ratio, abs=NEAR)


def join(figures, truth, counted):
    """What its programs and its own metrics say together; the tokens of the last window are not counted yet."""
    gap, each_s = figures["host_gap_ratio"], figures["device_s_per_token"]
    print("gap", gap, "device seconds per token", each_s, "decoded per second", counted.decoded_per_s)
    # The busy time of the windows with requests is part of the busy time of all.
    assert gap is None or gap <= 1 - truth.program_ratio + NEAR + 0.01
    if counted.decoded_per_s:
        least_s, most_s = (ratio / counted.decoded_per_s for ratio in (counted.program_ratio, counted.busy_ratio))
        assert least_s * (1 - NEAR) * LEAST_DECODED <= each_s <= most_s * (1 + NEAR + EDGES)


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
        check(server, look(server, 11))

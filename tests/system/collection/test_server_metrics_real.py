"""What a real small server says of its requests, beside its own log of the same time."""

from __future__ import annotations

import asyncio
import json
import time
from itertools import pairwise

import pytest

from fakes.run import tpumon
from support import free_port
from support.serving import serving
from tpumon.collection.sources import Client
from tpumon.collection.sources.server_metrics import ServerMetrics
from tpumon.model import Target

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]

NEAR = 0.03
LOOKS, EVERY_S = 9, 2.5
LONG_ANSWERS = ("--output-tokens", "150")  # the log does not count the first token of an answer


async def looks(url):
    """Readings with their times: the second of each pair is on this host's wall clock."""
    extra_source = ServerMetrics(Target(worker="w", address="w:1", server_metrics=url), Client)
    readings = []
    for _ in range(LOOKS):
        asked_s = time.monotonic()
        reading = await extra_source.read()
        now_s, unix_s = (asked_s + time.monotonic()) / 2, time.time()
        readings.append((now_s, unix_s, reading.figures.server))
        await asyncio.sleep(EVERY_S)
    return readings


@pytest.mark.parametrize(
    "load", ["5@4,5@0,5@4,5@0,60@2", pytest.param("60@1.5", marks=pytest.mark.nightly)], ids=["bursts", "steady"]
)
def test_tokens_and_requests_are_those_of_its_log(tmp_path, load):
    """They are in the samples of it, too."""
    port = free_port()
    options = ("--width", "128", "--layers", "2", "--metrics-port", str(port), *LONG_ANSWERS)
    with serving(tmp_path, load, *options) as server:
        page = f"http://127.0.0.1:{port}/metrics"
        readings = asyncio.run(looks(page))
        rows = [json.loads(line) for line in server.log.read_text().splitlines()]
        of_server = ("--service-addr", server.address, "--server-metrics", page)
        options = ("--max-duty", "100%", "--output", "jsonl", "--interval", "2", "--num-queries", "5")
        sampled = tpumon(*options, *of_server, timeout_s=120).ended(0).samples[-1]["server"]
    steps = [(row["time_unix_s"], row["time_unix_s"] + row["seconds"], row) for row in rows]
    first, last = readings[0][1], readings[-1][1]
    pairs = list(pairwise(readings))
    for figure, name in (("tokens_per_s", "decode_tokens"), ("prompt_tokens_per_s", "prefill_tokens")):
        counted = sum(getattr(server, figure) * (now_s - before_s) for (before_s, *_), (now_s, _, server) in pairs)
        logged = sum(row[name] for _, end, row in steps if first < end <= last)
        assert counted == pytest.approx(logged, rel=NEAR, abs=max(row[name] for _, _, row in steps))
    for _, unix_s, figures in readings:
        near = [row["requests"] for begin, end, row in steps if begin < unix_s + 1 and end > unix_s - 1]
        assert min(near, default=0) - 1 <= figures.requests_running <= max(near, default=0) + 1
    assert sampled["tokens_per_s"] > 0
    assert sampled["requests_running"] >= 0

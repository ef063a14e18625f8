"""Where samples go: JSON lines, notices, the thread between sampling and showing."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from support import samples
from support.samples import failed_sample
from tpumon.errors import UsageError
from tpumon.model import Failure, Spread, StepTimes, Target, Workers
from tpumon.outputs import OutputOptions, open_output
from tpumon.system import background as background_module
from tpumon.system.background import Background
from tpumon.view.notices import Notices
from tpumon_exporters.jsonl import open_jsonl


def sample(worker="w", reason=None, **figures):
    if reason is not None:
        return failed_sample(worker, reason, reason, time_unix_s=5.5, **figures)
    return samples.sample(worker, **({"time_unix_s": 5.5, "source": "monitor"} | figures))


def test_a_json_line_is_the_whole_sample(tmp_path):
    """Every field of the contract is there, absent ones as null, a measured zero as 0; one line a sample."""
    output = open_jsonl(str(tmp_path / "out.jsonl"), OutputOptions())
    output.write(
        sample(
            idle_ratio=0.0,
            step_time_s=StepTimes(avg=0.01, min=0.009, max=0.011),
            infeed_ratio=Spread(avg=0.1, min=0.0, max=0.2),
            server_text="TEXT",
        )
    )
    output.write(sample(reason="busy"))
    output.close()
    first, second = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert list(first)[:7] == [
        "schema",
        "worker",
        "address",
        "time_unix_s",
        "window_s",
        "took_s",
        "interval_s",
    ]
    assert first["schema"] == 1
    assert first["idle_ratio"] == 0
    assert first["mxu_utilization_ratio"] is None
    assert first["step_time_s"] == {"avg": 0.01, "min": 0.009, "max": 0.011, "stddev": None, "count": None}
    assert first["infeed_ratio"] == {"avg": 0.1, "min": 0.0, "max": 0.2}
    assert "server_text" not in first
    assert second["source"] is None
    assert second["errors"] == [{"source": "trace", "reason": "busy", "message": "busy", "address": "w:8466"}]


def test_a_sample_is_stale_when_its_query_failed_or_its_time_is_over():
    """2.5 intervals and a window after its start it is no longer the present state."""
    fresh = samples.sample(time_unix_s=100.0, window_s=1.0, interval_s=10.0)
    assert not fresh.is_stale(125.9)
    assert fresh.is_stale(126.1)
    assert sample(reason="busy").is_stale(5.6)


def test_not_a_number_is_never_written(tmp_path):
    """JSON has no NaN; letting one through would be a lie that breaks readers."""
    not_json = pytest.raises(ValueError, match="not JSON compliant")
    with closing(open_jsonl(str(tmp_path / "x"), OutputOptions())) as output, not_json:
        output.write(sample(idle_ratio=float("nan")))


def test_an_unknown_output_is_a_usage_error_that_names_the_known_ones():
    """An output is found by its entry point."""
    with pytest.raises(UsageError, match="jsonl"):
        open_output("carrier-pigeon", "-", OutputOptions())


def test_trouble_is_told_once_per_kind_and_its_end():
    """One line when a worker stops answering, one when the reason changes, one when it is over; none in between."""
    notices = Notices()
    said = [
        notices.update(step)
        for step in (
            sample(), sample(reason="busy"), sample(reason="busy"), sample(reason="unavailable"), sample(), sample(),
        )
    ]  # fmt: skip
    assert [len(lines) for lines in said] == [0, 1, 0, 1, 1, 0]
    assert said[1] == ["w:8466: busy [busy]"]
    assert "answers again after 3 queries" in said[4][0]
    assert notices.answered == {"w"}


def test_an_exporter_that_is_gone_is_told_once_for_all_workers():
    """No line for each of its workers, neither when it goes nor when it is back."""
    away = Failure(source="exporter", reason="unavailable", message="exporter http://h:1: Connection refused")
    notices = Notices()
    gone = [replace(sample(worker=name, reason="unavailable"), errors=(away,)) for name in ("a", "b", "c")]
    back = [sample(worker="a"), sample(worker="b", reason="busy"), sample(worker="c")]
    said = [notices.update(one) for one in (*gone, *gone, *back)]
    assert said[0] == ["exporter http://h:1: Connection refused [unavailable]"]
    assert said[1:6] == [[]] * 5
    assert said[6:] == [["the exporter answers again"], ["b:8466: busy [busy]"], []]


def test_that_a_job_is_traced_is_said_once():
    """The first sample from a trace says what it costs; the figures of a Monitor RPC cost nothing to speak of."""
    notices = Notices()
    traced = samples.sample("w", traced_s=0.62, interval_s=31.0)
    assert notices.update(sample()) == []
    (line,) = notices.update(traced)
    assert "no Monitor RPC there (UNIMPLEMENTED)" in line
    assert "0.6 s this time" in line
    assert "every 31 s" in line
    assert notices.update(traced) == []


def test_what_a_trace_warns_of_is_told_once_a_worker():
    """Dropped events, a peak from the table: said when they first show."""
    notices = Notices()
    assert notices.update(sample(warnings=("3 events dropped",))) == ["w: 3 events dropped"]
    assert notices.update(sample(warnings=("3 events dropped",))) == []
    assert notices.update(sample(warnings=("14 events dropped",))) == []
    assert notices.update(sample(worker="v", warnings=("3 events dropped",))) == ["v: 3 events dropped"]


def test_events_come_in_order_and_the_end_is_the_end():
    """What the thread sends arrives in order; then the iteration ends."""

    async def main(send):
        for number in range(100):
            send(number)
            await asyncio.sleep(0)

    with Background(main) as background:
        assert list(background.events()) == list(range(100))


def test_an_exception_in_the_thread_is_raised_where_events_are_read():
    """An error over there is an error here, after what was sent before it."""

    async def main(send):
        send("last words")
        raise UsageError("no")

    got = []
    with Background(main) as background, pytest.raises(UsageError, match="no"):
        got.extend(background.events())
    assert got == ["last words"]


def test_leaving_ends_the_coroutine_and_its_thread():
    """Cancellation reaches the coroutine, which cleans up before the context is left."""
    cleaned = threading.Event()

    async def main(send):
        try:
            send("started")
            await asyncio.sleep(3600)
        finally:
            cleaned.set()

    with Background(main) as background:
        assert next(background.events()) == "started"
    assert cleaned.is_set()
    assert not any(thread.name == "tpumon-background" for thread in threading.enumerate())


def test_a_reader_that_stands_still_costs_events_not_the_sampler(monkeypatch):
    """Sending never blocks: the oldest are dropped, and counted."""
    monkeypatch.setattr("tpumon.system.background._WAITING_LIMIT", 10)
    sent = threading.Event()

    async def main(send):
        for number in range(25):
            send(number)
        sent.set()

    with Background(main) as background:
        assert sent.wait(10)
        assert list(background.events()) == list(range(15, 25))
        assert background.dropped == 15


def test_waiting_for_events_can_be_interrupted_to_do_something_else():
    """With a timeout, nothing sent for so long is None."""

    async def main(send):
        await asyncio.sleep(3600)

    with Background(main) as background:
        assert next(background.events(timeout_s=0.01)) is None


def test_who_never_answered_is_named():
    """One target by its address; several by their number."""
    one, two = Target(worker="a", address="10.0.0.2:9999"), Target(worker="b", address="10.0.0.3:9999")
    notices = Notices()
    notices.update(Workers(targets=(one,)))
    assert notices.nobody_answered == "10.0.0.2:9999 never answered"
    assert notices.update(Workers(targets=(one, two))) == ["now following b at 10.0.0.3:9999"]
    assert notices.nobody_answered == "none of 2 targets ever answered"


def test_why_there_is_nobody_is_told_once_and_who_comes_and_goes_each_time():
    """WAITING stands once for each reason; workers that leave are named, of many the first few."""
    notices = Notices()
    assert notices.update(Workers(waiting="no job")) == ["WAITING: no job"]
    assert notices.update(Workers(waiting="no job")) == []
    many = tuple(Target(worker=f"w{i}", address=f"w{i}:1") for i in range(8))
    assert notices.update(Workers(targets=many)) == [
        "now following w0 at w0:1, w1 at w1:1, w2 at w2:1, w3 at w3:1, w4 at w4:1 and 3 more"
    ]
    assert notices.update(Workers(targets=many[1:])) == ["no longer following w0"]


def test_what_must_not_be_lost_is_kept_when_the_rest_is_dropped(monkeypatch):
    """Who the workers are outlives a reader that stands still."""
    monkeypatch.setattr(background_module, "_WAITING_LIMIT", 3)
    sent = threading.Event()

    async def main(send):
        for event in ["who", 1, 2, "who else", 3, 4, 5]:
            send(event)
        sent.set()

    with Background(main, keep=lambda event: isinstance(event, str)) as background:
        assert sent.wait(5)
        assert [event for event in background.events() if event is not None] == ["who", "who else", 5]
    assert background.dropped == 4

"""The readers of foreign input. Each takes bytes, and raises for whatever it should not do with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from checks import FoundError, check_figures, check_text
from google.protobuf.message import Message

from support.captures import megacore, nested, training, with_input, with_memory
from support.samples import sample
from support.traces import ALL_REDUCE, ASYNC_DONE, CONV, CUSTOM, INFEED, LOOP, SEND, WHILE, Traced, run_step
from tpumon.cli.commands import analyze
from tpumon.collection.sources import SourceOptions
from tpumon.collection.sources.answers import parse
from tpumon.collection.sources.monitor_rpc import MonitorSource
from tpumon.collection.sources.runtime_rows import METRICS, reading_of
from tpumon.errors import SourceError
from tpumon.model import Query, Sample, Target, bounded
from tpumon.model.documents import encoded
from tpumon.outputs.text_blocks import render_block
from tpumon.proto.profiler_pb2 import MonitorResponse
from tpumon.proto.runtime_metrics_pb2 import Metric, MetricResponse
from tpumon.proto.xplane_pb2 import XSpace
from tpumon.report.comparison import NEEDED, compare
from tpumon.report.profiles import Capture, Choice, HostProfile
from tpumon.report.render import plain_text
from tpumon.report.render.comparison_page import page
from tpumon.report.render.documents import html, markdown
from tpumon.report.sections import SECTIONS, needs, report
from tpumon.simulator.expected_figures import figures as simulated_figures
from tpumon.simulator.monitor_text import monitor_text
from tpumon.simulator.profiler import monitor_result
from tpumon.simulator.scenario import SCENARIOS, SECOND, SimulatedJob
from tpumon.simulator.topology import parse_topology
from tpumon.simulator.trace_writer import TraceOptions, build_trace
from tpumon.xspace.outline import outline
from tpumon.xspace.profile.profile import read_profile
from tpumon.xspace.trace_figures import figures_of_hosts, read_figures

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Reader:
    """One target.

    Attributes:
        run: takes the input.
        seeds: inputs to begin with.
        message: what the input usually is.
        longest: input, in bytes.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    message: type[Message]
    longest: int = 20_000


def _job(scenario: str = "steady", topology: str = "v5e-4") -> SimulatedJob:
    return SimulatedJob(topology=parse_topology(topology), scenario=scenario, seed=1)


def _traces() -> Iterable[bytes]:
    for scenario in SCENARIOS:
        for host_level in (0, 2):
            options = TraceOptions(host_tracer_level=host_level)
            yield build_trace(_job(scenario), 0, start_ns=20 * SECOND, stop_ns=20 * SECOND + 150_000_000,
                              epoch_unix_ns=0, options=options).xspace  # fmt: skip
    yield _rich_trace().bytes()


def _rich_trace() -> Traced:
    """Two chips, a SparseCore, and ops of all kinds."""
    traced = Traced()
    parts = [
        (op, 100.0, {"group_id": 1, "flow": 3})
        for op in (INFEED, CONV, LOOP, ALL_REDUCE, SEND, WHILE, CUSTOM, ASYNC_DONE)
    ]
    for plane in (traced.core(0), traced.core(1, peak_tflops=None), traced.core(0, sparse=0)):
        at_us = 10.0
        for number in range(4):
            at_us = run_step(plane, at_us, [*parts, (None, 50.0)], length_us=1000.0) + 5.0 * number
    host = traced.host()
    for number in range(4):
        host.event("python", "train_step", 1005.0 * number, 900.0, step_num=number, _r=1)
    return traced


def _read_trace(data: bytes) -> None:
    try:
        outline(data)
        trace = read_figures(data, 10)
    except SourceError as error:
        check_text(error.message)
        return
    shown = analyze.file_sample("w", "w.xplane.pb", 0.0, trace)
    _check_sample(shown)


def _report(data: bytes) -> None:
    """Every section, in every form."""
    try:
        profile = read_profile(data, needs(SECTIONS) | NEEDED)
    except SourceError as error:
        check_text(error.message)
        return
    capture = Capture(hosts=(HostProfile(name="w", profile=profile),), figures=figures_of_hosts([profile.trace]))
    made = report(capture, tuple(SECTIONS), Choice())
    comparison = compare(capture, capture, Choice())
    pages = (*made.pages, page(comparison, 20, "a", "b"))
    for found in (made.document, comparison):
        json.loads(encoded(found))
    check_text(plain_text.render(pages, 80), "the report", lines=True)
    check_text(markdown(pages), "the report", lines=True)
    html(pages, "w")


def _report_traces() -> Iterable[bytes]:
    for build in (training, nested, megacore, with_input, with_memory):
        yield build().bytes()


def _check_sample(shown: Sample) -> None:
    """What every output may rely on."""
    plain = shown.to_json()
    json.dumps(plain, allow_nan=False)
    check_figures(plain)
    check_text(render_block(shown, level=2), "the text block", lines=True)
    again = Sample.from_json(json.dumps(plain))
    if bounded(again).to_json() != bounded(Sample.from_json(json.dumps(again.to_json()))).to_json():
        raise FoundError("JSON does not come back", plain)


class _Client:
    """Answers every call with these bytes."""

    address = "w:8466"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def grace_s(self, _path: str) -> float:
        return 1.0

    async def wait_for_turn(self) -> None:
        return None

    async def call(self, path: str, _request: Message, reply_type: type[Message], *, timeout_s: float) -> Message:
        assert timeout_s
        return await parse(self._data, reply_type, path)


def _done(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


def _monitor(data: bytes) -> None:
    source = MonitorSource(_Client(data[:16000]), Target(worker="w", address="w:8466"), SourceOptions())  # type: ignore[arg-type]
    for level in (1, 2):
        try:
            shown = _done(source.fetch(Query(level=level)))
        except SourceError as error:
            check_text(error.message)
            return
        check_text(shown.server_text or "", "the server's text", lines=True)
        _check_sample(bounded(shown))


def _monitor_answers() -> Iterable[bytes]:
    for scenario in ("steady", "idle", "input-bound"):
        job = _job(scenario)
        window = simulated_figures(job, 0, SECOND, 2 * SECOND)
        text = monitor_text(job, window, level=2, unix_s=0.0)
        yield MonitorResponse(data=text, monitor_result=monitor_result(window, level=2)).SerializeToString()
        yield MonitorResponse(data=text).SerializeToString()


def _runtime(data: bytes) -> None:
    """Rows are dealt to all metrics in turn."""
    answer = MetricResponse()
    try:
        answer.ParseFromString(data)
    except Exception:  # noqa: BLE001 - `parse` refuses it
        return
    answers = {}
    for place, name in enumerate(METRICS):
        one = MetricResponse(metric=answer.metric)
        one.metric.name = name
        del one.metric.metrics[:]
        one.metric.metrics.extend(answer.metric.metrics[place :: len(METRICS)] or answer.metric.metrics[:1])
        answers[name] = one.metric
    reading = reading_of(answers)
    _check_sample(bounded(sample("w", figures=reading.figures)))
    for warning in reading.warnings:
        check_text(warning.message, "a warning")


def _metrics() -> Iterable[bytes]:
    for key in ("device-id", "device_ordinal", "core_type"):
        answer = MetricResponse()
        answer.metric.description = "a metric"
        for device in range(18):
            row = answer.metric.metrics.add()
            row.attribute.key = key
            row.attribute.value.int_attr = device // 2
            row.gauge.as_int = 17 << 30
        pair = answer.metric.metrics.add()
        for name, value in (("device_ordinal", "3"), ("core_type", "SPARSE_CORE"), ("error_type", "hang")):
            pair.attribute.value.kvlist_attr.attributes.add(key=name).value.string_attr = value
        pair.gauge.as_double = 12.5
        answer.metric.metrics.append(Metric())
        yield answer.SerializeToString()


TARGETS = {
    "trace": Reader(_read_trace, _traces, XSpace, 60_000),
    "report": Reader(_report, _report_traces, XSpace, 60_000),
    "monitor": Reader(_monitor, _monitor_answers, MonitorResponse),
    "runtime": Reader(_runtime, _metrics, MetricResponse),
}
"""Text, samples and pages are made up by hypothesis; whatever a reader of files raises is in test_edge_readers.py."""

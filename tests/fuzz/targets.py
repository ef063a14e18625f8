"""The readers of foreign input. Each takes bytes, and raises for whatever it should not do with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

from checks import FoundError, check_figures, check_text
from google.protobuf.message import Message

from support.captures import megacore, nested, training, with_input, with_memory
from support.samples import failed_sample, sample
from support.traces import ALL_REDUCE, ASYNC_DONE, CONV, CUSTOM, INFEED, LOOP, SEND, WHILE, Traced, run_step
from tpumon.cli.commands import analyze
from tpumon.cli.process import command_of
from tpumon.collection.remote import TroubleError
from tpumon.collection.remote.exporter import RemoteExporter, SamplesPage
from tpumon.collection.sources import SourceOptions
from tpumon.collection.sources.monitor_rpc import MonitorSource
from tpumon.collection.sources.runtime_rows import METRICS, reading_of
from tpumon.collection.sources.traces.answers import parse
from tpumon.discovery import target_file
from tpumon.discovery.addresses import parse_address, parse_addresses
from tpumon.discovery.host.runtime_ports import parse_runtime_addresses
from tpumon.errors import SourceError, TpumonError, UsageError
from tpumon.model import Query, Sample, Target, Workers, bounded
from tpumon.model.documents import encoded
from tpumon.outputs.text_blocks import render_block
from tpumon.proto.profiler_pb2 import MonitorResponse
from tpumon.proto.runtime_metrics_pb2 import Metric, MetricResponse
from tpumon.proto.xplane_pb2 import XSpace
from tpumon.report.comparison import compare, page
from tpumon.report.profiles import Capture, Choice, HostProfile
from tpumon.report.render import plain_text
from tpumon.report.render.documents import html, markdown
from tpumon.report.sections import SECTIONS, needs, report
from tpumon.simulator.expected_figures import figures as simulated_figures
from tpumon.simulator.monitor_text import monitor_text
from tpumon.simulator.profiler import monitor_result
from tpumon.simulator.scenario import SCENARIOS, SECOND, SimulatedJob
from tpumon.simulator.topology import parse_topology
from tpumon.simulator.trace_writer import TraceOptions, build_trace
from tpumon.untrusted_text import one_line, safe
from tpumon.xspace.outline import outline
from tpumon.xspace.profile.profile import read_profile
from tpumon.xspace.trace_figures import figures, read_figures
from tpumon_exporters import webconfig

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Reader:
    """One target.

    Attributes:
        run: takes the input.
        seeds: inputs to begin with.
        message: what the input usually is, if it is a protobuf message.
        longest: input, in bytes.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    message: type[Message] | None = None
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
        profile = read_profile(data, needs(SECTIONS))
    except SourceError as error:
        check_text(error.message)
        return
    capture = Capture(hosts=(HostProfile(name="w", profile=profile),), figures=figures([profile.trace]))
    made = report(capture, tuple(SECTIONS), Choice())
    comparison = compare(capture, capture, Choice())
    pages = (*made.pages, page(comparison, 20))
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


def _monitor_text(data: bytes) -> None:
    _monitor(MonitorResponse(data=data.decode(errors="replace")[:5000]).SerializeToString())


def _monitor_answers() -> Iterable[bytes]:
    for scenario in ("steady", "idle", "input-bound"):
        job = _job(scenario)
        window = simulated_figures(job, 0, SECOND, 2 * SECOND)
        text = monitor_text(job, window, level=2, unix_s=0.0)
        yield MonitorResponse(data=text, monitor_result=monitor_result(window, level=2)).SerializeToString()
        yield MonitorResponse(data=text).SerializeToString()


def _monitor_texts() -> Iterable[bytes]:
    for answer in _monitor_answers():
        yield MonitorResponse.FromString(answer).data.encode()
    yield b"Step time: 1.95kms (avg), 1.90s (min), 2.00us (max)\nInfeed percentage: 1e2% (avg), 0% (min), 100% (max)\n"


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


def _samples() -> Sequence[Sample]:
    trace = read_figures(next(iter(_traces())), 3)
    return (
        analyze.file_sample("w", "w:8466", 1000.0, trace),
        sample("w", address="w:8466", mxu_utilization_ratio=0.5, devices=[{"device": "0", "hbm_used_bytes": 5}]),
        failed_sample("w", "busy"),
    )


def _sample_json(data: bytes) -> None:
    try:
        shown = Sample.from_json(data)
    except ValueError:
        return
    _check_sample(bounded(shown))


def _page(data: bytes) -> None:
    """A page of samples of an exporter, and what follows from it."""
    samples = SamplesPage("http://w:10466")
    remote = RemoteExporter(samples, clock=lambda: 2000.0)
    try:
        page = samples._checked(200, data)
    except ValueError:
        return  # `malformed`
    except TroubleError as error:
        check_text(str(error))
        return
    events: list[Workers | Sample] = []
    asyncio.run(remote._answered(page, 2000.0, events.append))
    for event in events:
        if isinstance(event, Sample):
            _check_sample(event)
        else:
            check_figures([[target.worker, target.address, target.slice] for target in event.targets])
            check_text(event.waiting or "")


def _pages() -> Iterable[bytes]:
    samples = [each.to_json() for each in _samples()]
    targets = [{"worker": "w", "address": "w:8466", "slice": "s"}]
    page = {"tpumon": "1", "schema": 1, "run": "r", "sequence": 3, "now_unix_s": 1990.0, "targets": targets}
    yield json.dumps({**page, "samples": samples}).encode()
    yield json.dumps({**page, "samples": [], "targets": [], "waiting": "none"}).encode()


def _targets(*, is_yaml: bool) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        try:
            found = target_file._targets(target_file._parse(data.decode(errors="replace"), is_yaml=is_yaml), 8466)
        except target_file._BadFileError as error:
            check_text(one_line(str(error)))
            return
        for target in found:
            check_figures([target.worker, target.address, target.slice])
        if len({target.worker for target in found}) < len(found) or len({t.address for t in found}) < len(found):
            raise FoundError("workers are not unique", found)

    return run


def _target_files() -> Iterable[bytes]:
    groups = [
        {"targets": ["a:1", "[fd00::1]:2", "localhost"], "labels": {"slice": "s"}},
        {"targets": ["b"], "labels": {"worker": "x"}},
    ]
    yield json.dumps(groups).encode()
    yield b"- targets: [a:1, &b 'b:2']\n  labels: {slice: s}\n- targets:\n  - *b\n"


_web_config = Path(mkdtemp(prefix="fuzz-web-"), "web.yml")


def _read_web_config(data: bytes) -> None:
    _web_config.write_bytes(data)
    try:
        config = webconfig._read(_web_config)
    except webconfig._InvalidError as error:
        check_text(str(error), "a message", lines=True)
        return
    for user, hashed in config.users.items():
        if len(hashed) != 60:
            raise FoundError("a user without a hash", user)
    for name, value in config.headers.items():
        if not (name + value).isascii() or "\r" in value or "\n" in value:
            raise FoundError("a header that splits", (name, value))


def _web_configs() -> Iterable[bytes]:
    yield (webconfig.__doc__ or "").partition(":\n\n")[2].partition("\n\nUnknown")[0].encode()
    yield (
        b"basic_auth_users:\n  p: $2y$10$" + b"a" * 53 + b"\nhttp_server_config:\n  headers: {X-Frame-Options: deny}\n"
    )


_ACTING = {"simulate", "pause", "--install-completion", "--show-completion"}


def _options(data: bytes) -> None:
    """A command line: words separated by NUL."""
    words = [word for word in data.decode(errors="replace").split("\0") if word]
    words = [word for word in words if word not in _ACTING]
    try:
        command_of(words)
    except UsageError as error:
        check_text(one_line(str(error)), "a message")
    except TpumonError:
        return


def _command_lines() -> Iterable[bytes]:
    for line in (
        "--service_addr=10.0.0.2:8466 --monitoring_level=2 --num_queries=3",
        "--tpu=x --tpu_zone=z --gcp_project p --logdir /tmp/x --duration_ms 0 --num_tracing_attempts=1",
        "--level 2 --simulate v5e-8 --scenario flaky --output jsonl --interval 0.5 --max-duty 0.2",
        "serve --listen 127.0.0.1:10466 --targets f --export jsonl=/tmp/x",
        "--workers_list a,b --include_dataset_ops=true --service-addr [::1]:9 --host_tracer_level auto",
    ):
        yield line.replace(" ", "\0").encode()


def _text(data: bytes) -> None:
    text = data.decode("latin-1") if data[:1] == b"l" else data.decode(errors="surrogateescape")
    clean = safe(text)
    check_text(clean, "safe text", lines=True)
    if safe(clean) != clean:
        raise FoundError("safe is not idempotent", ascii(text[:100]))
    line = one_line(text)
    check_text(line, "one line")
    if len(line) > 200:
        raise FoundError("a line is too long", len(line))


def _texts() -> Iterable[bytes]:
    yield from (
        b"l\x1b[31mred\x1b]0;title\x07\x9b2J",
        "r\u202eabc\u2028\u2029\u200b".encode(),
        b"l\x1b\x1b[[31m",
        b"\xed\xa0\x80",
    )


def _addresses(data: bytes) -> None:
    text = data.decode(errors="replace")
    for read in (parse_address, lambda one: parse_addresses([one]), lambda one: parse_runtime_addresses([one])):
        try:
            found = read(text)
        except UsageError as error:
            check_text(str(error))
            continue
        check_figures(found)


TARGETS = {
    "trace": Reader(_read_trace, _traces, XSpace, 60_000),
    "report": Reader(_report, _report_traces, XSpace, 60_000),
    "monitor": Reader(_monitor, _monitor_answers, MonitorResponse),
    "monitor-text": Reader(_monitor_text, _monitor_texts),
    "runtime": Reader(_runtime, _metrics, MetricResponse),
    "sample": Reader(_sample_json, lambda: [json.dumps(each.to_json()).encode() for each in _samples()]),
    "page": Reader(_page, _pages, None, 60_000),
    "targets-json": Reader(_targets(is_yaml=False), _target_files),
    "targets-yaml": Reader(_targets(is_yaml=True), _target_files),
    "web-config": Reader(_read_web_config, _web_configs),
    "options": Reader(_options, _command_lines, None, 500),
    "text": Reader(_text, _texts, None, 2000),
    "addresses": Reader(
        _addresses, lambda: [b"[fd00::1]:1", b"grpc://a.b:8470", b"a,b:1,,", b"unix:/run/x"], None, 300
    ),
}

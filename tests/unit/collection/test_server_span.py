"""Figures of a server from its last samples, by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tpumon.collection.sampler.extra_sources import ServerReading
from tpumon.collection.sampler.server_span import ServerSpan, workers_of_servers
from tpumon.model import (
    CoreFigures,
    DeviceFigures,
    Failure,
    FamilyRuns,
    Figures,
    FunctionFigures,
    Sample,
    ServerFigures,
    Target,
    TracedPrograms,
)

SOME = Sample(worker="w", address="a:1", time_unix_s=1.0, source="trace", device_type="TPU v6 Lite", cores=4)
EMPTY = Failure(source="trace", reason="empty-trace", message="nothing ran")


def traced(*programs, busy_s=None, window_s=1.0, server=None, **kwargs):
    """A sample whose trace shows these runs: family and durations."""
    families = tuple(
        FamilyRuns(family=family, durations_s=durations_s, sizes=sizes) for family, durations_s, sizes in programs
    )
    total_s = sum(sum(each.durations_s) for each in families) if busy_s is None else busy_s
    programs = TracedPrograms(families=families, busy_s=total_s, window_s=window_s, **kwargs)
    return changed(SOME, figures=Figures(traced_programs=programs, programs=("1",), server=server))


def changed(sample, **fields):
    return Sample(**{name: getattr(sample, name) for name in Sample.__struct_fields__} | fields)


def empty(window_s=1.0, server=None):
    return Sample(
        worker="w", address="a:1", time_unix_s=1.0, window_s=window_s, errors=(EMPTY,), figures=Figures(server=server)
    )


def says(running=0.0, waiting=0.0, tokens_per_s=None):
    return ServerFigures(requests_running=running, requests_waiting=waiting, tokens_per_s=tokens_per_s)


DECODE = ("decode", (0.1, 0.2, 0.3), (16,))
PREFILL = ("prefill", (0.2,), (64, 128))


def last(*samples, every_s=10.0, extra_read=True, workers=1):
    span = ServerSpan()
    for i, sample in enumerate(samples):
        server = sample.figures.server
        readings = [ServerReading(i * every_s, server)] if extra_read and server is not None else []
        joined = span.joined(sample, i * every_s, readings, workers)
    return joined.figures


def test_what_is_no_server_stays_as_it_is():
    span = ServerSpan()
    for sample in (changed(SOME, figures=Figures(programs=("1",))), empty(), SOME):
        assert span.joined(sample, 0.0, []) is sample


def test_families_and_busy_share():
    """0.8 s of two windows of 1 s; a decode of 0.1 s may begin in 0.9 s of each of them, and so on."""
    server = last(traced(DECODE, PREFILL), empty()).server
    assert server.busy_ratio == pytest.approx(0.4)
    decode, prefill = server.families
    assert (decode.family, prefill.family) == ("decode", "prefill")
    assert decode.executions_per_s == pytest.approx(1 / 1.8 + 1 / 1.6 + 1 / 1.4)
    assert (decode.duration_s.p50, decode.duration_s.p95) == pytest.approx((0.2, 0.29))
    assert (decode.time_ratio, prefill.time_ratio) == pytest.approx((0.75, 0.25))
    assert (decode.sizes, prefill.sizes) == ((16,), (64, 128))


@pytest.mark.parametrize(("duration_s", "runs_per_s"), [(0.1, 1 / 0.9), (0.5, 2.0), (0.9, 2.0)])
def test_a_long_run_is_seldom_seen_whole(duration_s, runs_per_s):
    (step,) = last(traced(("step", (duration_s,), ()))).server.families
    assert step.executions_per_s == pytest.approx(runs_per_s)


def test_runs_that_windows_only_cut_are_not_none_at_all():
    """As where a run is longer than a window."""
    _, step = last(traced(PREFILL, ("step", (), ()), busy_s=1.0)).server.families
    assert (step.family, step.executions_per_s, step.duration_s, step.time_ratio) == ("step", None, None, None)


def test_a_quiet_night_is_idle_time_and_then_all_there_is():
    server = last(traced(DECODE), empty(3.0)).server
    assert server.busy_ratio == pytest.approx(0.15)
    figures = last(traced(DECODE), *[empty()] * 13)
    assert (figures.server.busy_ratio, figures.server.families) == (0.0, ())


def test_windows_of_two_minutes_count():
    assert last(traced(DECODE), empty(), every_s=120.0).server.busy_ratio == pytest.approx(0.3)
    assert last(traced(DECODE), empty(), every_s=121.0).server.busy_ratio == 0.0


def test_programs_of_others_are_no_idle_time():
    training = changed(SOME, figures=Figures(functions=(FunctionFigures(name="train", runs=3),), programs=("1",)))
    assert last(traced(DECODE), training).server.busy_ratio == pytest.approx(0.6)
    assert last(traced(DECODE), training, training, every_s=100.0).server is None


def test_a_window_with_the_end_of_a_step_alone_counts_where_a_server_is_known():
    """It is as long as others, and nearly idle; of another job it says nothing."""
    sampling = traced(("sample", (0.1,), ()), runs_model=False)
    assert last(traced(DECODE), sampling).server.busy_ratio == pytest.approx(0.35)
    assert last(sampling, sampling).server is None
    training = changed(SOME, figures=Figures(functions=(FunctionFigures(name="train", runs=3),), programs=("1",)))
    assert last(traced(DECODE), sampling, training, every_s=70.0).server is None


def test_a_failure_shows_nothing():
    busy = changed(empty(), errors=(Failure(source="trace", reason="busy", message="someone else"),))
    assert last(traced(DECODE), busy).server is None
    assert last(traced(DECODE), busy, traced(DECODE)).server.busy_ratio == pytest.approx(0.6)


def test_forgotten():
    span = ServerSpan()
    span.joined(traced(DECODE), 0.0, [])
    span.forget()
    assert span.joined(empty(), 1.0, []).figures.server is None


def test_calls_alone_say_nothing_of_busy_time():
    calls = traced(DECODE)
    programs = TracedPrograms(families=calls.figures.traced_programs.families, busy_s=None, window_s=1.0)
    figures = last(changed(calls, figures=Figures(traced_programs=programs)))
    assert figures.server.busy_ratio is None
    assert figures.server.families[0].time_ratio is None
    assert "calls" in figures.absent["busy_ratio"]


def test_padding():
    """140 of 200 tokens of two windows; a third annotates none."""
    server = last(
        traced(DECODE, real_tokens=100, padded_tokens=128), traced(DECODE, real_tokens=40, padded_tokens=72),
        traced(DECODE),
    ).server  # fmt: skip
    assert server.padding_ratio == pytest.approx(0.3)
    assert "annotates no batch" in last(traced(DECODE)).absent["padding_ratio"]


def test_device_time_per_token():
    """Busy for 0.6 of the time on each of 4 cores, for 24 tokens a second: 12 for 10 s, then 36 for 10 s."""
    samples = [traced(DECODE, server=says(tokens_per_s=rate)) for rate in (None, 12.0, 36.0)]
    server = last(*samples).server
    assert server.device_s_per_token == pytest.approx(0.1)
    assert server.device_time_source == "programs"
    assert last(*samples, extra_read=False).server.device_s_per_token is None  # nothing new was said


def test_tokens_count_that_are_told_between_two_samples():
    """As a page is read again where nothing ran: 12 a second for 4 s, and then none for 6 s."""
    span = ServerSpan()
    for at_s, rates in ((0.0, {0.0: None}), (10.0, {4.0: 12.0, 10.0: 0.0})):
        readings = [ServerReading(when_s, says(tokens_per_s=rate)) for when_s, rate in rates.items()]
        figures = span.joined(traced(DECODE), at_s, readings).figures
    assert figures.server.device_s_per_token == pytest.approx(0.6 * 4 / 4.8)


def test_requests_are_those_as_a_window_began():
    """Also where the page was read again after it."""
    span = ServerSpan()
    for at_s in (0.0, 10.0):
        readings = [ServerReading(at_s, says(8)), ServerReading(at_s + 5.0, says(0))]
        figures = span.joined(traced(DECODE), at_s, readings).figures
    assert figures.server.host_gap_ratio == pytest.approx(0.4)


def test_tokens_of_each_chip():
    """Of two chips with two cores each, which a trace told; an empty one tells none."""
    cores = tuple(CoreFigures(chip=chip, core=core) for chip in (0, 1) for core in (0, 1))
    sample = traced(DECODE, server=says(tokens_per_s=12.0))
    fields = {name: getattr(sample.figures, name) for name in Figures.__struct_fields__} | {"per_core": cores}
    first = changed(sample, figures=Figures(**fields))
    assert last(first, empty(server=says(tokens_per_s=12.0))).server.tokens_per_s_per_chip == 6.0
    assert "how many chips" in last(sample).absent["tokens_per_s_per_chip"]
    assert "how many tokens" in last(traced(DECODE)).absent["tokens_per_s_per_chip"]


def test_device_time_per_token_is_of_the_windows_whose_tokens_are_counted():
    """The tokens of the last one come with the next reading."""
    samples = [traced(DECODE, server=says(tokens_per_s=rate)) for rate in (None, 12.0, 12.0)]
    last_one = traced(DECODE, busy_s=0.0, server=says(tokens_per_s=12.0))
    assert last(*samples, last_one).server.device_s_per_token == pytest.approx(0.6 * 4 / 12)
    assert last(*samples, last_one, last_one).server.device_s_per_token == pytest.approx(0.45 * 4 / 12)


def test_libtpus_duty_cycle_is_the_better_witness():
    devices = tuple(DeviceFigures(device=str(i), runtime_duty_cycle_ratio=ratio) for i, ratio in enumerate((0.2, 0.4)))
    sample = traced(DECODE, server=says(tokens_per_s=12.0))
    fields = {name: getattr(sample.figures, name) for name in Figures.__struct_fields__} | {"devices": devices}
    server = last(*[changed(sample, figures=Figures(**fields))] * 2).server
    assert server.device_s_per_token == pytest.approx(0.3 * 4 / 12)
    assert server.device_time_source == "libtpu"
    assert server.busy_ratio == pytest.approx(0.6)


def test_why_there_is_no_time_per_token():
    assert "nothing tells how many tokens" in last(traced(DECODE)).absent["device_s_per_token"]
    none = traced(DECODE, server=says(tokens_per_s=0.0))
    assert "no token" in last(none, none).absent["device_s_per_token"]


def test_host_gap_while_there_are_requests():
    """Of ten windows with requests 6 s are busy, 4 s are not; the quiet one does not count."""
    having, without = traced(DECODE, server=says(1, 3)), empty(server=says())
    server = last(*[having] * 9, without, every_s=1.0).server
    assert server.host_gap_ratio == pytest.approx(0.4)
    waiting = empty(server=says(0, 5))
    assert last(having, having, waiting).server.host_gap_ratio == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ([traced(DECODE)] * 3, "nothing tells its requests"),
        ([traced(DECODE, server=ServerFigures(requests_waiting=2))] * 3, "nothing tells its requests"),
        ([traced(DECODE, server=says(20)), traced(DECODE)], "no requests, or few"),
        ([traced(DECODE, server=says(1))] * 9, "no requests, or few"),
        # Each request lasts for a part of a window: whether one was there when it began says little of the rest.
        ([*[traced(DECODE, server=says(5))] * 8, empty(server=says())], "come and go"),
    ],
)
def test_host_gap_that_cannot_be_told(samples, why):
    figures = last(*samples)
    assert figures.server.host_gap_ratio is None
    assert why in figures.absent["host_gap_ratio"]


def test_requests_and_tokens_of_several_engines_are_not_joined_with_the_programs_of_one():
    """Which would make its tokens cheap, and an idle one of them wait for its host."""
    figures = last(*[traced(DECODE, server=replace(says(8, tokens_per_s=12.0), engines=4))] * 3)
    for name in ("host_gap_ratio", "device_s_per_token", "tokens_per_s_per_chip"):
        assert getattr(figures.server, name) is None
        assert figures.absent[name] == "its page counts the requests of 4 engines together"


def test_tokens_of_several_workers_are_not_joined_with_the_chips_of_one():
    """Which has a part of the work of each token; the host gap is that of all."""
    cores = (CoreFigures(chip=0, core=0),)
    sample = traced(DECODE, server=says(8, tokens_per_s=12.0))
    fields = {name: getattr(sample.figures, name) for name in Figures.__struct_fields__} | {"per_core": cores}
    sample = changed(sample, figures=Figures(**fields))
    for name in ("device_s_per_token", "tokens_per_s_per_chip"):
        assert getattr(last(*[sample] * 3).server, name) is not None
        figures = last(*[sample] * 3, workers=4)
        assert getattr(figures.server, name) is None
        assert figures.absent[name] == "its page counts the tokens of 4 workers together"
    assert figures.server.host_gap_ratio == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("targets", "workers"),
    [
        ({"a": {"slice_workers": 4}, "b": {"slice_workers": 4, "page": None}}, {"a": 4, "b": 4}),
        ({"a": {"independent": True, "slice_workers": 2}}, {"a": 2}),
        ({"a": {}, "b": {"page": None}}, {"a": 2, "b": 2}),
        ({"a": {}, "b": {}}, {}),  # replicas, each with a page of its own
        ({"a": {"slice": "s"}, "b": {"slice": "t", "page": None}}, {}),
        ({"a": {"independent": True}, "b": {"independent": True, "page": None}}, {}),
    ],
)
def test_workers_of_a_server_are_those_of_a_slice_with_fewer_pages(targets, workers):
    made = []
    for worker, target in targets.items():
        page = target.pop("page", f"http://{worker}/metrics")
        made.append(Target(worker=worker, address=f"{worker}:1", server_metrics=page, **target))
    assert workers_of_servers(made) == workers


def test_what_a_server_says_of_itself_stays():
    server = last(traced(DECODE, server=says(2, 1, 5.0))).server
    assert (server.requests_running, server.requests_waiting, server.tokens_per_s) == (2, 1, 5.0)
    assert server.families
    figures = last(changed(SOME, figures=Figures(server=says(2))))
    assert figures.server.requests_running == 2
    assert {"busy_ratio", "padding_ratio"} <= figures.absent.keys()

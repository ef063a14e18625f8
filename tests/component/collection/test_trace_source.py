"""Figures from traces, against simulated workers over real gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections import Counter
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from fakes.tpu_node import Hang, TpuNode, Trace
from support.samples import figures_of
from support.scenes import Scene
from support.simulated import Clock, fleet_of
from tpumon import proto as wire
from tpumon.collection.sources import Client, SourceOptions
from tpumon.collection.sources.traces.source import TraceSource
from tpumon.collection.sources.traces.window import Window, figures_of_window
from tpumon.discovery.host.processes import state_of
from tpumon.errors import SourceError
from tpumon.model import LONGEST_WINDOW_S, FamilyRuns, Figures, JobSigns, Query, StepTimes, Target, TracedPrograms
from tpumon.model.progress import Progress
from tpumon.proto.profiler_pb2 import TerminateRequest, TerminateResponse
from tpumon.system.logdir import LocalLogDir
from tpumon.xspace.trace_figures import TraceFigures

DEFAULTS = SourceOptions()
QUERY = Query(level=2, window_s=0.2)


class Watched(Client):
    """A client that notes what was asked."""

    def __init__(self, address):
        super().__init__(address)
        self.asked = []

    async def call(self, path, request, reply_type, *, timeout_s):
        assert timeout_s >= 10
        self.asked.append((path, request))
        return await super().call(path, request, reply_type, timeout_s=timeout_s)

    @property
    def traces(self):
        """The Profile requests after the probe."""
        return [request for path, request in self.asked if path == wire.PROFILE and request.opts.duration_ms > 1]


async def until(condition):
    """Polls."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - other threads and the network have no event to wait for
            await asyncio.sleep(0.01)


def ask(*queries, topology="v5e-8", options=DEFAULTS, between=None, **settings):
    """One worker's samples for these queries, and the client that got them."""

    async def main():
        async with fleet_of(topology, **settings) as fleet:
            (target,) = fleet.targets
            async with Watched(target.address) as client:
                source = client.source = TraceSource(client, target, options)
                samples = []
                for number, query in enumerate(queries):
                    if number and between is not None:
                        await between(fleet, client)
                    samples.append(await source.fetch(query))
                return samples, client

    return asyncio.run(main())


def test_a_trace_becomes_the_figures_of_its_window():
    """All figures of level 2, labelled with how they were got, and marked simulated."""
    (sample,), client = ask(Query(level=2, window_s=0.5))
    assert (sample.source, sample.simulated, sample.device_type, sample.cores) == ("trace", True, "TPU v5 Lite", 8)
    assert (sample.figures.mxu_method, sample.figures.step_source) == ("counter", "steps")
    assert 0 < sample.figures.mxu_utilization_ratio < 1
    assert 0 < sample.figures.idle_ratio < 1
    assert 0.05 < sample.figures.step_time_s.avg < 0.08
    assert 0 < sample.figures.infeed_ratio.avg < 0.1
    assert sample.traced_s >= 0.5
    assert len(sample.figures.per_core) == 8
    assert [request.opts.duration_ms for request in client.traces] == [500]


@pytest.mark.parametrize(("ran_s", "step", "known"), [(0.01, None, False), (0.9, None, True), (0.01, 0.005, True)])
def test_shares_of_a_moment_before_the_job_stopped_are_not_those_of_the_window(ran_s, step, known):
    """Less than a step ran, and then nothing: the device was not busy all the time."""
    times = None if step is None else StepTimes(avg=step, min=step, max=step)
    figures = Figures(idle_ratio=0.0, mxu_utilization_ratio=0.0, step_time_s=times)
    told = figures_of_window(SimpleNamespace(figures=figures, core_count=8, truncated=None, window_s=ran_s), 1.0)
    assert (told.idle_ratio is not None, told.mxu_utilization_ratio is not None) == (known, known)
    assert told.absent.get("idle_ratio") == (None if known else "the device ran for 0.01 s of 1 s, no whole step")


def test_level_1_takes_the_same_trace_and_shows_less():
    """Type and matrix units, nothing else."""
    (sample,), client = ask(Query(level=1, window_s=0.2))
    assert sample.figures.mxu_utilization_ratio is not None
    assert (
        sample.figures.idle_ratio,
        sample.figures.step_time_s,
        sample.figures.infeed_ratio,
        sample.figures.per_core,
    ) == (None, None, None, ())
    assert set(sample.figures.absent) <= {"mxu_utilization_ratio"}
    assert len(client.traces) == 1


def test_a_server_is_probed_once_and_harmlessly():
    """First a trace of 1 ms without host events into /dev/null, once; then samples, each with an id of its own."""
    _, client = ask(QUERY, QUERY, QUERY)
    paths = Counter(path for path, _ in client.asked)
    assert paths[wire.PROFILE] == 4
    assert paths[wire.GET_SNAPSHOT] == 0  # no host events are wanted of a job with devices
    probe = client.asked[0][1]
    assert (probe.opts.duration_ms, probe.opts.host_tracer_level, probe.opts.python_tracer_level) == (1, 0, 0)
    requests = [request for path, request in client.asked if path == wire.PROFILE]
    assert len({request.session_id for request in requests}) == 4
    assert {request.repository_root for request in requests} == {"/dev/null"}
    assert {request.opts.host_tracer_level for request in requests} == {0}  # it has devices
    assert not any(request.opts.enable_hlo_proto for request in requests)


def test_a_server_that_went_away_is_probed_again():
    """What comes back at the same port may be of a generation that host events would hang."""

    async def restart(fleet, client):
        (worker,) = fleet._workers
        await worker.stop()
        await until(lambda: not client.connected)
        await worker.start()

    _, client = ask(QUERY, QUERY, between=restart)
    probes = [request for path, request in client.asked if path == wire.PROFILE and request.opts.duration_ms == 1]
    assert len(probes) == 2


def test_a_failure_makes_it_probe_again():
    """A worker that failed in between may have been replaced, even if another call has connected since."""

    async def fail_once(fleet, client):
        (worker,) = fleet._workers
        await worker.stop()
        await until(lambda: not client.connected)
        with pytest.raises(SourceError):
            await client.source.fetch(QUERY)
        await worker.start()
        await until_answered(client)

    async def until_answered(client):
        async with asyncio.timeout(10):
            while not client.connected:
                with contextlib.suppress(SourceError):
                    await client.call(wire.TERMINATE, TerminateRequest(), TerminateResponse, timeout_s=30)

    _, client = ask(QUERY, QUERY, between=fail_once)
    probes = [request for path, request in client.asked if path == wire.PROFILE and request.opts.duration_ms == 1]
    assert len(probes) == 3  # the one in the middle went nowhere


@pytest.mark.parametrize(("server", "may_hang"), [("new", False), ("2025", True)])
def test_host_events_are_taken_as_asked(server, may_hang):
    """An explicit level is sent, safe or not; one that may hang the job is begun with the time noted."""
    begun_s = []

    class Noting(Watched):
        async def call(self, path, request, reply_type, *, timeout_s):
            if path == wire.PROFILE and request.opts.duration_ms > 1:
                begun_s.append(source.unanswered_s)
            return await super().call(path, request, reply_type, timeout_s=timeout_s)

    async def main():
        nonlocal source
        async with fleet_of(server=server) as fleet, Noting(fleet.targets[0].address) as client:
            source = TraceSource(client, fleet.targets[0], SourceOptions(host_level=2))
            await source.fetch(QUERY)
            return client

    source = None
    client = asyncio.run(main())
    assert source.unanswered_s == 0.0
    assert [request.opts.host_tracer_level for request in client.traces] == [2]
    assert [bool(one) for one in begun_s] == [may_hang]


def test_an_old_server_on_this_host_writes_into_a_private_directory_that_goes_again(tmp_path, monkeypatch):
    """Servers that cannot return traces are read by way of a temporary directory."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (sample,), client = ask(QUERY, server="old")
    assert sample.source == "trace"
    assert sample.figures.mxu_utilization_ratio is not None
    assert client.traces[0].repository_root.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_an_old_server_may_write_into_the_users_directory_and_nothing_stays(tmp_path):
    """With --logdir its traces go there, are read, and are removed."""
    (sample,), client = ask(QUERY, server="old", options=SourceOptions(logdir=LocalLogDir(str(tmp_path))))
    assert sample.source == "trace"
    assert client.traces[0].repository_root == f"{tmp_path}/plugins/profile"
    assert [path for path in tmp_path.rglob("*") if path.is_file() or "tpumon" in path.name] == []


def test_an_old_server_elsewhere_is_not_made_to_write_anywhere(monkeypatch):
    """Without a --logdir, a server of another host is left alone, and told why."""
    monkeypatch.setattr("tpumon.model.target.Address.is_this_host", False)
    with pytest.raises(SourceError, match="give a --logdir") as caught:
        ask(QUERY, server="old")
    assert caught.value.reason == "refused"


async def test_someone_elses_session_is_left_alone():
    """Busy is a reason of its own, and costs the job nothing."""
    async with fleet_of("v5e-8") as fleet:
        (target,) = fleet.targets
        async with Watched(target.address) as owner, Watched(target.address) as client:
            owners = asyncio.create_task(TraceSource(owner, target, SourceOptions()).fetch(Query(level=2, window_s=1)))
            await until(lambda: fleet._workers[0].service._session and owner.traces)
            with pytest.raises(SourceError) as caught:
                await TraceSource(client, target, SourceOptions()).fetch(Query(level=2, window_s=0.001))
            assert (await owners).figures.step_time_s is not None
            error = caught.value
    assert (error.reason, error.traced_s) == ("busy", 0)


def test_a_trace_without_events_says_so_and_counts_as_tracing():
    """An empty trace is a failed query that names the worker, and its time counts."""
    with pytest.raises(SourceError) as caught:
        ask(QUERY, scenario="idle")
    assert caught.value.reason == "empty-trace"
    assert caught.value.traced_s >= 0.2
    assert str(caught.value).startswith("127.0.0.1:")


def test_the_window_is_about_two_steps():
    """A little more, so that one is whole; from 100 ms on, beyond 2 s only for steps that need it."""
    window = Window()
    assert 0.1 <= window.length_s <= 2
    for step_s, length_s in ((0.1, 0.225), (0.4, 0.9), (0.8, 1.8), (0.001, 0.1), (1.0, 2.25)):
        window.learn(step_s)
        assert window.length_s == pytest.approx(length_s)


@pytest.mark.parametrize("source", ["steps", "modules"])
def test_the_window_of_level_1_is_one_step(source):
    """Whatever a window must hold for level 2."""
    window = Window()
    window.learn(0.3, source)
    assert window.of_level(1) == pytest.approx(0.3)
    window.learn(0.01, source)
    assert window.of_level(1) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("known_s", "level", "window_s"), [(0.14, 2, 0.14), (9.0, 2, 2.0), (0.001, 1, 0.1), (None, 2, 0.5)]
)
def test_the_first_window_may_be_known_from_another_tpumon(known_s, level, window_s):
    """Within the usual bounds; what this one has seen itself counts more."""
    window = Window()
    assert window.of_level(level, known_s) == pytest.approx(window_s)
    window.grow(2.0)
    assert window.of_level(2, known_s) == 1.0


def test_a_window_that_another_tpumon_has_found_shows_the_steps_and_is_no_longer_than_it_must_be():
    """The first one was longer: it was a guess."""

    async def main():
        async with fleet_of("v5e-8") as fleet:
            (target,) = fleet.targets
            async with Watched(target.address) as client:
                first, second = (TraceSource(client, target, DEFAULTS) for _ in range(2))
                query = Query(level=2)
                guessed_s = first.window_s(query)
                await first.fetch(query)
                query = Query(level=2, known_window_s=first.window_s(query))
                sample = await second.fetch(query)
                return guessed_s, first.window_s(query), sample.window_s, sample.figures.step_time_s

    guessed_s, known_s, window_s, steps = asyncio.run(main())
    assert guessed_s > 2 * known_s
    assert window_s <= known_s
    assert steps is not None


def test_the_window_grows_until_a_step_fits_to_10_s_at_most():
    """Steps longer than the window are found by and by."""
    window = Window()
    lengths = []
    for _ in range(8):
        window.grow(10.0)
        lengths.append(window.length_s)
    assert lengths == sorted(lengths)
    assert lengths[-1] == 10
    window.learn(1.5)
    assert window.length_s == 3.375
    window.grow(2.0)
    assert window.length_s == 3.375  # without evidence of longer steps it grows to 2 s only
    window.learn(6.0)
    assert window.length_s == 10


NO_STEP = TraceFigures(
    device_type="CPU",
    core_count=0,
    window_s=0.1,
    simulated=False,
    hostnames=(),
    warnings=(),
    truncated=None,
    figures=Figures(),
)
"""Of a job on a CPU."""


def test_a_job_that_compiles_before_its_first_step_is_looked_at_again_soon():
    """A longer window would show no step either, and the next trace would be put off by it; not for ever."""
    window = Window()
    assert not window.note_compiling(None)
    assert not window.note_compiling(0.05)
    assert window.length_s == 0.5
    assert window.note_compiling(0.9)
    assert window.length_s == 0.25
    window.learn(1.0)
    before_s = window.length_s
    assert [window.note_compiling(0.9) for _ in range(9)] == [True] * 8 + [False]
    assert window.length_s == before_s, "once a step is known it stays"


def test_a_trace_of_a_job_that_compiles_does_not_make_the_window_grow():
    def lengths_after(compile_ratio):
        async def main():
            async with Client("127.0.0.1:1") as client:
                source = TraceSource(client, Target(worker="w", address="127.0.0.1:1"), DEFAULTS)
                trace = replace(NO_STEP, figures=Figures(compile_ratio=compile_ratio))
                source._learn(trace, Query(level=2))
                return source.window_s(Query(level=2))

        return asyncio.run(main())

    assert lengths_after(0.9) == 0.25
    assert lengths_after(0.0) >= 0.5


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (Figures(compile_ratio=0.9), "probably compiling, as in the last trace with events"),
        (Figures(compile_ratio=0.0), "the trace holds no event"),
        (Figures(compile_ratio=0.9, step_time_s=StepTimes(avg=0.1, min=0.1, max=0.1)), "the trace holds no event"),
        (None, "the trace holds no event"),
    ],
)
async def test_a_trace_without_an_event_after_one_that_showed_compiling_says_so(last, words):
    """A compilation shows once it is over: a window within it looks as if nothing ran."""
    with TpuNode(generation="new", captures=[Trace(empty=True)]) as node:
        async with Client(node.address) as client:
            source = TraceSource(client, Target(worker="w", address=node.address), DEFAULTS)
            if last is not None:
                source._learn(replace(NO_STEP, figures=Figures(compile_ratio=0.9)), QUERY)
                source._learn(replace(NO_STEP, figures=last), QUERY)
            with pytest.raises(SourceError) as caught:
                await source.fetch(QUERY)
    assert (caught.value.reason, caught.value.message.startswith(words)) == ("empty-trace", True)


def test_a_window_that_had_to_be_short_is_longer_again_once_no_step_fits():
    """After short steps whose traces were too large, the program runs long ones."""
    window = Window()
    window.learn(0.005)
    window.shrink()
    lengths = []
    for _ in range(16):
        window.grow(10.0)
        lengths.append(window.length_s)
    assert lengths[:3] == pytest.approx([0.1] * 3), "not at once: such traces were too large"
    assert lengths[-1] == pytest.approx(1.6)


def test_a_window_made_for_short_steps_recovers_where_the_next_program_shows_none():
    """Of its many functions a short window holds too few runs to tell which one is the step."""

    async def main():
        async with Watched("127.0.0.1:1") as client:
            source = TraceSource(client, Target(worker="a", address="127.0.0.1:1"), DEFAULTS)
            source._window.learn(0.005)
            for _ in range(4):
                source._learn(replace(NO_STEP, stepless=True), Query(level=2))
            return source._window.length_s

    assert asyncio.run(main()) == pytest.approx(0.5)


def requests_at_random(idle_ratio, *, stepless=True):
    """What a trace of a server shows whose requests come at random times."""
    programs = TracedPrograms(families=(FamilyRuns(family="step", durations_s=(0.02,)),))
    return TraceFigures(
        device_type="TPU v6 Lite",
        core_count=1,
        window_s=0.3,
        simulated=False,
        hostnames=(),
        warnings=(),
        truncated=None,
        figures=Figures(idle_ratio=idle_ratio, traced_programs=programs),
        stepless=stepless,
    )


@pytest.mark.parametrize(
    ("trace", "allowed_s", "window_s"),
    [
        (requests_at_random(0.9), 2.1, 2.0),  # 0.1 s for collecting
        (requests_at_random(0.1), 4.1, 4.0),
        (requests_at_random(0.9, stepless=False), 2.1, 2.0),
        (requests_at_random(None), 100.0, 10.0),
        (requests_at_random(0.9), 0.1, 0.5),
        (requests_at_random(0.9), None, 0.5),
        (requests_at_random(0.1, stepless=False), 2.1, 1.0),  # within a long step, maybe: twice as long
    ],
)
def test_the_window_of_a_server_without_steps_is_as_long_as_duty_allows(trace, allowed_s, window_s):
    async def main():
        async with Watched("127.0.0.1:1") as client:
            source = TraceSource(client, Target(worker="a", address="127.0.0.1:1"), DEFAULTS)
            source._profiler.saw_devices()
            for _ in range(1 if window_s == 1.0 else 3):
                source._learn(trace, Query(level=2, allowed_s=allowed_s))
            learned_s = source._window.length_s
            source._learn(None, Query(level=2))
            assert source._window.length_s == learned_s or window_s == 1.0, "nothing runs now"
            return learned_s

    assert asyncio.run(main()) == pytest.approx(window_s)


def test_an_empty_trace_says_how_long_nothing_ran():
    with pytest.raises(SourceError) as caught:
        ask(QUERY, scenario="idle")
    assert caught.value.window_s == 0.2


def test_the_automatic_window_follows_the_steps():
    """Without a window from the user, the second trace is about two of the first one's steps long."""
    automatic = Query(level=2)
    _, client = ask(automatic, automatic)
    first, second = (request.opts.duration_ms for request in client.traces)
    assert first == 500
    assert 100 <= second <= 160


def test_the_automatic_window_holds_a_step_without_step_markers_wherever_it_begins():
    """A JAX job: a step lasts from one run to the next, and a trace holds whole runs alone."""
    window = Window()
    step_s = Scene("jax", "v5e-1", window_s=2.0).sample(0, 30.0).figures.step_time_s.avg
    window.learn(step_s, "modules")
    scene = Scene("jax", "v5e-1", window_s=window.length_s)
    for phase in range(20):
        figures = scene.sample(0, 30.0 + step_s * phase / 20).figures
        assert figures.step_source == "modules", phase


def test_a_connection_that_breaks_in_a_window_has_cost_the_job_that_window():
    """What failed after the start counts as tracing: a proxy that cuts long calls must not make it free."""

    async def main():
        async with fleet_of("v5e-8") as fleet:
            (target,), (worker,) = fleet.targets, fleet._workers
            async with Watched(target.address) as client:
                asked = asyncio.create_task(TraceSource(client, target, DEFAULTS).fetch(Query(level=2, window_s=30)))
                await until(lambda: worker.service._session and client.traces)
                await asyncio.sleep(0.05)  # the time that has to be paid
                await worker.stop()
                with pytest.raises(SourceError) as caught:
                    await asked
                return caught.value

    assert asyncio.run(main()).traced_s >= 0.05


async def test_a_call_without_an_answer_has_cost_what_is_likely(monkeypatch):
    """Nobody knows if a stalled job was traced: its window, and collecting as it took before; never the whole wait."""
    monkeypatch.setattr("tpumon.collection.sources.traces.profile_rpc.ANSWER_GRACE_S", 1.5)
    with TpuNode(captures=[Trace(), Hang()], device=True) as node:
        async with Client(node.address) as client:
            source = TraceSource(client, Target(worker="w", address=node.address), DEFAULTS)
            query = Query(level=2, window_s=0.1)
            before = await source.fetch(query)
            with pytest.raises(SourceError) as caught:
                await source.fetch(query)
            before_s, likely_s, error = before.traced_s, source.likely_s(query), caught.value
    assert error.reason == "deadline"
    assert error.traced_s == pytest.approx(likely_s, abs=0.05)
    assert 0.1 <= error.traced_s <= before_s + 0.1


class Late(Client):
    """A client whose answers come a second late."""

    async def call(self, path, request, reply_type, *, timeout_s):
        reply = await super().call(path, request, reply_type, timeout_s=timeout_s)
        await asyncio.sleep(1.0)
        return reply


@pytest.fixture
def job():
    """A process of its own."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("stopped", [True, False])
async def test_the_time_for_which_a_signal_had_stopped_the_job_is_not_counted_as_traced(job, stopped):
    """Or a job that was stopped for 10 s amid a trace would not be looked at again for a quarter of an hour."""
    with TpuNode(captures=[Trace()], device=True) as node:
        async with Late(node.address) as client:
            seen = SourceOptions(signs_at=lambda _address: JobSigns(pid=job.pid), state_of=state_of)
            source = TraceSource(client, Target(worker="w", address=node.address), seen)
            query = Query(level=2, window_s=0.1)
            await source.probe()
            if stopped:
                job.send_signal(signal.SIGSTOP)
            sample = await source.fetch(query)
    if stopped:
        assert max(sample.traced_s, source.likely_s(query)) < 0.6
    else:
        assert min(sample.traced_s, source.likely_s(query)) > 1.0


def test_a_bug_in_the_analysis_does_not_make_tracing_free(monkeypatch):
    """An unexpected exception after the trace is a failed query that has cost what the trace has cost."""

    async def bug(_xspace, _ops):
        raise IndexError("odd")

    monkeypatch.setattr("tpumon.collection.sources.traces.readers.QUICK.read", bug)
    with pytest.raises(SourceError, match="a bug in tpumon: IndexError: odd") as caught:
        ask(QUERY)
    assert caught.value.reason == "internal"
    assert caught.value.traced_s >= 0.2


def test_an_old_server_whose_files_cannot_be_seen_writes_one_and_no_more(monkeypatch):
    """In a container of its own each trace would stay on its disk; after the first it is not asked again."""
    monkeypatch.setattr("tpumon.collection.sources.traces.profile_rpc._SHARED_DIRECTORY_S", 0.0)
    monkeypatch.setattr(LocalLogDir, "load", lambda *_: None)

    async def main():
        async with fleet_of("v5e-8", server="old") as fleet:
            (target,) = fleet.targets
            async with Watched(target.address) as client:
                source = TraceSource(client, target, DEFAULTS)
                for _ in range(3):
                    with pytest.raises(SourceError, match="visible from here") as caught:
                        await source.fetch(QUERY)
                    assert caught.value.reason == "refused"
                return client

    assert len(asyncio.run(main()).traces) == 1


def test_an_idle_device_does_not_make_the_window_grow_beyond_two_seconds():
    """Windows without a step are no evidence of long steps while the device is idle."""

    async def main():
        async with fleet_of("v5e-8", scenario="idle") as fleet:
            (target,) = fleet.targets
            async with Watched(target.address) as client:
                source = TraceSource(client, target, DEFAULTS)
                source._window.learn(0.1 / 2.25)
                for _ in range(2):
                    with pytest.raises(SourceError):
                        await source.fetch(Query(level=2))
                grown_s = source._window.length_s
                source._window.learn(1.5 / 2.25)
                source._learn(None, Query(level=2))
                return grown_s, source._window.length_s

    assert asyncio.run(main()) == (pytest.approx(0.4), 2.0)


def test_a_job_that_stands_still_does_not_make_the_window_grow():
    """It is asked as often as before: at 1 % of its time, ten times as long a window comes ten times as rarely."""

    async def main():
        async with fleet_of("v5e-8") as fleet:
            (target,) = fleet.targets
            async with Watched(target.address) as client:
                source = TraceSource(client, target, DEFAULTS)
                await source.fetch(Query(level=2))
                known_s = source._window.length_s
                for _ in range(4):
                    source._learn(None, Query(level=2))
                return source._window.length_s / known_s

    assert asyncio.run(main()) == 1


def test_the_window_grows_again_for_the_next_process_until_it_has_had_steps():
    """Nothing listened at the port in between; its steps may be longer than any window of the one before."""

    async def main():
        async with Watched("127.0.0.1:1") as client:
            source = TraceSource(client, Target(worker="a", address="127.0.0.1:1"), DEFAULTS)
            source._had_steps = True
            source._window.learn(0.01)
            with pytest.raises(SourceError, match="refused"):
                await source.fetch(Query(level=2))
            source._profiler.saw_devices()
            source._learn(None, Query(level=2))
            return source._window.length_s

    assert asyncio.run(main()) == pytest.approx(0.2)


def test_steps_longer_than_a_window_that_was_given_are_said():
    """With a window that would do; not while the window grows by itself, the device is idle, or a step was whole."""
    busy, idle = figures_of(idle_ratio=0.1), figures_of(idle_ratio=0.9)
    given = Query(level=2, window_s=1.0)
    assert Window().warning(given, busy).message == (
        "steps seem longer than the window of 1000 ms; give --duration-ms 5000"
    )
    whole = figures_of(idle_ratio=0.1, step_time_s=StepTimes(avg=1.0, min=1.0, max=1.0, count=1))
    assert Window().warning(given, whole) is None
    assert Window().warning(given, idle) is None
    assert Window().warning(Query(level=1, window_s=1.0), busy) is None
    window = Window()
    assert window.warning(Query(level=2), busy) is None
    for _ in range(9):
        window.grow(LONGEST_WINDOW_S)
    assert window.warning(Query(level=2), busy).code == "long-steps"


async def test_a_window_without_a_whole_step_of_a_busy_device_brings_that_caution():
    """A simulated step takes 62 ms."""
    async with fleet_of() as fleet, Client(fleet.targets[0].address) as client:
        source = TraceSource(client, fleet.targets[0], SourceOptions())
        for window_s, codes in ((0.02, ["long-steps"]), (0.2, [])):
            sample = await source.fetch(Query(level=2, window_s=window_s))
            assert [one.code for one in sample.warnings if one.code == "long-steps"] == codes


def test_who_waits_is_told_what_is_done():
    """Asked, traced for so long, analysed."""
    said = []

    class Noted(Progress):
        def does(self, address, words, brief, *, takes_s=None):
            said.append((brief, words))

    ask(Query(level=2, window_s=0.5), options=SourceOptions(progress=Noted()))
    assert said == [
        ("asking", "it is asked what its profiler can do"),
        ("waiting", "waiting for its turn among the workers"),
        ("tracing", "a trace of 500 ms is taken"),
        ("reading", "its trace is analysed"),
    ]


@pytest.mark.parametrize(
    ("step_s", "given_s", "allowed_s", "windows_ms"),
    [
        (0.4, None, 0.1, [500, 900, 100, 100, 900]),
        (0.1, None, 0.1, [500, 225, 225, 225, 143]),
        (0.4, 1.0, 0.1, [1000, 1000, 100, 100, 1000]),
        (0.4, 0.4, 0.1, [400] * 5),
        (0.4, 1.0, 10.0, [1000] * 5),
    ],
    ids=[
        "until something runs again, then as before",
        "not where its windows are short",
        "also where they are given",
        "short ones that are given stay",
        "nor where the job may be traced as often as is wanted",
    ],
)
def test_a_device_that_was_busy_and_fell_silent_is_looked_at_in_short_windows(step_s, given_s, allowed_s, windows_ms):
    async def main():
        clock, asked_ms = Clock(), []
        async with (
            fleet_of("v5e-8", clock=clock, scenario="hang@60+60") as fleet,
            Watched(fleet.targets[0].address) as client,
        ):
            source = TraceSource(client, fleet.targets[0], DEFAULTS)
            for later_s in (5, 65, 20, 40, 10):
                clock.now += later_s
                with contextlib.suppress(SourceError):
                    await source.fetch(Query(level=2, window_s=given_s, allowed_s=allowed_s))
                asked_ms.append(client.traces[-1].opts.duration_ms)
                if later_s == 5:
                    source._window.learn(step_s)
        return asked_ms

    assert asyncio.run(main()) == windows_ms


@pytest.mark.parametrize(
    ("step_s", "given_s", "fault", "shows"),
    [
        (0.4, None, "", True),
        (0.1, None, "", False),
        (0.4, 0.9, "", True),
        (0.4, 0.4, "", False),
        (0.4, None, "slow-down@0:by=100%+slow-core@0:by=100%+straggler@0:by=100%+", False),
    ],
)
def test_a_short_look_between_long_windows_tells_if_a_busy_device_still_runs(step_s, given_s, fault, shows):
    """It costs what it says, leaves the next window as it was; of no use where that is short, or an op is longer."""
    query = Query(level=2, window_s=given_s, allowed_s=0.1)

    async def main():
        clock, seen, asked_ms = Clock(), [], []
        async with (
            fleet_of("v5e-8", clock=clock, scenario=f"{fault}hang@60+60") as fleet,
            Watched(fleet.targets[0].address) as client,
        ):
            source = TraceSource(client, fleet.targets[0], DEFAULTS)
            assert source.activity_check_s(query) == 0.0, "nothing is known"
            clock.now += 5
            sample = await source.fetch(query)
            assert sample.is_activity_checked == (shows and given_s is not None), (
                "its window was long enough, or not yet"
            )
            source._window.learn(step_s)
            source._is_heavy, source._in_time_on = True, None
            if not shows:
                return source.activity_check_s(query), [], []
            for later_s in (10, 60):
                clock.now += later_s
                assert 0.1 < source.activity_check_s(query) < 0.5
                seen.append(await source.anything_runs())
                asked_ms.append(client.traces[-1].opts.duration_ms)
                assert 0.05 < source.current_traced_s < 1.0
                assert (source._is_heavy, source._answers_in_time) == (True, False), "as the long trace left them"
            clock.now += 60
            await source.fetch(query)
            asked_ms.append(client.traces[-1].opts.duration_ms)
            return 0.0, seen, asked_ms

    assert asyncio.run(main()) == (0.0, [True, False] if shows else [], [100, 100, 900] if shows else [])


def test_a_short_look_that_reaches_nobody_says_so():
    """The worker is then asked at once."""

    async def main():
        async with fleet_of("v5e-8") as fleet:
            address = fleet.targets[0].address
        async with Watched(address) as client:
            await TraceSource(client, Target(worker="w", address=address), DEFAULTS).anything_runs()

    with pytest.raises(SourceError) as failed:
        asyncio.run(main())
    assert failed.value.reason == "unavailable"

"""What tpumon asks of a job's server, and when it asks nothing, as servers on real ports see it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal

import pytest
from msgspec.structs import replace

from fakes.proc import JAX, NCCL, TENSORFLOW, FakeProc
from fakes.protobuf import field
from fakes.run import Tpumon, tpumon
from fakes.tpu_node import Hang, Raw, TpuNode, Trace, WrongServer
from support.recovery import within
from support.samples import failed_sample
from support.watching import watching
from tpumon.analysis.history import WorkerHistory
from tpumon.cli import process
from tpumon.collection.sampler.duty import DutyControl
from tpumon.collection.sampler.held import Held
from tpumon.collection.sampler.pace import Pace
from tpumon.collection.sampler.worker import SampledWorker
from tpumon.collection.sources import Client, SourceOptions, rpc
from tpumon.collection.sources.traces import profile_rpc
from tpumon.collection.sources.traces.backoff import Backoff
from tpumon.collection.sources.traces.profile_rpc import HostEvents, Profiler, TraceRequest
from tpumon.collection.sources.traces.source import TraceSource
from tpumon.discovery.host.listening import find_owners, signs_at
from tpumon.discovery.host.servers import LocalDiscovery
from tpumon.errors import NOT_SEEN, SourceError
from tpumon.model import JobSigns, Query, Target
from tpumon.model.progress import Progress
from tpumon.outputs.metrics import TARGET_METRICS
from tpumon.system import console

ALL_DEVICES, TPUS = 0, 3
TORCH_XLA = "/opt/v/site-packages/_XLAC.cpython-311-x86_64-linux-gnu.so"
CUDA_PLUGIN = "/opt/v/site-packages/jax_plugins/xla_cuda12/xla_cuda_plugin.so"


def device_types(node):
    return [call.fields["opts"]["device_type"] for call in node.of("Profile")]


# Only TPUs are traced.


@pytest.mark.parametrize(
    ("generation", "words"),
    [
        ("new", "--level 1 --num-queries 1 --output jsonl"),
        ("2025", "--output csv --num-queries 1"),
        ("old", "--level 2 --num-queries 1 --output text"),
        ("new", "doctor"),
    ],
)
def test_no_default_command_traces_a_gpu(generation, words):
    """Every Profile request restricts the devices to TPUs: with any other type CUPTI is loaded into a GPU job."""
    with TpuNode(generation=generation, device=True) as node:
        tpumon(*words.split(), "--service-addr", node.address)
        assert set(device_types(node)) == {TPUS}


def test_serve_traces_no_gpu():
    """A service without options restricts the devices, too."""
    args = ("serve", "--listen", "127.0.0.1:0", "--service-addr")
    with TpuNode(device=True) as node, Tpumon(*args, node.address) as command:
        node.wait_for(lambda: node.captures)
        command.signal(signal.SIGTERM).end()
        assert set(device_types(node)) == {TPUS}


def test_a_gpu_is_traced_if_the_user_asks_for_it(tmp_path):
    """--gpu lifts the restriction and warns; a profile of level 0 holds all devices, though not its probe."""
    with TpuNode(device=True) as node:
        done = tpumon("--gpu", "--num-queries", "1", "--output", "jsonl", "--service-addr", node.address)
        assert set(device_types(node)) == {ALL_DEVICES}
        assert "CUPTI" in done.err
    with TpuNode(device=True) as node:
        done = tpumon("--level", "0", "--logdir", str(tmp_path), "--duration-ms", "50", "--service-addr", node.address)
        assert device_types(node) == [TPUS, ALL_DEVICES]
        assert "CUPTI" not in done.err


def approached(node, signs, **host_events):
    """A profiler of a job with these signs, once it is approached."""

    async def main():
        async with Client(node.address) as client:
            wanted = {"level": None, "safe_level": 1, "beside_devices": False} | host_events
            profiler = Profiler(client, HostEvents(**wanted), signs_at=lambda _address: signs)
            await profiler.approach()
            with contextlib.suppress(SourceError):
                await profiler.take(TraceRequest(window_s=0.02))
            return profiler

    return asyncio.run(main())


def test_a_tpu_that_does_not_answer_to_its_type_gets_one_more_probe():
    """Only if the process visibly holds a TPU, and none that may use a GPU."""
    with TpuNode(device="unrestricted") as node:
        assert approached(node, JobSigns(holds_tpu=True)).known.device_planes
        assert device_types(node) == [TPUS, ALL_DEVICES, ALL_DEVICES]
    for signs in (JobSigns(), None, JobSigns(holds_tpu=True, may_use_gpu=True)):
        with TpuNode(device="unrestricted") as node:
            assert not approached(node, signs).known.device_planes
            assert device_types(node) == [TPUS, TPUS]
    with TpuNode(device=True) as node:
        approached(node, JobSigns(holds_tpu=True))
        assert device_types(node) == [TPUS, TPUS]


def test_a_profile_of_a_job_that_may_use_a_gpu_comes_with_a_warning(tmp_path, monkeypatch, capsys):
    """Level 0 traces all devices: it says what that does to such a job, before it does so."""
    from tpumon.cli.commands import capture
    from tpumon.discovery.selection import Selection

    monkeypatch.setattr(capture, "signs_and_hang_at", lambda _address: JobSigns(may_use_gpu=True))
    with TpuNode(device=True) as node:
        capture.run(
            capture.CaptureSettings(logdir=str(tmp_path), selection=Selection(addresses=(node.address,)), window_s=0.05)
        )
    assert "loads CUPTI into the job" in capsys.readouterr().err


# What a job's process shows.


@pytest.mark.parametrize(
    ("libraries", "files", "signs"),
    [
        ([JAX], [], JobSigns(framework="JAX")),
        ([JAX, CUDA_PLUGIN], [], JobSigns(framework="JAX", may_use_gpu=True)),
        ([JAX, "/usr/lib/libcuda.so.1"], [], JobSigns(framework="JAX", may_use_gpu=True)),
        ([JAX], ["/dev/nvidia0"], JobSigns(framework="JAX", may_use_gpu=True, holds_gpu=True)),
        ([JAX], ["/dev/kfd"], JobSigns(framework="JAX", may_use_gpu=True, holds_gpu=True)),
        ([JAX], ["/dev/accel0"], JobSigns(framework="JAX", holds_tpu=True)),
        ([JAX], ["/dev/vfio/3"], JobSigns(framework="JAX", holds_tpu=True)),
        ([JAX, TENSORFLOW], [], JobSigns(framework="JAX", host_events_safe=True)),
        ([TENSORFLOW], [], JobSigns(framework="TensorFlow", host_events_safe=True)),
        ([TORCH_XLA, JAX], [], JobSigns(framework="PyTorch/XLA")),
        # PyPI's PyTorch maps these in a job on the CPU.
        (
            [TORCH_XLA, NCCL, "/v/libcupti.so.12", "/v/libcudart.so.12", "/v/libtorch_cuda.so"],
            [],
            JobSigns(framework="PyTorch/XLA", host_events_safe=True),
        ),
    ],
)
def test_the_signs_of_a_job(tmp_path, libraries, files, signs):
    """From what its process has mapped and open."""
    proc = FakeProc(tmp_path / "proc")
    proc.process(42, *libraries)
    for file in files:
        proc.opens(42, file)
    proc.listen(9999, 42)
    assert signs_at("127.0.0.1:9999", proc.root) == replace(signs, pid=42)
    assert signs_at("localhost:9998", proc.root) is None
    assert signs_at("10.0.0.2:9999", proc.root) is None


@pytest.mark.parametrize(
    ("cmdline", "is_tpumon"),
    [
        ("python train.py --name tpumon", False),
        ("python -u train.py tpumon", False),
        ("python -c tpumon", False),
        ("python3.12 -X dev -m tpumon serve", True),
        ("python -W error /opt/v/bin/tpumon", True),
        ("/opt/v/bin/tpumon --level 2", True),
        ("python3 -m tpumon simulate v5e-8", False),
        ("", False),
    ],
)
def test_a_job_that_names_tpumon_is_no_tpumon(tmp_path, cmdline, is_tpumon):
    """What counts is the program that the command line runs, behind an interpreter too, and not its arguments."""
    proc = FakeProc(tmp_path / "proc")
    proc.process(42, JAX, cmdline=cmdline)
    inode = proc.listen(23456, 42)
    assert find_owners({inode}, proc.root)[inode].is_tpumon is is_tpumon


class Host:
    """A /proc, and a finder that takes every listener of it for a profiler server."""

    def __init__(self, directory):
        self.proc = FakeProc(directory / "proc")
        self.answer = None

    async def call(self, address):
        return self.answer

    def finder(self):
        return LocalDiscovery(proc=self.proc.root, call=self.call, poll_s=0.005)

    def parent(self, pid, ppid):
        (self.proc.root / str(pid) / "stat").write_text(f"{pid} (a ) job) S {ppid} 1 1 0 -1\n")


@pytest.mark.parametrize(("gpu", "found"), [(False, True), (True, False)])
def test_a_pytorch_job_is_found_at_any_port(tmp_path, gpu, found):
    """PyPI's PyTorch maps NCCL without a GPU; its listeners are left alone only where a GPU is open."""
    host = Host(tmp_path)
    host.proc.process(42, TORCH_XLA, NCCL)
    if gpu:
        host.proc.opens(42, "/dev/nvidia0")
    host.proc.listen(23456, 42)

    async def main():
        async with watching(host.finder()) as watch:
            await watch.until(lambda: watch.found)
            return [target.address for target in watch.found[-1].targets]

    assert asyncio.run(main()) == (["127.0.0.1:23456"] if found else [])


def test_a_subprocess_server_is_not_sampled_beside_its_parent(tmp_path, said):
    """jax.profiler.register_subprocess: while one of the two is traced, the other refuses or loses its part."""
    host = Host(tmp_path)
    for pid, ppid, port in ((42, 7, 9999), (43, 42, 23456), (44, 43, 23457), (50, 7, 9012)):
        host.proc.process(pid, JAX)
        host.parent(pid, ppid)
        host.proc.listen(port, pid)

    async def main():
        async with watching(host.finder()) as watch:
            await watch.until(lambda: watch.found and len(watch.found[-1].targets) == 2)
            return sorted(target.address for target in watch.found[-1].targets)

    assert asyncio.run(main()) == ["127.0.0.1:9012", "127.0.0.1:9999"]
    assert len([line for line in said if "belongs to a subprocess of" in line]) == 2


# Host events.


@pytest.mark.parametrize(
    ("signs", "level", "calls"),
    [
        (None, 0, ["GetSnapshot"]),
        (JobSigns(framework="JAX"), 0, ["GetSnapshot"]),
        (JobSigns(framework="TensorFlow", host_events_safe=True), 1, []),
        (JobSigns(framework="PyTorch/XLA", host_events_safe=True), 2, []),  # StepMarker is an event of level 2
    ],
)
def test_host_events_are_taken_where_the_process_proves_them_safe(signs, level, calls):
    """A server that knows no GetSnapshot may hang; TensorFlow or PyTorch/XLA in its process rules that out."""
    with TpuNode(generation="2025") as node:
        why = approached(node, signs).what_is_left_out
        assert "a fault of jaxlib 0.5.0 to 0.8.3" in why
        assert why.endswith("update the job to jaxlib 0.9 or newer, or, if it may be lost, add --host-tracer-level 1")
        assert [call.fields["opts"]["host_tracer_level"] for call in node.captures] == [level]
        assert [call.method for call in node.calls if call.method != "Profile"] == calls


def test_a_device_plane_seen_later_ends_host_events():
    """The 1 ms probe may show none; from the first trace with one on, host events are not asked for."""
    with TpuNode(device="late") as node:
        run(node, Query(level=2, window_s=0.05), times=3)
        # One of them is to tell why the device is idle.
        assert [call.fields["opts"]["host_tracer_level"] for call in node.captures] == [1, 2, 0]


async def test_a_host_that_hung_its_job_is_spared_and_that_is_told_once(said, monkeypatch):
    """Although the user says otherwise; a job with a server that is known to be safe is traced as they say."""
    monkeypatch.setattr(profile_rpc, "ANSWER_GRACE_S", 0.3)
    query, level = Query(level=2, window_s=0.05), SourceOptions(host_level=1)
    with TpuNode(generation="2025", captures=[Hang(), Trace()]) as node:
        async with Client(node.address) as client:
            source = TraceSource(client, Target(worker="w", address=node.address), level)
            with pytest.raises(SourceError, match="no answer within"):
                await source.fetch(query)
            for _ in range(2):
                await client.close()  # as for a restarted job
                with pytest.raises(SourceError, match="the host is not traced, although --host-tracer-level says so"):
                    await source.fetch(query)
            assert host_levels(node) == [1, 0, 0]
            (told,) = [line for line in said if "although" in line]
            assert re.search(
                r"tpumon's trace of it at \d\d:\d\d:\d\d has probably hung the job that ran then; so it stays until",
                told,
            )
            node._generation = "new"
            await client.close()
            await source.fetch(query)
    assert host_levels(node)[3:] == [1]


@pytest.mark.parametrize(("ago_s", "level"), [(60.0, 0), (90_000.0, 1)])
async def test_a_job_whose_predecessor_another_tpumons_trace_has_hung_is_spared_that_for_a_day(
    said, monkeypatch, ago_s, level
):
    """As whoever asks is told, with the reason."""
    monkeypatch.setattr(profile_rpc, "since_boot_s", lambda: 100_000.0)
    signs = JobSigns(framework="JAX", hung_before_s=100_000.0 - ago_s)
    with TpuNode(generation="2025") as node:
        async with Client(node.address) as client:
            profiler = Profiler(
                client, HostEvents(level=1, safe_level=1, beside_devices=False), signs_at=lambda _address: signs
            )
            await profiler.approach()
    assert profiler.known.host_level == level
    assert profiler.known.may_hang == (level > 0)
    assert any("although --host-tracer-level says so" in line for line in said) == (level == 0)


@pytest.mark.parametrize(
    ("generation", "options", "levels"),
    [
        ("new", SourceOptions(), [0, 2, 0, 0]),
        ("2025", SourceOptions(), [0, 0, 0, 0]),
        ("new", SourceOptions(host_level=1), [1, 1, 1, 1]),
    ],
)
def test_one_trace_per_process_asks_for_more_host_events_to_tell_why_the_device_is_idle(generation, options, levels):
    """Where the server is known to be safe, and the user chose no level."""
    with TpuNode(device=True, generation=generation) as node:
        run(node, Query(level=2, window_s=0.05), times=4, options=options)
        assert [call.fields["opts"]["host_tracer_level"] for call in node.captures] == levels


def explained(node, between, *, signs_at=lambda _address: None):
    """Four queries of a job whose device is idle for no known reason; `between` gets the source before each."""

    async def main():
        async with Client(node.address) as client:
            source = TraceSource(client, Target(worker="w", address=node.address), SourceOptions(signs_at=signs_at))
            results = []
            for number in range(4):
                between(source, number)
                try:
                    results.append(await source.fetch(Query(level=2)))
                except SourceError as error:
                    results.append(error)
            return source, results

    return asyncio.run(main())


def host_levels(node):
    return [call.fields["opts"]["host_tracer_level"] for call in node.captures]


def test_nobody_takes_the_data_of_a_continuous_session_that_began_meanwhile_to_explain_idle_time():
    """GetSnapshot would: it is asked only right after a probe that met no other session."""
    with TpuNode(device=True) as node:

        def begin(_source, number):
            node.continuous = number > 0

        _, results = explained(node, begin)
        assert [getattr(one, "reason", None) for one in results] == [None, "busy", "busy", "busy"]
        assert not node.of("GetSnapshot")
        assert host_levels(node)[0] == 0
        assert 2 not in host_levels(node)


@pytest.mark.parametrize("meets", ["probe", "trace"])
def test_a_trace_that_another_session_prevented_explains_idle_time_later(meets):
    """Nothing was traced for it yet."""
    with TpuNode(device=True) as node:

        def occupy(source, number):
            node.continuous = number == 1 and meets == "probe"
            if number == 1 and meets == "trace":
                source._profiler.take = refuse
            else:
                source._profiler.__dict__.pop("take", None)

        async def refuse(_capture):
            raise SourceError("busy", "another profiling session is active", address=node.address)

        _, results = explained(node, occupy)
        assert [getattr(one, "reason", None) for one in results] == [None, "busy", None, None]
        assert [level for level in host_levels(node) if level] == [2]


def test_the_trace_that_explains_idle_time_is_short_whatever_the_window():
    """It holds far more events: collecting those of 2 s took the server 12 s, which 20 minutes of silence pay for."""
    with TpuNode(device=True) as node:

        def lengthen(source, number):
            source._window.learn(0.8 / 2.25)

        explained(node, lengthen)
        windows = [call.fields["opts"]["duration_ms"] for call in node.captures]
        assert (host_levels(node), windows) == ([0, 2, 0, 0], [800, 500, 800, 800])


def test_a_trace_that_was_too_large_to_explain_idle_time_changes_nothing_and_is_not_repeated():
    """The next ones are as long and as whole as before."""
    with TpuNode(device=True) as node:
        lengths = []

        def refuse(source, number):
            lengths.append(source._window.length_s)
            take = source._profiler.take

            async def checked(capture):
                trace = await take(capture)
                if capture.host_level is not None:
                    raise SourceError("too-large", "the answer is larger than 64 MB", address=node.address)
                return trace

            if number == 1:
                source._profiler.take = checked

        source, results = explained(node, refuse)
        assert [getattr(one, "reason", None) for one in results] == [None, "too-large", None, None]
        assert host_levels(node) == [0, 2, 0, 0]
        assert lengths[1:] == pytest.approx([lengths[1]] * 3, rel=0.1)
        assert not source._reducer.warning


@pytest.mark.parametrize(
    ("pids", "levels"),
    [((None, None), [0, 2, 0, 0]), ((7, 7), [0, 2, 0, 0]), ((7, 8), [0, 2, 0, 2])],
)
def test_another_connection_to_the_same_process_takes_no_other_trace_to_explain_idle_time(pids, levels):
    """Networks break connections again and again."""
    pid = [pids[0]]
    with TpuNode(device=True) as node:

        def reconnect(source, number):
            if number == 2:
                pid[0] = pids[1]
                source._client.connection += 1

        explained(node, reconnect, signs_at=lambda _address: JobSigns(pid=pid[0]))
        assert host_levels(node) == levels


# Servers that are left alone.


def run(node, query, *, times, options=None, clock=None):
    """What came of so many queries of one worker: samples, and errors."""

    options = options or SourceOptions()

    async def main():
        async with Client(node.address, max_bytes=1_000_000 * options.max_trace_mb) as client:
            source = TraceSource(client, Target(worker="w", address=node.address), options)
            if clock is not None:
                source._backoff._clock_s = lambda: clock[0]
            results = []
            for _ in range(times):
                try:
                    results.append(await source.fetch(query))
                except SourceError as error:
                    results.append(error)
                if clock is not None:
                    clock[0] += 10.0
            return results

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("generation", "framework", "words", "unsaid"),
    [
        ("old", None, "unless the job is TensorFlow or PyTorch/XLA", None),
        ("2025", None, "unless the job is TensorFlow or PyTorch/XLA", None),
        ("old", "JAX", "jaxlib 0.5.0 to 0.8.3 without TensorFlow imported", "PyTorch"),
    ],
)
def test_a_server_that_can_show_nothing_is_left_alone(generation, framework, words, unsaid):
    """After four empty traces none is taken for a minute, then for two, ...: an hour at last. It says why."""
    clock = [0.0]
    options = SourceOptions(signs_at=lambda _address: JobSigns(framework=framework) if framework else None)
    with TpuNode(generation=generation) as node:
        results = run(node, Query(level=2, window_s=0.02), times=4 + 24 * 360, options=options, clock=clock)
        traced = len(node.captures)
    assert {error.reason for error in results} == {"empty-trace"}  # it answers: it is not down
    assert all((error.message.startswith(NOT_SEEN), error.detail) == (True, "not-seen") for error in results)
    assert [("traces are taken rarely now" in error.message) for error in results[:5]] == [False] * 3 + [True] * 2
    assert all(error.traced_s == 0 for error in results[4:9])
    assert words in results[-1].message
    assert unsaid is None or unsaid not in results[-1].message
    assert 4 + 23 <= traced <= 4 + 6 + 24  # in a day


def test_a_tpu_job_that_has_not_begun_is_not_given_up():
    """With a device plane, or a TPU open, empty traces are those of a job that does nothing yet."""
    for device, signs in ((True, None), (False, JobSigns(holds_tpu=True))):
        with TpuNode(generation="old", device=device, captures=Trace(empty=True)) as node:
            options = SourceOptions(signs_at=lambda _address, signs=signs: signs)
            results = run(node, Query(level=2, window_s=0.02), times=8, options=options)
            assert len(node.captures) == 8
        assert {error.reason for error in results} == {"empty-trace"}


def test_what_comes_back_is_looked_at_anew():
    """A new connection may lead to another server: what was found of the last one is forgotten."""

    class Connection:
        connected, connection, address = True, 1, "w:1"

    client = Connection()
    restraint = Backoff(client, clock_s=lambda: 0.0)
    for _ in range(4):
        restraint.note_empty("nothing")
    with pytest.raises(SourceError, match="nothing; traces are taken rarely now; looking again in 60 s"):
        restraint.check()
    client.connection = 2
    restraint.check()
    for _ in range(4):
        restraint.note_empty("nothing")
    client.connected = False
    restraint.check()


def test_a_job_whose_traces_cannot_be_received_or_read_is_traced_ever_more_rarely():
    """Eight traces, each lighter than the last, then one after 1, 2, 4, 5, 5, ... minutes."""
    clock = [0.0]
    with TpuNode(device=True, captures=Raw(reply=field(8, bytes(2_000_000)))) as node:
        results = run(node, Query(level=2), times=360, options=SourceOptions(max_trace_mb=1), clock=clock)
        traced = len(node.captures)
    assert {error.reason for error in results} == {"too-large"}
    assert "looking again in 60 s" in results[7].message
    assert traced == 8 + 3 + 10
    assert sum(error.traced_s > 0 for error in results) == traced


def test_a_continuous_session_of_the_owner_is_a_state_of_its_own():
    """Refused at every look for five minutes: `continuous`, and hardly ever called; nobody takes its data."""
    clock = [0.0]
    with TpuNode(continuous=True) as node:
        results = run(node, Query(level=2, window_s=0.02), times=8640, clock=clock)
        looks = len(node.of("Profile"))
        assert node.of("GetSnapshot") == []
        node.continuous = False
    reasons = [error.reason for error in results]
    assert reasons == ["busy"] * 30 + ["continuous"] * 8610
    assert "for 5 minutes, probably a continuous one" in results[30].message
    assert looks <= 30 + 3 + 24 * 12  # each leaves a line in the job's log
    assert sum(error.traced_s for error in results) == 0


def test_a_continuous_session_that_ends_is_noticed(record_testsuite_property):
    """Five minutes later at most, by itself, however long it ran."""
    now_s = [0.0]

    async def main():
        with TpuNode(continuous=True, device=True) as node:
            async with Client(node.address) as client:
                source = TraceSource(client, Target(worker="w", address=node.address), SourceOptions())
                source._backoff = Backoff(client, clock_s=lambda: now_s[0])
                while now_s[0] < 3600:
                    with pytest.raises(SourceError) as caught:
                        await source.fetch(Query(level=2, window_s=0.05))
                    now_s[0] += 10
                assert caught.value.reason == "continuous"
                node.continuous = False
                while now_s[0] < 7200:
                    with contextlib.suppress(SourceError):
                        return await source.fetch(Query(level=2, window_s=0.05))
                    now_s[0] += 10
                return None

    sample = asyncio.run(main())
    assert sample.figures.step_time_s is not None
    assert now_s[0] <= 3600 + 300
    record_testsuite_property(
        "test_harm.py::test_a_continuous_session_of_the_owner_is_a_state_of_its_own", within(now_s[0] - 3600)
    )


def test_a_continuous_session_is_a_state_and_no_failure():
    """The worker is up and counts as busy to alerts; its runtime metrics are as fresh as ever."""
    continuous = failed_sample("w", "continuous", time_unix_s=100.0, source="runtime", hbm_used_bytes=1)
    history = WorkerHistory(Target(worker="w", address="w:1")).with_sample(continuous)
    assert history.state(101.0) == "continuous"
    assert history.is_up(101.0)
    assert history.current(101.0).figures.hbm_used_bytes == 1
    busy = next(metric for metric in TARGET_METRICS if metric.name == "tpumon_target_busy")
    assert list(busy.values(history, 101.0)) == [((), 1.0)]


# A server that never answers.


@pytest.mark.parametrize("output", ["jsonl", "csv", "text"])
def test_a_server_that_never_answers_is_soon_named(output, monkeypatch, capfd):
    """After 10 s at most, which are one here; and it is not asked again at once."""
    assert rpc.FIRST_ANSWER_S <= 10
    monkeypatch.setattr(rpc, "FIRST_ANSWER_S", 1.0)
    with WrongServer("silent") as silent, SilentProfile() as profiler:
        for server in (silent, profiler):
            query = ["--level", "2", "--num-queries", "1", "--output", output, "--service-addr", server.address]
            assert process._run(query) == 3
            assert console.flush(10)
            said = "".join(capfd.readouterr())
            assert {int(each) for each in re.findall(r"no answer within (\d+) s", said)} <= {1, 2}  # a window of 1 s
            assert "no answer within" in said
            assert server.address in said
        assert len(profiler.of("Profile")) == 1


class SilentProfile(TpuNode):
    """Answers Monitor; Profile, the probe included, never."""

    def _profile(self, request, context):
        return self._other(Hang(), context)


# What a query costs.


async def test_only_a_profile_in_flight_is_charged_when_a_query_is_cut_off():
    """Nothing while the server is found out about; the time so far, once it traces."""
    with TpuNode(captures=Hang(), device=True) as node:
        async with Client(node.address) as client:
            source = TraceSource(client, Target(worker="w", address=node.address), SourceOptions())
            before_s = source.current_traced_s
            task = asyncio.create_task(source.fetch(Query(level=2, window_s=0.05)))
            await asyncio.to_thread(node.wait_for, lambda: node.captures)
            await asyncio.sleep(0.1)  # the time that has to be paid
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            after_s = source.current_traced_s
    assert before_s == 0
    assert 0.1 <= after_s <= 5.1


@pytest.mark.parametrize("current_traced_s", [0.0, 0.7])
@pytest.mark.virtual_time
async def test_a_worker_that_flaps_has_its_first_sample_at_once(current_traced_s):
    """A query that was cut off costs what it traced: nothing, if the server was only asked for Monitor."""

    class Hanging:
        name, usual_interval_s, costs_job, is_silent, unanswered_s = "fake", 10.0, True, False, 0.0

        def __init__(self):
            self.asked = asyncio.Event()

        def likely_s(self, _query):
            return 0.7

        async def fetch(self, _query):
            self.asked.set()
            await asyncio.Event().wait()

    async def no_pause():
        return None

    now_s = asyncio.get_running_loop().time()
    duty, source = DutyControl(0.01), Hanging()
    account = duty.follow("w:1")
    source.current_traced_s = current_traced_s
    for _ in range(2):
        target = Target(worker="w", address="w:1")
        source.asked.clear()
        query = Query(level=2, window_s=1.0)
        worker = SampledWorker(
            target, [source], query, Pace(), Held(no_pause, lambda _pid: "runs"), duty, account, Progress()
        )
        task = asyncio.create_task(worker.ask())
        await source.asked.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (account.ready_s(0.5) - now_s) == pytest.approx(0 if not current_traced_s else 90, abs=2)

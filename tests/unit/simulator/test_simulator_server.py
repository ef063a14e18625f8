"""The simulated profiler over real gRPC: what the real servers do, the simulated ones do."""

from __future__ import annotations

import asyncio
import re
import time

import grpc
import pytest

from support.simulated import (
    BUSY,
    Clock,
    fleet_of,
    line,
    monitor,
    plane,
    profile,
    profile_request,
    refusal,
    space_of,
    start,
    stat,
    terminate,
    until_session_is_free,
    until_session_runs,
    worker_of,
)
from tpumon import proto as wire
from tpumon.model import SIMULATED_MARK
from tpumon.proto import profiler_pb2, xplane_pb2

# Monitor


@pytest.mark.parametrize(
    ("topology", "options", "offered"),
    [("v2-8", {}, True), ("v3-8", {}, True), ("v4-8", {}, False), ("v6e-8", {}, False),
     ("v5e-8", {"monitor": True}, True), ("v2-8", {"monitor": False}, False)],
)  # fmt: skip
async def test_monitor_answers_on_the_generations_that_had_tpu_nodes_or_as_asked(topology, options, offered):
    async with worker_of(topology, **options) as channel:
        if offered:
            assert "TPU type: TPU v" in (await monitor(channel, duration_ms=1)).data
        else:
            assert await refusal(monitor(channel)) == (grpc.StatusCode.UNIMPLEMENTED, "unimplemented.")


async def test_monitor_text_is_laid_out_as_a_tpu_node_does():
    async with worker_of("v3-8", clock=Clock(), seed=5) as channel:
        level_2, level_1 = (await monitor(channel)).data, (await monitor(channel, level=1, timestamp=False)).data
    number = r"[0-9]+(\.[0-9]+)?"
    share, time_ = f"{number}%", f"{number}ms"
    patterns = [
        r"Timestamp: [0-9]{2}:[0-9]{2}:[0-9]{2}",
        "TPU type: TPU v3",
        r"Number of TPU cores: 8 \(Replica count = 8, num cores per replica = 1\)",
        rf"TPU idle time \(lower is better\): {share}",
        rf"Utilization of TPU Matrix Units \(higher is better\): {share}",
        rf"Step time: {time_} \(avg\), {time_} \(min\), {time_} \(max\)",
        rf"Infeed percentage: {share} \(avg\), {share} \(min\), {share} \(max\)",
        f"{SIMULATED_MARK}: scenario steady",
    ]
    lines = level_2.splitlines()
    assert len(lines) == len(patterns)
    for line_, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line_), line_
    assert level_1.splitlines() == [lines[1], lines[4], lines[7]]


async def test_monitor_result_has_what_its_type_says():
    async with worker_of("v2-8") as channel, worker_of("v2-8", scenario="idle") as other:
        one, two, idle = [await monitor(channel, level=1), await monitor(channel), await monitor(other)]
    result = profiler_pb2.MonitorResult
    assert one.monitor_result.response_type == result.UTIL_ONLY
    assert one.monitor_result.matrix_unit_utilization_percent > 30
    assert one.monitor_result.step_time_ms_avg == 0
    assert two.monitor_result.response_type == result.UTIL_IDLE_STEP
    assert 55 < two.monitor_result.step_time_ms_avg < 75
    assert two.monitor_result.device_idle_time_percent > 5
    assert two.monitor_result.infeed_percent_max > 0
    assert idle.monitor_result.response_type == result.UTIL_ONLY
    assert idle.monitor_result.matrix_unit_utilization_percent == 0
    assert "Step time" not in idle.data
    assert "Infeed" not in idle.data


@pytest.mark.parametrize("scenario_name", ["steady", "input-bound", "straggler"])
async def test_monitor_and_profile_of_the_same_moment_agree(scenario_name):
    async with worker_of("v3-8", clock=Clock(), scenario=scenario_name, seed=11) as channel:
        watched, traced = await asyncio.gather(
            monitor(channel, duration_ms=300), profile(channel, profile_request(duration_ms=300))
        )
    space = space_of(traced)
    mxu = stat(plane(space, "/host:CPU"), "matrix_unit_utilization_percent")
    assert mxu == pytest.approx(watched.monitor_result.matrix_unit_utilization_percent, rel=1e-12)
    per_core = [line(plane(space, f"/device:TPU:{i}"), "Steps").events for i in range(8)]
    whole = min(len(events) for events in per_core)
    longest_ms = [max(events[i].duration_ps for events in per_core) / 1e9 for i in range(whole)]
    assert watched.monitor_result.step_time_ms_avg == pytest.approx(sum(longest_ms) / whole, rel=1e-9)
    assert watched.monitor_result.step_time_ms_max == pytest.approx(max(longest_ms), rel=1e-9)


# Profile


def test_a_profile_is_of_its_worker_and_says_that_it_is_simulated():
    async def scenario():
        async with fleet_of("v4-16", clock=Clock()) as fleet:
            spaces = []
            for target in fleet.targets:
                async with grpc.aio.insecure_channel(target.address) as channel:
                    response = await profile(channel, profile_request(duration_ms=150, host=1))
                    assert not response.empty_trace
                    spaces.append(space_of(response))
            return fleet.targets, spaces

    targets, spaces = asyncio.run(scenario())
    assert [target.worker for target in targets] == ["sim-v4-16-w0", "sim-v4-16-w1"]
    assert [list(space.hostnames) for space in spaces] == [["sim-v4-16-w0"], ["sim-v4-16-w1"]]
    for space in spaces:
        assert [warning.startswith(SIMULATED_MARK) for warning in space.warnings] == [True]
        assert [each.name for each in space.planes] == [
            *(f"/device:TPU:{i}" for i in range(4)),
            "/host:CPU",
            "Task Environment",
        ]
        assert len({each.id for each in space.planes}) == len(space.planes)
        assert stat(space.planes[0], "device_type_string") == "TPU v4"
        assert stat(space.planes[0], "has_megacore") == 1
        host = plane(space, "/host:CPU")
        assert "train" in {host.event_metadata[event.metadata_id].name for event in host.lines[0].events}
    environment = plane(spaces[0], "Task Environment")
    assert stat(environment, "profile_start_time") == 1_700_000_000_250_000_000
    assert stat(environment, "profile_stop_time") == 1_700_000_000_400_000_000
    # Device numbers go on through the slice.
    assert stat(spaces[0].planes[0], "core_details") != stat(spaces[1].planes[0], "core_details")


def test_two_profiles_of_the_same_moment_are_the_same_and_another_seed_differs():
    async def scenario(seed):
        async with worker_of("v5e-8", clock=Clock(), seed=seed) as channel:
            return (await profile(channel, profile_request())).xspace

    assert asyncio.run(scenario(1)) == asyncio.run(scenario(1))
    assert asyncio.run(scenario(1)) != asyncio.run(scenario(2))


async def test_host_events_come_only_when_asked_for_and_device_events_unless_not():
    async with worker_of(clock=Clock()) as channel:
        none, steps, more, host_only = [
            space_of(await profile(channel, profile_request(host=host, device=device)))
            for host, device in ((0, 1), (1, 1), (2, 1), (1, 0))
        ]
    assert not plane(none, "/host:CPU").lines
    names = [{each.name for each in plane(space, "/host:CPU").event_metadata.values()} for space in (steps, more)]
    assert names[1] - names[0] == {"TpuExecute", "DevicePut"}
    assert len(plane(more, "/host:CPU").lines[0].events) > len(plane(steps, "/host:CPU").lines[0].events) > 0
    assert [each.name for each in host_only.planes] == ["/host:CPU", "Task Environment"]


def test_options_of_version_0_are_not_read_but_for_the_window():
    request = profile_request(host=0)
    request.opts.version = 0

    async def scenario():
        async with worker_of(clock=Clock()) as channel:
            return space_of(await profile(channel, request))

    assert plane(asyncio.run(scenario()), "/host:CPU").lines[0].events


def test_a_window_shorter_than_a_step_has_ops_but_no_step():
    async def scenario():
        async with worker_of(clock=Clock()) as channel:
            return space_of(await profile(channel, profile_request(duration_ms=20)))

    device = plane(asyncio.run(scenario()), "/device:TPU:0")
    assert not line(device, "Steps").events
    assert line(device, "XLA Ops").events


async def test_an_idle_tpu_gives_an_empty_trace():
    async with worker_of(scenario="idle") as channel:
        response = await profile(channel, profile_request(duration_ms=50))
    assert response.empty_trace
    assert plane(space_of(response), "/device:TPU:7").name


async def test_the_outer_duration_alone_gives_an_empty_trace_at_once():
    request = profile_request(duration_ms=0)
    request.duration_ms = 3_600_000
    async with worker_of() as channel:
        response = await profile(channel, request, timeout_s=10)
    assert response.empty_trace
    assert list(space_of(response).hostnames) == ["sim-v5e-8-w0"]


async def test_a_start_time_is_waited_for():
    began_s = time.time()
    async with worker_of() as channel:
        request = profile_request(duration_ms=10, start_ns=int((began_s + 0.5) * 1e9))
        space = space_of(await profile(channel, request))
    assert (stat(plane(space, "Task Environment"), "profile_start_time") / 1e9 - began_s) >= 0.49


async def test_a_second_profile_is_refused_and_leaves_the_first_alone():
    async with worker_of() as channel:
        first = start(channel, profile_request(duration_ms=60_000, session="first"))
        await until_session_runs(channel)
        assert await refusal(profile(channel, profile_request(session="second"))) == BUSY
        await terminate(channel, "second")
        await until_session_runs(channel)
        await terminate(channel, "first")
        response = profiler_pb2.ProfileResponse.FromString(await first)
        # Terminated after a moment: it holds that moment, not the minute that was asked for.
        environment = plane(space_of(response), "Task Environment")
        lasted_ns = stat(environment, "profile_stop_time") - stat(environment, "profile_start_time")
        assert 0 < lasted_ns < 30e9


async def test_terminate_ends_the_next_profile_of_an_id_once():
    async with worker_of() as channel:
        await terminate(channel, "early")
        assert (await profile(channel, profile_request(duration_ms=60_000, session="early"), timeout_s=10)).xspace
        response = await profile(channel, profile_request(duration_ms=150, session="early"))
        assert not response.empty_trace


async def test_a_client_that_gives_up_frees_the_session():
    async with worker_of() as channel:
        call = start(channel, profile_request(duration_ms=60_000))
        await until_session_runs(channel)
        call.cancel()
        await until_session_is_free(channel)
        late = start(channel, profile_request(duration_ms=60_000), timeout_s=0.5)
        code, _ = await refusal(late)
        assert code == grpc.StatusCode.DEADLINE_EXCEEDED
        await until_session_is_free(channel)


# Server generations


async def test_an_old_server_cannot_return_a_trace(tmp_path):
    async with worker_of(server="old") as channel:
        refused = await refusal(profile(channel, profile_request(duration_ms=1)))
        written = await profile(channel, profile_request(duration_ms=150, session="run", root=str(tmp_path / "new")))
    assert refused == (grpc.StatusCode.INTERNAL, "/dev/null is not a directory")
    assert written.xspace == b""
    assert not written.empty_trace
    space = xplane_pb2.XSpace.FromString((tmp_path / "new" / "run" / "10.0.0.1_8466.xplane.pb").read_bytes())
    assert list(space.hostnames) == ["sim-v5e-8-w0"]


@pytest.mark.parametrize("server", ["2025", "new"])
async def test_a_newer_server_returns_the_trace_and_writes_only_if_not_asked_to_return_it(server, tmp_path):
    async with worker_of(server=server) as channel:
        returned = await profile(channel, profile_request(duration_ms=1, root=str(tmp_path)))
        assert list(tmp_path.iterdir()) == []
        written = await profile(channel, profile_request(duration_ms=1, root=str(tmp_path), emit=False))
    assert returned.xspace
    assert not written.xspace
    assert (tmp_path / "s" / "10.0.0.1_8466.xplane.pb").exists()


@pytest.mark.parametrize(
    ("server", "answer"),
    [
        ("old", (grpc.StatusCode.UNIMPLEMENTED, "")),
        ("2025", (grpc.StatusCode.UNIMPLEMENTED, "")),
        ("new", (grpc.StatusCode.NOT_FOUND, "No continuous profiling session found.")),
    ],
)
async def test_get_snapshot_tells_the_generations_apart(server, answer):
    async with worker_of(server=server) as channel:
        assert await refusal(channel.unary_unary(wire.GET_SNAPSHOT)(b"")) == answer
        other = channel.unary_unary("/tensorflow.ProfileAnalysis/NewSession")(b"")
        assert await refusal(other) == (grpc.StatusCode.UNIMPLEMENTED, "")


async def test_nothing_is_ever_written_into_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with fleet_of(server="old") as fleet, grpc.aio.insecure_channel(fleet.targets[0].address) as channel:
        code, details = await refusal(profile(channel, profile_request(duration_ms=1, root="")))
        assert code == grpc.StatusCode.INTERNAL
        assert "working directory" in details
        assert fleet.refused_writes == ["sim-v5e-8-w0"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("root", ["gs://bucket/logs", "/proc/tpumon"])
async def test_a_directory_that_cannot_be_written_is_an_internal_error(root):
    async with worker_of(server="old") as channel:
        code, details = await refusal(profile(channel, profile_request(duration_ms=1, root=root)))
        assert code == grpc.StatusCode.INTERNAL
        assert root in details


@pytest.mark.parametrize("session", ["../../up", "..", "/up"])
async def test_names_in_a_request_do_not_lead_out_of_the_directory(session, tmp_path):
    request = profile_request(duration_ms=1, root=str(tmp_path / "root"), session=session, emit=False)
    request.host_name = "../../host"
    async with worker_of() as channel:
        await profile(channel, request)
    assert [path.name for path in tmp_path.iterdir()] == ["root"]
    assert len(list((tmp_path / "root").rglob("*.xplane.pb"))) == 1


async def test_garbage_is_an_internal_error_without_text():
    async with worker_of("v2-8") as channel:
        for path in (wire.PROFILE, wire.MONITOR, wire.TERMINATE):
            assert await refusal(channel.unary_unary(path)(b"\xff\xff")) == (grpc.StatusCode.INTERNAL, "")

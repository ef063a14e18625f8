"""Simulated workers that fail, crash and return; their ports and settings."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import grpc
import pytest

from support.simulated import Clock, fleet_of, monitor, profile, profile_request, refusal, start, until_session_runs
from tpumon.errors import TpumonError, UsageError
from tpumon.simulator.simulated_fleet import SimulatedFleet
from tpumon.simulator.simulator_settings import SimulatorSettings


def test_flaky_workers_fail_as_their_seed_says():
    async def scenario():
        async with fleet_of("v2-8", scenario="flaky", seed=2) as fleet:
            expected = [fleet.job.call_fails(0, call) for call in range(1, 41)]
            seen = []
            async with grpc.aio.insecure_channel(fleet.targets[0].address) as channel:
                for outcome in expected:
                    timeout_s = 0.2 if outcome == "hang" else 20
                    try:
                        await monitor(channel, duration_ms=1, timeout_s=timeout_s)
                        seen.append(None)
                    except grpc.aio.AioRpcError as error:
                        seen.append(error.code())
            return expected, seen

    expected, seen = asyncio.run(scenario())
    codes = {
        None: None,
        "unavailable": grpc.StatusCode.UNAVAILABLE,
        "hang": grpc.StatusCode.DEADLINE_EXCEEDED,
    }
    assert seen == [codes[outcome] for outcome in expected]
    assert set(expected) == set(codes)


async def test_a_crashed_job_closes_its_port_and_returns_to_it():
    clock = Clock()

    def accepts(address):
        host, port = address.rsplit(":", 1)
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except ConnectionRefusedError:
            return False
        return True

    async def until(address, open_):
        async with asyncio.timeout(10):
            while accepts(address) is not open_:  # noqa: ASYNC110 - a port does not say when it opens
                await asyncio.sleep(0.01)

    async with fleet_of("v4-16", scenario="crash-and-return", clock=clock) as fleet:
        before = fleet.targets
        addresses = [*(target.address for target in before), *fleet.runtime_addresses]
        assert all(accepts(address) for address in addresses)
        async with grpc.aio.insecure_channel(before[0].address) as channel:
            call = start(channel, profile_request(duration_ms=60_000))
            await until_session_runs(channel)
            clock.now += 30
            for address in addresses:
                await until(address, False)
            code, _ = await refusal(call)
            assert code == grpc.StatusCode.UNAVAILABLE
        clock.now += 8
        for address in addresses:
            await until(address, True)
        assert fleet.targets == before
        async with grpc.aio.insecure_channel(before[0].address) as channel:
            assert (await profile(channel, profile_request())).xspace


async def test_leaving_does_not_wait_for_calls_in_flight():
    async with asyncio.timeout(10):
        async with fleet_of("v3-32") as fleet:
            channels = [grpc.aio.insecure_channel(target.address) for target in fleet.targets]
            calls = [start(channel, profile_request(duration_ms=3_600_000), timeout_s=3600) for channel in channels]
            for channel in channels:
                await until_session_runs(channel)
        for call in calls:
            code, _ = await refusal(call)
            assert code == grpc.StatusCode.UNAVAILABLE
        for channel in channels:
            await channel.close()


# Ports and settings


def test_worker_i_listens_on_port_plus_i():
    async def scenario():
        # Eight free ports in a row cannot be reserved, so what somebody else has just taken is passed over.
        for port in range(20_000, 21_000, 8):
            with contextlib.suppress(TpumonError):
                async with fleet_of("v3-32", port=port) as fleet:
                    return port, fleet.targets, fleet.runtime_addresses
        raise AssertionError("no eight free ports in a row")

    port, targets, runtime = asyncio.run(scenario())
    assert [target.address for target in targets] == [f"127.0.0.1:{port + i}" for i in range(4)]
    assert list(runtime) == [f"127.0.0.1:{port + 4 + i}" for i in range(4)]


async def test_a_taken_port_is_named_and_nothing_stays_open():
    async with fleet_of() as first:
        port = int(first.targets[0].address.rsplit(":", 1)[1])
        with pytest.raises(TpumonError, match=rf"127\.0\.0\.1:{port}: the port is taken") as refused:
            async with fleet_of(port=port):
                pass
        assert refused.value.exit_status == 1


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"topology": "v5e-9"}, "v5e-8"),
        ({"topology": "v5e-8", "scenario": "nope"}, "steady"),
        ({"topology": "v5e-8", "server": "2024"}, "old, 2025, new"),
        ({"topology": "v5e-8", "port": 65535}, "2 ports"),
        ({"topology": "v5e-8", "port": -1}, "1-65535"),
        ({"topology": "v5e-8", "port": 70000}, "1-65535"),
    ],
)
def test_bad_settings_are_usage_errors_that_show_good_ones(settings, hint):
    with pytest.raises(UsageError, match=hint):
        SimulatedFleet(SimulatorSettings(**settings))


async def test_without_runtime_metrics_there_are_no_such_servers():
    async with fleet_of(runtime_metrics=False) as fleet:
        assert fleet.runtime_addresses == ()
        assert len(fleet.targets) == 1

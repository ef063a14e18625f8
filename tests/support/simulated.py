"""Talking to simulated workers over real gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import time

import grpc
import pytest

from tpumon import proto as wire
from tpumon.proto import profiler_pb2, xplane_pb2
from tpumon.simulator.simulated_fleet import SimulatedFleet
from tpumon.simulator.simulator_settings import SimulatorSettings

BUSY = (grpc.StatusCode.INTERNAL, "Another profiling session active.")


class Clock:
    """A wall clock that stands still until it is moved."""

    def __init__(self, now=1_700_000_000.25):
        self.now = now

    def __call__(self):
        return self.now


@contextlib.asynccontextmanager
async def fleet_of(topology="v5e-8", *, clock=time.time, **settings):
    async with SimulatedFleet(SimulatorSettings(topology=topology, **settings), clock=clock) as fleet:
        yield fleet


@contextlib.asynccontextmanager
async def worker_of(topology="v5e-8", *, clock=time.time, **settings):
    async with (
        fleet_of(topology, clock=clock, **settings) as fleet,
        grpc.aio.insecure_channel(fleet.targets[0].address) as channel,
    ):
        yield channel


def profile_request(duration_ms=200, session="s", root="/dev/null", host=0, emit=True, start_ns=0, device=1):
    return profiler_pb2.ProfileRequest(
        duration_ms=duration_ms,
        emit_xspace=emit,
        repository_root=root,
        session_id=session,
        host_name="10.0.0.1:8466",
        opts=profiler_pb2.ProfileOptions(
            version=1,
            duration_ms=duration_ms,
            host_tracer_level=host,
            device_tracer_level=device,
            start_timestamp_ns=start_ns,
        ),
    )


def start(channel, request, *, timeout_s=20):
    return channel.unary_unary(wire.PROFILE)(request.SerializeToString(), timeout=timeout_s)


async def profile(channel, request, *, timeout_s=20):
    return profiler_pb2.ProfileResponse.FromString(await start(channel, request, timeout_s=timeout_s))


async def terminate(channel, session):
    await channel.unary_unary(wire.TERMINATE)(profiler_pb2.TerminateRequest(session_id=session).SerializeToString())


async def monitor(channel, *, level=2, duration_ms=200, timestamp=True, timeout_s=20):
    request = profiler_pb2.MonitorRequest(duration_ms=duration_ms, monitoring_level=level, timestamp=timestamp)
    answer = await channel.unary_unary(wire.MONITOR)(request.SerializeToString(), timeout=timeout_s)
    return profiler_pb2.MonitorResponse.FromString(answer)


async def refusal(call):
    """Status and text of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), failed.value.details()


def check_busy(error):
    assert (error.code(), error.details()) == BUSY


async def until_session_runs(channel):
    """Polls until the worker says that it is busy."""
    async with asyncio.timeout(10):
        while True:
            try:
                await profile(channel, profile_request(duration_ms=0, session="probe"))
            except grpc.aio.AioRpcError as error:
                check_busy(error)
                return


async def until_session_is_free(channel):
    async with asyncio.timeout(10):
        while True:
            try:
                return await profile(channel, profile_request(duration_ms=0, session="probe"))
            except grpc.aio.AioRpcError as error:
                check_busy(error)


def space_of(response):
    return xplane_pb2.XSpace.FromString(response.xspace)


def plane(space, name):
    return next(plane for plane in space.planes if plane.name == name)


def line(plane, name):
    return next((line for line in plane.lines if line.name == name), None)


def stat(plane, name):
    ids = {metadata.name: number for number, metadata in plane.stat_metadata.items()}
    found = next(stat for stat in plane.stats if stat.metadata_id == ids[name])
    return getattr(found, found.WhichOneof("value"))

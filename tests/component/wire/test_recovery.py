"""How long it takes until there are figures again once a server's fault is over, in queries."""

from __future__ import annotations

import asyncio
import contextlib
import time

import grpc
import pytest

from fakes.answering import Answering
from fakes.protobuf import field
from support import odd_reading
from support.recovery import after_queries
from support.traces import CONV, Traced, run_step
from tpumon.collection.sampler import Pace, Sampler, pace
from tpumon.collection.sources import Client, SourceOptions, rpc
from tpumon.collection.sources.traces import profile_rpc as profile
from tpumon.collection.sources.traces import source as trace
from tpumon.discovery.finder import Fixed
from tpumon.model import Query, Target

INTERVAL_S = 1.0

MB = 1_000_000


def healthy(_request, _context):
    traced = Traced()
    core = traced.core(0)
    for step in range(5):
        run_step(core, 100 * step, [(CONV, 50)])
    return field(8, traced.bytes())


def hang(_request, context):
    while context.is_active():
        time.sleep(0.05)
    return b""


def compressed(_request, context):
    context.set_compression(grpc.Compression.Gzip)
    return field(8, bytes(MB))


def hang_after_the_probe(request, context):
    return (healthy if is_probe(request) else hang)(request, context)


def of_a_sample(answer):
    """Answers what is no probe with this."""
    return lambda request, context: healthy(request, context) if is_probe(request) else answer


def is_probe(request):
    return request.startswith(b"\x08\x01")


FAULTS = {
    "test_harm.py::test_a_server_that_never_answers_is_soon_named": hang,
    "test_wire_answers.py::test_a_bomb_is_not_opened": compressed,
    "test_wire_answers.py::test_a_hostile_answer_holds_nobody_up": lambda *_: field(8, b"\x0a\x00" * MB),
    "test_wire_answers.py::test_each_method_has_a_limit_of_its_own": lambda *_: field(8, bytes(9 * MB)),
    "test_wire_cost.py::test_a_trace_that_takes_too_long_is_given_up": of_a_sample(
        field(8, field(1, field(2, odd_reading.ENDLESS)))
    ),
    "test_wire_cost.py::test_a_trace_that_takes_too_much_memory_is_given_up": of_a_sample(
        field(8, field(1, field(2, odd_reading.HUNGRY)))
    ),
    "test_wire_fairness.py::test_healthy_workers_keep_their_turns": hang_after_the_probe,
    "test_wire_size.py::test_a_larger_trace_is_refused_and_the_next_window_is_shorter": of_a_sample(
        field(8, bytes(20 * MB))
    ),
}
"""What a profiler server does, by the test that shows what then holds."""


class Server(Answering):
    """A profiler server without Monitor that does this until it is `well`."""

    def __init__(self, fault):
        self.is_well = False
        self.queries_since = 0

        def serve(request, context):
            return (healthy if self.is_well else fault)(request, context)

        super().__init__(serve)


@pytest.fixture
def _sooner(monkeypatch):
    """What takes ten seconds takes two and a half."""
    for module, name in (
        (rpc, "ANSWER_GRACE_S"), (profile, "ANSWER_GRACE_S"), (rpc, "FIRST_ANSWER_S"), (trace, "_PATIENCE_S"),
        (pace, "LONGEST_PAUSE_S"), (pace, "_FIRST_PAUSE_S"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, getattr(module, name) / 4)


@pytest.mark.usefixtures("_sooner")
def test_figures_come_back_after_every_fault(record_testsuite_property):
    """Each server is well from its first failure on; how many queries its figures then take is noted."""
    back_after = {}

    async def main():
        done = asyncio.Event()

        def take(sample):
            server = servers[sample.address]
            server.queries_since += server.is_well
            if sample.failure is None:
                assert server.is_well
                back_after.setdefault(sample.address, server.queries_since)
            server.is_well = True
            if len(back_after) == len(servers):
                done.set()

        options = SourceOptions(max_trace_mb=10)
        sampler = Sampler(
            Fixed([Target(worker=address, address=address) for address in servers]),
            Query(level=2),
            Pace(interval_s=INTERVAL_S, max_duty_ratio=1.0),
            on_sample=take,
            options=options,
            open_client=lambda address: Client(address, max_bytes=10 * MB),
            extra_sources=(),
        )
        running = asyncio.create_task(sampler.run())
        try:
            async with asyncio.timeout(100):
                await done.wait()
        finally:
            running.cancel()
            await asyncio.wait([running])

    with contextlib.ExitStack() as stack:
        stack.enter_context(odd_reading.odd_readers())
        made = {row: stack.enter_context(Server(fault)) for row, fault in FAULTS.items()}
        servers = {server.address: server for server in made.values()}
        asyncio.run(main())
    for row, server in made.items():
        record_testsuite_property(row, after_queries(back_after[server.address]))

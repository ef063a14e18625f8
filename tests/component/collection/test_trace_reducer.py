"""Traces that overflow are made lighter, and what a server makes of that is remembered for its connection."""

from __future__ import annotations

import asyncio

import pytest

from fakes.tpu_node import TpuNode
from tpumon.collection.sources import Client, SourceOptions
from tpumon.collection.sources.traces.reducer import TraceReducer
from tpumon.collection.sources.traces.source import TraceSource
from tpumon.errors import SourceError
from tpumon.model import Query, Target

SPARSE = {"tpu_num_sparse_cores_to_trace": 1, "tpu_num_sparse_core_tiles_to_trace": 1}
ONE_CHIP = {"tpu_num_chips_to_profile_per_task": 1}
AUTO = Query(level=2)


class Channel:
    connection = 1


def overflow(lighter, *, given=False, takes=True):
    return lighter.note_overflow(window_is_given=given, knows_options=takes)


def test_the_steps_come_one_after_another():
    """A shorter window, fewer SparseCores, one chip; one that did not help is taken back."""
    lighter = TraceReducer(Channel())
    assert lighter.options == {}
    assert overflow(lighter)
    assert (lighter.options, lighter.warning) == ({}, None)
    assert not overflow(lighter)
    assert lighter.options == SPARSE
    assert "SparseCore" in lighter.warning.message
    assert not overflow(lighter)
    assert lighter.options == SPARSE | ONE_CHIP
    for _ in range(3):
        assert not overflow(lighter)
        assert lighter.options == SPARSE


def test_a_window_that_the_user_chose_stays():
    lighter = TraceReducer(Channel())
    assert not overflow(lighter, given=True)
    assert lighter.options == SPARSE


def test_an_old_server_gets_no_option():
    lighter = TraceReducer(Channel())
    for _ in range(5):
        overflow(lighter, takes=False)
        assert lighter.options == {}


def test_what_was_given_up_stays_so_until_the_connection_is_another():
    channel = Channel()
    lighter = TraceReducer(channel)
    overflow(lighter, given=True)
    lighter.give_up()
    for _ in range(3):
        assert not overflow(lighter)
        assert lighter.options == {}
    channel.connection = 2
    overflow(lighter, given=True)
    assert lighter.options == SPARSE


def fetch(node, queries):
    """What each query came to, by one source."""

    async def main():
        async with Client(node.address) as client:
            source = TraceSource(client, Target(worker="w", address=node.address), SourceOptions())
            results = []
            for _ in range(queries):
                try:
                    results.append(await source.fetch(AUTO))
                except SourceError as error:
                    results.append(error.reason)
            return results

    return asyncio.run(main())


def asked(node):
    return [call.fields["opts"]["advanced"] for call in node.captures]


def test_options_that_help_stay_and_the_figures_say_what_is_left_out():
    with TpuNode(device=True, overflow="accepted") as node:
        samples = fetch(node, 4)
        windows_ms = [call.fields["opts"]["duration_ms"] for call in node.captures]
    assert asked(node) == [{}, {}, SPARSE, SPARSE]
    assert [sample.truncated is not None for sample in samples] == [True, True, False, False]
    assert ["lighter" in {warning.code for warning in sample.warnings} for sample in samples] == [
        False,
        False,
        True,
        True,
    ]
    assert windows_ms[1] <= windows_ms[0] / 2


def test_a_refusal_costs_nothing():
    """The same query goes on without the options, and they are never sent again."""
    with TpuNode(device=True, overflow="refused") as node:
        samples = fetch(node, 5)
    assert asked(node) == [{}, {}, SPARSE, {}, {}, {}]
    assert all(sample.truncated for sample in samples)


def test_options_with_which_nothing_is_collected_are_given_up():
    with TpuNode(device=True, overflow="nothing") as node:
        results = fetch(node, 5)
    assert asked(node) == [{}, {}, SPARSE, {}, {}]
    assert results[2] == "empty-trace"
    assert results[4].truncated


@pytest.mark.parametrize("generation", ["new", "2025"])
def test_a_trace_that_does_not_overflow_is_asked_for_as_ever(generation):
    with TpuNode(device=True, generation=generation) as node:
        fetch(node, 3)
    assert asked(node) == [{}, {}, {}]

"""A job is traced for one share of its time, whoever starts and ends beside it: real processes, one server."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import pytest

from fakes.run import Tpumon
from fakes.tpu_node import TpuNode


@pytest.fixture
def follow(tmp_path):
    """Starts a tpumon that wants to trace all the time, on a host that it shares with the others."""
    with ExitStack() as running:

        def start(node):
            words = ("--output", "jsonl", "--interval", "0", "--duration-ms", "500", "--service-addr", node.address)
            return running.enter_context(Tpumon(*words, env={"TPUMON_PAUSE_DIR": str(tmp_path)}))

        yield start


def test_a_tpumon_that_was_killed_is_no_reason_to_trace_more(follow):
    """It has used up what may be traced at once; the next one waits, and says for how long."""
    with TpuNode(device=True) as node:
        first = follow(node)
        first.wait_for(lambda: len(first.out.splitlines()) >= 2)
        first.signal(signal.SIGKILL)
        before = len(node.captures)
        second = follow(node)
        second.wait_for(lambda: "the first sample comes in" in second.err)
        assert f"{node.address}: " in second.err
        assert len(node.captures) <= before + 1  # one that the first had just asked for

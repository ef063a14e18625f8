"""A trace has the same figures whichever way it is read: from memory or a file, by positions or by the runtime."""

from __future__ import annotations

import random
import tempfile

import pytest

from fakes.protobuf import field
from support.truncated import KINDS, truncated, whole
from tpumon.proto.xplane_pb2 import XSpace
from tpumon.xspace.columns import lines
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts
from tpumon.xspace.wire import fields

SPACES = [
    *(whole(random.Random(seed), dispatches=seed % 2 == 0).space for seed in range(6)),
    *(truncated(kind, 1)[1].space for kind in KINDS),
]
TRACES = [space.SerializeToString() for space in SPACES]


def found(xspace):
    return figures_of_hosts([read_host_totals(xspace)])


@pytest.fixture(scope="module")
def expected():
    return [found(trace) for trace in TRACES]


def test_a_file_is_read_as_its_bytes_are(expected):
    for trace, figures_of_bytes in zip(TRACES, expected, strict=True):
        with tempfile.TemporaryFile() as file:
            file.write(trace)
            file.flush()
            assert found(file) == figures_of_bytes


@pytest.mark.parametrize("portion_bytes", [100, 700, 1 << 20])
def test_lines_are_read_in_portions(monkeypatch, expected, portion_bytes):
    monkeypatch.setattr(lines, "_PORTION_BYTES", portion_bytes)
    assert [found(trace) for trace in TRACES] == expected


def test_lines_may_come_after_the_metadata(expected):
    """As no profiler writes them, and as the format allows."""
    for trace, usual in zip(TRACES, expected, strict=True):
        assert found(_lines_last(trace)) == usual


def _lines_last(trace):
    parts = []
    for number, begin, value_begin, end, _ in fields(memoryview(trace)):
        if number != 1:
            parts.append(trace[begin:end])
            continue
        plane = memoryview(trace)[value_begin:end]
        every = [(n, bytes(plane[at:last])) for n, at, _, last, _ in fields(plane)]
        parts.append(field(1, b"".join(raw for _, raw in sorted(every, key=lambda part: part[0] == 3))))
    assert XSpace.FromString(b"".join(parts)) == XSpace.FromString(trace)
    return b"".join(parts)

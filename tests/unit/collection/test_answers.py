"""The trace that an answer carries is what the runtime reads, at a bounded cost."""

from __future__ import annotations

import asyncio

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from fakes.protobuf import field
from tpumon.collection.sources.answers import parse
from tpumon.errors import SourceError
from tpumon.proto.profiler_pb2 import ProfileResponse

XSPACE = 8
LARGE = bytes(range(256)) * 100
"""More than what is parsed in the event loop."""

TEXTS = st.binary(min_size=1, max_size=40) | st.just(LARGE)
FIELDS = st.builds(field, st.sampled_from([1, 6, XSPACE, 15, 16]), TEXTS) | st.sampled_from(
    [b"\x38\x01", b"\x40\x05", b"\xc2\x00\x03abc", b"\xc2\x00\x00", field(XSPACE, b""), field(XSPACE, LARGE)]
)
"""Also the trace's number as a varint, and with a tag that is longer than it need be."""


def trace_in(data):
    return asyncio.run(parse(data, ProfileResponse, "Profile")).xspace


def either(read):
    """What it reads; None if it is refused."""
    try:
        return read()
    except (DecodeError, SourceError):
        return None


@given(st.lists(FIELDS, max_size=6).map(b"".join))
@example(field(XSPACE, LARGE) + b"\xc2\x00\x03abc")
@example(field(XSPACE, LARGE) + b"\xc2\x00\x00")
@example(field(XSPACE, b"first") + field(6, LARGE) + field(XSPACE, b"last"))
def test_it_is_what_the_runtime_reads(data):
    assert trace_in(data) == ProfileResponse.FromString(data).xspace


@given(st.binary(max_size=60), st.sampled_from([b"", field(XSPACE, LARGE)]))
@example(b"\x42\x05abc", b"")
@example(b"\x0f", field(XSPACE, LARGE))
def test_what_the_runtime_refuses_is_refused(odd, before):
    """What it reads is read alike; but groups, which no profiler server sends, are refused."""
    data = before + odd
    expected, found = either(lambda: ProfileResponse.FromString(data).xspace), either(lambda: trace_in(data))
    if found is None and (any(byte & 7 in {3, 4} for byte in odd) or data.startswith(b"\x1f\x8b")):
        return
    assert found == expected


@pytest.mark.parametrize("number", [XSPACE, 6])
def test_too_many_fields_are_refused(number):
    with pytest.raises(SourceError, match="more than 20000 fields") as caught:
        trace_in(field(number, b"a") * 50_000)
    assert caught.value.reason == "malformed"

"""Positions of events found at once are those that the protobuf runtime finds one by one."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tpumon.errors import SourceError
from tpumon.wire.xplane_pb2 import LineOutline, XEvent, XLine, XStat
from tpumon.xspace.wire.fields import fields
from tpumon.xspace.wire.lines import _split, read_line

SMALL = st.integers(1, 1 << 40)
USUAL = st.builds(
    lambda number, offset, stats: XEvent(
        metadata_id=number,
        offset_ps=offset,
        duration_ps=7,
        # Values that look like the beginning of an event.
        stats=[XStat(metadata_id=2, bytes_value=b'"\x05\x08\x01\x10' * count) for count in stats],
    ),
    st.integers(1, 16000),
    SMALL,
    st.lists(st.integers(0, 5), max_size=2),
)
ANY = st.one_of(USUAL, st.builds(XEvent), st.builds(XEvent, duration_ps=SMALL), st.builds(XEvent, metadata_id=SMALL))


def found(raw):
    packed = read_line(memoryview(raw)).events()
    return [packed.data[begin:end] for begin, end in zip(packed.begin, packed.end, strict=True)]


def line_of(events, **tail):
    return XLine(id=3, name="XLA Ops", timestamp_ns=-5, events=events, **tail).SerializeToString()


@given(st.lists(ANY, max_size=30), st.booleans())
def test_events_are_found_where_protobuf_finds_them(events, tail):
    raw = line_of(events, **({"duration_ps": 9, "display_name": "ops"} if tail else {}))
    assert found(raw) == [event.SerializeToString() for event in events]
    line = read_line(memoryview(raw))
    assert (line.name, line.timestamp_ns, line.has_events) == ("XLA Ops", -5, bool(events))


@given(st.lists(st.builds(XEvent, metadata_id=st.integers(1, 16000), offset_ps=SMALL), min_size=1, max_size=30))
def test_usual_events_need_no_runtime(events):
    raw = memoryview(line_of(events))
    assert _split(raw, read_line(raw).first) is not None


@given(st.lists(USUAL, min_size=1, max_size=5))
def test_a_line_that_says_its_name_last_is_read(events):
    raw = XLine(events=events).SerializeToString() + XLine(name="late", timestamp_ns=4).SerializeToString()
    line = read_line(memoryview(raw))
    assert (line.name, line.timestamp_ns, line.has_events) == ("late", 4, True)
    assert found(raw) == [event.SerializeToString() for event in events]


@given(st.lists(USUAL, min_size=1, max_size=5), st.data())
def test_a_damaged_line_is_read_as_protobuf_reads_it_or_refused(events, data):
    raw = bytearray(line_of(events))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        events_found = found(bytes(raw))
        expected = list(LineOutline.FromString(bytes(raw)).events)
    except (SourceError, DecodeError):
        return  # refusing is right; and what nobody reads, such as a name that is no text, may be damaged
    assert events_found == expected


@pytest.mark.parametrize("raw", [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\x00\x01", b"\xff" * 12, b"\x09\x01"])
def test_what_is_no_message_is_refused(raw):
    with pytest.raises(SourceError) as error:
        list(fields(memoryview(raw)))
    assert error.value.reason == "malformed"

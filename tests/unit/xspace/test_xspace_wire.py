"""Positions of events found at once are those that the protobuf runtime finds one by one."""

from __future__ import annotations

import tempfile
from itertools import chain

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tpumon.errors import SourceError
from tpumon.proto.xplane_pb2 import LineOutline, XEvent, XLine, XStat
from tpumon.xspace.columns import lines
from tpumon.xspace.columns.lines import PADDING, _beginnings, _split, read_line
from tpumon.xspace.wire import FileBytes, fields

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
    return events_of(read_line(memoryview(raw)))


def events_of(line):
    return [packed.event(row) for packed in line.portions() for row in range(len(packed.begin))]


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
    raw = line_of(events)
    first = read_line(memoryview(raw)).first
    assert _split(memoryview(raw + PADDING)[first:], len(raw) - first) is not None


@pytest.mark.parametrize(
    "within",
    [b"", b"\x22\x05\x08\x81\x10\x00", b"\x22\x05\x08\x01\x10\x00"],
    ids=["nothing", "only so long", "like an event"],
)
def test_what_looks_like_an_event_within_one_is_none(within):
    plain = XEvent(metadata_id=1, offset_ps=2, duration_ps=3)
    odd = XEvent(metadata_id=1, offset_ps=2, stats=[XStat(metadata_id=1, bytes_value=within)])
    events = [*[plain] * 20, odd, *[plain] * 20]
    assert found(line_of(events)) == [event.SerializeToString() for event in events]


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


def in_portions(line, most_bytes):
    return [
        [bytes(packed.data[begin:end]) for begin, end in zip(packed.begin, packed.end, strict=True)]
        for packed in line.portions(most_bytes)
    ]


@given(st.lists(ANY, max_size=30), st.booleans(), st.integers(1, 400), st.binary(max_size=40))
def test_portions_have_all_events_one_after_the_other(events, tail, most_bytes, after):
    raw = line_of(events, **({"duration_ps": 9, "display_name": "ops"} if tail else {}))
    line = read_line(memoryview(raw + after), 0, len(raw))
    assert [*chain(*in_portions(line, most_bytes))] == [event.SerializeToString() for event in events]


PLAIN, LONG = (
    XEvent(metadata_id=1, offset_ps=2, duration_ps=3),
    XEvent(metadata_id=1, stats=[XStat(str_value="x" * 200)]),
)


@pytest.mark.parametrize(
    ("events", "tail", "sizes", "by_runtime"),
    [
        ([PLAIN] * 20, {}, [10, 10], 0),
        ([PLAIN] * 25, {}, [10, 10, 5], 0),
        ([PLAIN] * 20, {"display_name": "ops"}, [10, 10], 0),
        ([*[PLAIN] * 15, LONG, *[PLAIN] * 15], {}, [10, 5, 16], 1),
        ([LONG, *[PLAIN] * 20], {}, [21], 1),
    ],
    ids=["whole ones", "a rest", "fields behind", "a long event", "a long one first"],
)
def test_the_runtime_reads_on_where_a_portion_is_not_usual(monkeypatch, events, tail, sizes, by_runtime):
    calls = []
    original = lines._outline
    monkeypatch.setattr(lines, "_outline", lambda raw: calls.append(1) or original(raw))
    line = read_line(memoryview(line_of(events, **tail)))
    assert [len(portion) for portion in in_portions(line, 85)] == sizes
    assert len(calls) == by_runtime


@pytest.mark.parametrize("raw", [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\x00\x01", b"\xff" * 12, b"\x09\x01"])
def test_what_is_no_message_is_refused(raw):
    with pytest.raises(SourceError) as error:
        list(fields(memoryview(raw)))
    assert error.value.reason == "malformed"


@given(st.lists(USUAL, min_size=1, max_size=8), st.binary(max_size=40), st.binary(max_size=40))
def test_a_line_is_read_in_place_whatever_lies_around_it(events, before, after):
    raw = line_of(events)
    line = read_line(memoryview(before + raw + after), len(before), len(before) + len(raw))
    assert events_of(line) == [event.SerializeToString() for event in events]


@given(st.lists(st.builds(XEvent, metadata_id=st.integers(1, 16000), offset_ps=SMALL), max_size=40), st.integers(0, 8))
def test_every_beginning_is_found(events, shift):
    raw = b"\xff" * shift + b"".join(bytes([0x22, e.ByteSize()]) + e.SerializeToString() for e in events) + bytes(5)
    at = shift
    expected = []
    for event in events:
        expected.append(at)
        at += 2 + event.ByteSize()
    found = _beginnings(np.frombuffer(raw, dtype=np.uint8)).tolist()
    assert set(expected) <= set(found)
    assert found == sorted(found)


@given(st.lists(st.tuples(st.integers(0, 12000), st.integers(0, 6000)), max_size=20))
def test_a_file_is_read_as_its_bytes_are(slices):
    data = bytes(range(256)) * 40
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        stored = FileBytes(file)
        assert len(stored) == len(data)
        for begin, length in slices:
            assert bytes(stored[begin : begin + length]) == data[begin : begin + length]


def test_a_file_that_becomes_shorter_is_refused():
    with tempfile.TemporaryFile() as file:
        file.write(bytes(100_000))
        file.flush()
        stored = FileBytes(file)
        file.truncate(10)
        with pytest.raises(SourceError) as refused:
            stored[0:50_000]
        assert refused.value.reason == "malformed"

"""Events read with NumPy are what the protobuf runtime reads, whatever the bytes."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tpumon.errors import SourceError
from tpumon.wire.xplane_pb2 import XEvent, XStat
from tpumon.xspace.columns import events as reader
from tpumon.xspace.columns.events import read_events, stat_bits
from tpumon.xspace.wire.lines import pack

INT64 = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 300), st.sampled_from([0, 127, 128, (1 << 56) - 1, 1 << 56])
)
UINT64 = st.one_of(st.integers(0, (1 << 64) - 1), st.integers(0, 300))
WANTED = (1, 2, 127, 128, 300, -7)
VALUES = st.one_of(
    st.builds(dict, int64_value=INT64),
    st.builds(dict, uint64_value=UINT64),
    st.builds(dict, double_value=st.floats(allow_nan=False)),
    st.builds(dict, ref_value=UINT64),
    st.builds(dict, str_value=st.text(max_size=200)),
    st.builds(dict, bytes_value=st.binary(max_size=200)),
    st.just({}),
)
STATS = st.builds(lambda i, value: XStat(metadata_id=i, **value), st.sampled_from([*WANTED, 0, 5, 4000]), VALUES)
PLACES = st.one_of(st.builds(dict, offset_ps=INT64), st.builds(dict, num_occurrences=INT64), st.just({}))
EVENTS = st.builds(
    lambda number, duration, place, stats: XEvent(metadata_id=number, duration_ps=duration, **place, stats=stats),
    INT64,
    INT64,
    PLACES,
    st.lists(STATS, max_size=5),
)
ODDITIES = st.sampled_from(
    [
        b"",
        b"\x08\x05",  # metadata_id again: the last one counts
        b"\x10\x07",  # an offset after an occurrence count
        b"\x28\x07",  # an occurrence count after the offset: the offset is gone
        b"\x88\x00\x09",  # metadata_id with a tag longer than need be
        b"\x08\x85\x80\x00",  # a varint longer than need be
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x52\x03abc",  # an unknown field
        b"\x53\x08\x01\x54",  # an unknown group
        b"\x0d\x01\x02\x03\x04",  # metadata_id with another wire type
        b"\x22\x00",  # an empty stat
        b"\x22\x04\x18\x09\x08\x01",  # a stat's value before its id
        b"\x22\x06\x08\x01\x18\x09\x18\x0a",  # two values
        b"\x22\x04\x08\x01\x08\x02",  # two ids, no value
        b"\x22\x06\x08\x01\x18\x09\x52\x00",  # an unknown field in a stat
    ]
)


def expected(events):
    stats = {number: [] for number in WANTED}
    for row, event in enumerate(events):
        for stat in event.stats:
            if stat.metadata_id in stats:
                stats[stat.metadata_id].append((row, *stat_bits(stat)))
    return stats


def check(raw):
    """Compares with the runtime; events that it refuses must be refused."""
    try:
        events = [XEvent.FromString(one) for one in raw]
    except DecodeError:
        with pytest.raises(SourceError) as refused:
            read_events(pack(raw), WANTED)
        assert refused.value.reason == "malformed"
        return
    found = read_events(pack(raw), WANTED)
    assert found.metadata_id.tolist() == [event.metadata_id for event in events]
    assert found.offset_ps.tolist() == [event.offset_ps for event in events]
    assert found.duration_ps.tolist() == [event.duration_ps for event in events]
    for number, entries in expected(events).items():
        column = found.stats.get(number)
        got = (
            []
            if column is None
            else list(zip(column.rows.tolist(), column.values.tolist(), column.is_double.tolist(), strict=True))
        )
        assert sorted(got) == sorted(entries)
        assert [row for row, *_ in got] == sorted(row for row, *_ in got)


@given(st.lists(EVENTS, max_size=40))
def test_events_are_what_protobuf_reads(events):
    check([event.SerializeToString() for event in events])


@given(st.lists(st.tuples(EVENTS, ODDITIES, ODDITIES), max_size=20))
def test_unusual_encodings_are_read_as_protobuf_reads_them(parts):
    check([before + event.SerializeToString() + after for event, before, after in parts])


@given(st.lists(st.binary(max_size=24), min_size=1, max_size=6))
def test_any_bytes_are_read_or_refused_as_protobuf_does(raw):
    check(raw)


@given(st.lists(EVENTS, min_size=1, max_size=6), st.data())
def test_a_damaged_event_is_read_or_refused_as_protobuf_does(events, data):
    raw = [bytearray(event.SerializeToString()) for event in events]
    victim = raw[data.draw(st.integers(0, len(raw) - 1))]
    if victim:
        victim[data.draw(st.integers(0, len(victim) - 1))] = data.draw(st.integers(0, 255))
        del victim[data.draw(st.integers(0, len(victim))) :]
    check([bytes(one) for one in raw])


@given(st.lists(EVENTS, max_size=20))
def test_events_are_read_in_portions(events):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_CHUNK_EVENTS", 3)
        check([event.SerializeToString() for event in events])


def test_an_event_of_very_many_fields_is_read():
    event = XEvent(metadata_id=3, stats=[XStat(metadata_id=1, int64_value=i) for i in range(5000)])
    check([event.SerializeToString() + b"\x08\x05" * 5000, XEvent(metadata_id=4).SerializeToString()])


def test_a_column_says_what_the_events_without_the_stat_have():
    raw = [
        XEvent(stats=[XStat(metadata_id=1, double_value=0.5)]).SerializeToString(),
        XEvent().SerializeToString(),
        XEvent(stats=[XStat(metadata_id=1, int64_value=-3)]).SerializeToString(),
    ]
    column = read_events(pack(raw), (1,)).stats[1]
    np.testing.assert_array_equal(column.numbers(3, 1.0), [0.5, 1.0, -3.0])
    assert column.integers(3, 7)[1:].tolist() == [7, -3]

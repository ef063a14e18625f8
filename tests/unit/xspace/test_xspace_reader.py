"""Events read with NumPy are what the protobuf runtime reads, whatever the bytes."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tpumon.errors import SourceError
from tpumon.proto.xplane_pb2 import XEvent, XStat
from tpumon.xspace.columns import event_decoder as reader
from tpumon.xspace.columns.event_decoder import of_kinds, read_events, stat_bits
from tpumon.xspace.columns.lines import pack

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


def expected(events, wanted):
    """By stat: row, bits and whether a double's; an event that has a stat twice has its last one."""
    stats = {number: {} for number in wanted}
    for row, event in enumerate(events):
        for stat in event.stats:
            if stat.metadata_id in stats:
                stats[stat.metadata_id][row] = (row, *stat_bits(stat))
    return {number: list(entries.values()) for number, entries in stats.items()}


def entries(column):
    if column is None:
        return []
    rows = column.rows
    doubles = column.doubles[rows].tolist() if column.doubles is not None else [False] * len(rows)
    return list(zip(rows.tolist(), column.values[rows].tolist(), doubles, strict=True))


def same(found, events, wanted=WANTED):
    assert found.metadata_id.tolist() == [event.metadata_id for event in events]
    assert found.offset_ps.tolist() == [event.offset_ps for event in events]
    assert found.duration_ps.tolist() == [event.duration_ps for event in events]
    for number, told in expected(events, wanted).items():
        assert entries(found.stats.get(number)) == told
    assert found.stats.keys() <= set(wanted)


def check(raw, wanted=WANTED):
    """Compares with the runtime, by positions and by messages.

    Events that the runtime refuses are refused, or broken only where nobody asks.
    """
    try:
        events = [XEvent.FromString(one) for one in raw]
    except DecodeError:
        with contextlib.suppress(SourceError):
            read_events(pack(raw), wanted)
        return
    same(read_events(pack(raw), wanted), events, wanted)


@given(st.lists(EVENTS, max_size=40))
def test_events_are_what_protobuf_reads(events):
    check([event.SerializeToString() for event in events])


@given(st.lists(st.tuples(EVENTS, ODDITIES, ODDITIES), max_size=20))
def test_unusual_encodings_are_read_as_protobuf_reads_them(parts):
    check([before + event.SerializeToString() + after for event, before, after in parts])


ONE_ID = ODDITIES.filter(lambda oddity: not XEvent.FromString(oddity).metadata_id)


@given(st.lists(st.tuples(EVENTS, ONE_ID, ONE_ID), max_size=20))
def test_events_of_some_kinds_are_what_protobuf_reads(parts):
    raw = [before + event.SerializeToString() + after for event, before, after in parts]
    try:
        events = [XEvent.FromString(one) for one in raw]
    except DecodeError:
        return
    kinds = [event.metadata_id for event in events[::2]]
    picked = of_kinds(pack(raw), kinds)
    read = [XEvent.FromString(picked.data[begin:end]) for begin, end in zip(picked.begin, picked.end, strict=True)]
    assert [one for one in read if one.metadata_id in kinds] == [one for one in events if one.metadata_id in kinds]


def test_events_of_other_kinds_are_not_read():
    raw = [usual(row).SerializeToString() for row in range(1, 100)]
    odd = [XEvent().SerializeToString(), b"\x10\x07\x08\x03", XEvent(metadata_id=-1).SerializeToString()]
    picked = of_kinds(pack([*raw, *odd]), (2, 1 << 40))
    assert len(picked.begin) == 33 + len(odd)


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


def test_an_event_of_very_many_fields_is_read():
    event = XEvent(metadata_id=3, stats=[XStat(metadata_id=1, int64_value=i) for i in range(5000)])
    check([event.SerializeToString() + b"\x08\x05" * 5000, XEvent(metadata_id=4).SerializeToString()])


@pytest.fixture
def odd(monkeypatch):
    """How many events the runtime read, each time that it came to that."""
    counts = []
    original = reader._Decoder._read_odd
    monkeypatch.setattr(
        reader._Decoder, "_read_odd", lambda self, rows: counts.append(len(rows)) or original(self, rows)
    )
    return counts


def usual(row, stats=((1, "int64_value"), (5, "uint64_value"), (2, "double_value"))):
    values = {"int64_value": -row, "uint64_value": 300 * row, "double_value": row / 3, "str_value": "x" * row}
    given = [XStat(metadata_id=number, **{kind: values[kind]}) for number, kind in stats]
    return XEvent(metadata_id=1 + row % 3, offset_ps=1000 * row, duration_ps=7 + row, stats=given)


def test_events_of_the_same_fields_need_no_runtime(odd):
    check([usual(row).SerializeToString() for row in range(1, 200)])
    assert not odd


NEIGHBOURS = {
    "one stat less": usual(7, ((1, "int64_value"), (5, "uint64_value"))),
    "one stat more": usual(7, ((1, "int64_value"), (5, "uint64_value"), (2, "double_value"), (2, "int64_value"))),
    "no stat": usual(7, ()),
    "another stat": usual(7, ((1, "int64_value"), (5, "uint64_value"), (127, "double_value"))),
    "another kind": usual(7, ((1, "int64_value"), (5, "uint64_value"), (2, "int64_value"))),
    "a long id": usual(7, ((128, "int64_value"), (5, "uint64_value"), (2, "double_value"))),
    "text": usual(7, ((1, "str_value"), (5, "uint64_value"), (2, "double_value"))),
    "no offset": XEvent(metadata_id=1, duration_ps=3),
    "empty": XEvent(),
}


@pytest.mark.parametrize("other", NEIGHBOURS.values(), ids=NEIGHBOURS)
@pytest.mark.parametrize("place", [0, 50, 99])
def test_one_event_of_other_fields_is_read_with_the_others(odd, other, place):
    raw = [usual(row).SerializeToString() for row in range(1, 100)]
    check([*raw[:place], other.SerializeToString(), *raw[place:]])
    assert not odd


@pytest.mark.parametrize("after", [b"\x52\x03abc", b"\x88\x00\x09"])
def test_one_event_that_is_not_simple_is_the_runtimes(odd, after):
    raw = [usual(row).SerializeToString() for row in range(1, 100)]
    check([*raw, usual(3).SerializeToString() + after])
    assert odd == [1]


UNASKED = usual(7, ((5, "uint64_value"), (4000, "str_value")))
TEXT = XStat(metadata_id=5, bytes_value=b"\x18\x85\x01" * 100)
DURATIONS = XEvent(metadata_id=1, offset_ps=7, duration_ps=14, stats=[TEXT])
AFTER_STATS = {
    "nothing more": UNASKED.SerializeToString(),
    "another stat": usual(7, ((1, "double_value"), (2, "str_value"))).SerializeToString(),
    "an empty stat": usual(7, ((5, "uint64_value"),)).SerializeToString() + b"\x22\x00",
    "a long stat": usual(200, ((5, "uint64_value"), (4000, "str_value"))).SerializeToString(),
    "what looks like durations in a long stat": DURATIONS.SerializeToString(),
    "a duration": UNASKED.SerializeToString() + b"\x18\x09",
    "a count of occurrences": UNASKED.SerializeToString() + b"\x28\x09",
}


@pytest.mark.parametrize("other", AFTER_STATS.values(), ids=AFTER_STATS)
@pytest.mark.parametrize("place", [0, 50, 99])
def test_where_no_stat_is_wanted_stats_are_skipped_and_nothing_else_is(other, place):
    raw = [usual(row, ((5, "uint64_value"), (4000, "str_value"))).SerializeToString() for row in range(1, 100)]
    check([*raw[:place], other, *raw[place:]], wanted=())


@given(st.lists(st.tuples(EVENTS, ODDITIES), max_size=20))
def test_where_no_stat_is_wanted_the_rest_is_what_protobuf_reads(parts):
    check([event.SerializeToString() + after for event, after in parts], wanted=())


LAYOUTS = st.lists(
    st.tuples(st.sampled_from([1, 2, 5, 127]), st.sampled_from(["int64_value", "uint64_value", "double_value"])),
    max_size=4,
)


@given(LAYOUTS, st.lists(st.integers(0, 4), min_size=1, max_size=30), st.one_of(st.none(), EVENTS))
def test_events_of_one_layout_are_what_protobuf_reads(layout, lengths, other):
    """Each with as many of its stats as its length says."""
    events = [usual(row, layout[:length]) for row, length in enumerate(lengths, 1)] + ([other] if other else [])
    check([event.SerializeToString() for event in events])


def test_a_column_says_what_the_events_without_the_stat_have():
    raw = [
        XEvent(stats=[XStat(metadata_id=1, double_value=0.5)]).SerializeToString(),
        XEvent().SerializeToString(),
        XEvent(stats=[XStat(metadata_id=1, int64_value=-3)]).SerializeToString(),
    ]
    column = read_events(pack(raw), (1,)).stats[1]
    np.testing.assert_array_equal(column.numbers(1.0), [0.5, 1.0, -3.0])
    assert column.integers(7)[1:].tolist() == [7, -3]

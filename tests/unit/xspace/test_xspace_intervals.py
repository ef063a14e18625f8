"""Interval arithmetic against what one would do on paper: counting moments one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpumon.xspace.columns import intervals
from tpumon.xspace.columns.intervals import (
    by_id,
    covered_ps,
    first_overlapping,
    indexed,
    own_intervals,
    parents,
    self_times_ps,
    timeline_order,
    union,
)

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=25)


def arrays(spans):
    begin, duration = (np.array([span[i] for span in spans], dtype=np.int64) for i in (0, 1))
    return begin, duration


def in_order(spans):
    return sorted(spans, key=lambda span: (span[0], -span[1]))


def moments(spans):
    return {moment for begin, duration in spans for moment in range(begin, begin + duration)}


def stack_parents(spans):
    """XProf's AncestorStack, literally."""
    found, stack = [], []
    for i, (begin, duration) in enumerate(spans):
        while stack and not (spans[stack[-1]][0] <= begin and begin + duration <= sum(spans[stack[-1]])):
            stack.pop()
        found.append(stack[-1] if stack else -1)
        stack.append(i)
    return found


@given(SPANS)
def test_a_union_covers_the_same_moments_once(spans):
    begin, duration = arrays(spans)
    found = union(begin, begin + duration)
    assert covered_ps(begin, begin + duration) == len(moments(spans))
    assert {m for b, e in zip(*found, strict=True) for m in range(b, e)} == moments(spans)
    assert (found[0][1:] > found[1][:-1]).all()


@given(SPANS)
def test_events_are_put_in_timeline_order_unless_they_are(spans):
    begin, duration = arrays(spans)
    order = timeline_order(begin, duration)
    found = spans if order is None else [spans[i] for i in order]
    assert found == in_order(spans)


@given(SPANS)
def test_an_event_lies_in_the_innermost_one_that_encloses_it(spans):
    spans = in_order(spans)
    begin, duration = arrays(spans)
    assert parents(begin + duration).tolist() == stack_parents(spans)


@given(SPANS)
def test_deep_nesting_is_found_one_by_one(spans):
    spans = in_order(spans)
    begin, duration = arrays(spans)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_MOST_ROUNDS", 0)
        assert parents(begin + duration).tolist() == stack_parents(spans)


def test_absurdly_deep_nesting_takes_no_absurd_time():
    depth = 20_000
    ends = np.concatenate([np.arange(3 * depth, 2 * depth, -1), 2 * depth + np.arange(depth)])
    assert len(parents(ends)) == 2 * depth


@given(SPANS)
def test_self_time_is_what_the_events_within_leave(spans):
    spans = in_order(spans)
    begin, duration = arrays(spans)
    expected = [duration for _, duration in spans]
    for i, parent in enumerate(stack_parents(spans)):
        if parent >= 0:
            expected[parent] -= spans[i][1]
    assert self_times_ps(begin, duration).tolist() == expected


@given(SPANS, st.data())
def test_own_time_is_without_the_events_directly_within(spans, data):
    spans = in_order(spans)
    begin, duration = arrays(spans)
    picked = np.array(data.draw(st.lists(st.booleans(), min_size=len(spans), max_size=len(spans))), dtype=np.bool_)
    expected = set()
    above = stack_parents(spans)
    for i, span in enumerate(spans):
        if picked[i]:
            expected |= moments([span]) - moments([spans[j] for j in range(len(spans)) if above[j] == i])
    begins, ends = own_intervals(begin, begin + duration, picked)
    assert {m for b, e in zip(begins, ends, strict=True) for m in range(b, e)} == expected


@given(SPANS, st.lists(st.tuples(st.integers(1, 9), st.integers(0, 6)), max_size=8))
def test_an_interval_is_given_to_the_first_that_it_overlaps_or_touches(spans, steps):
    row, at = [], 0
    for duration, gap in steps:
        row.append((at + gap, duration))
        at += gap + duration
    begin, duration = arrays(spans)
    step_begin, step_duration = arrays(row)
    expected = [
        next((i for i, (b, d) in enumerate(row) if b <= begin + duration and begin <= b + d), -1)
        for begin, duration in spans
    ]
    found = first_overlapping(begin, begin + duration, step_begin, step_begin + step_duration)
    assert found.tolist() == expected


@given(st.lists(st.one_of(st.integers(0, 9), st.sampled_from([-1, 1 << 19, 1 << 20, 1 << 40])), max_size=30))
def test_numbers_are_told_apart(numbers):
    """By a table as large as the largest, or by sorting where one is negative or very large."""
    values = np.array(numbers, dtype=np.int64)
    found, index = indexed(values)
    assert found.tolist() == sorted(set(numbers))
    assert found[index].tolist() == numbers
    rows = {each: [row for row, value in enumerate(numbers) if value == each] for each in sorted(set(numbers))}
    assert [(each, here.tolist()) for each, here in by_id(values)] == [*rows.items()]

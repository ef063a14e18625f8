"""What there may be of everything in a trace. A limit that is reached is said; no figure is of a part in silence."""

from __future__ import annotations

import pytest

from support.traces import CONV, Op, Traced, run_step
from tpumon.errors import SourceError
from tpumon.xspace.columns import lines
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.planes import plane, space
from tpumon.xspace.steps import linking
from tpumon.xspace.trace_figures import figures_of_hosts

MOST = 5


def planes(count):
    traced = Traced()
    for number in range(count):
        run_step(traced.core(number), 0, [(CONV, 10)] * 3)
    return traced


def threads(count):
    traced = planes(1)
    host = traced.named("/host:CPU")
    for number in range(count):
        host.line(f"thread {number}", number + 1).events.add(metadata_id=host.event_id("call"), duration_ps=5)
    return traced


def roots(count):
    """As many steps of a core that a root on the host leads to, and one that none does."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    for number in range(count):
        host.event("thread", "step", 10 * number, 5, _r=1, _pt=1, _p=number)
    for number in range(count + 1):
        run_step(core, 10 * number, [(CONV, 5)])
    for number, step in enumerate(core.line("Steps").events):
        core.put(step.stats, {"_ct": 1, "_c": number})
    return traced


def ids(count):
    """A plane that names as many events and stats, at least two of each."""
    traced = Traced()
    core = traced.core(0)
    run_step(core, 0, [(CONV, 1)])
    named = len(core.plane.event_metadata) + len(core.plane.stat_metadata)
    for number in range(count - named):
        (core.event_id if number % 2 else core.stat_id)(f"name {number}")
    assert len(core.plane.event_metadata) + len(core.plane.stat_metadata) == count
    return traced


def events(count, **stats):
    """A line of as many ops; with stats, the runtime finds them one by one."""
    traced = Traced()
    core = traced.core(0)
    for number in range(count):
        core.event("XLA Ops", Op("fusion.1", "loop fusion"), 10 * number, 5, **stats)
    return traced


def said(traced):
    return [warning.message for warning in read_host_totals(traced.bytes()).warnings if warning.code == "capped"]


@pytest.mark.parametrize(
    ("module", "limit", "shape", "most", "words"),
    [
        (space, "_MOST_PLANES", planes, MOST, "5 planes: the others are left out"),
        (space, "_MOST_CORES", planes, MOST, "5 cores: the others are left out"),
        (plane, "MOST_LINES", threads, MOST, "5 lines in one plane: the others are left out"),
        (linking, "_MOST_ROOTS", roots, MOST, "5 roots of steps: step markers are matched by counting instead"),
    ],
)
def test_what_is_left_out_is_said(module, limit, shape, most, words, monkeypatch):
    """At the limit nothing is left out; one more, and the sample has a warning `capped`."""
    monkeypatch.setattr(module, limit, most)
    if limit == "MOST_LINES":
        monkeypatch.setattr(space, limit, most)
    assert said(shape(most)) == []
    assert said(shape(most + 1)) == [f"the trace has more than {words}"]


@pytest.mark.parametrize(
    ("module", "limit", "shape", "most", "words"),
    [
        (plane, "_MOST_IDS", ids, 40, "a plane of the trace has more than 40 ids of events and stats"),
        (lines, "MOST_EVENTS", events, 500, "a line of the trace has more than 500 events"),
    ],
)
def test_a_trace_is_refused_where_a_part_of_it_would_give_false_figures(module, limit, shape, most, words, monkeypatch):
    """Ops that are left out would count as idle time. The window of the next trace is shorter."""
    traced = shape(most), shape(most + 1)
    whole = figures_of_hosts([read_host_totals(traced[0].bytes())])
    monkeypatch.setattr(module, limit, most)
    assert figures_of_hosts([read_host_totals(traced[0].bytes())]) == whole
    with pytest.raises(SourceError) as caught:
        figures_of_hosts([read_host_totals(traced[1].bytes())])
    assert (caught.value.reason, caught.value.message) == ("too-large", words)


def test_events_that_are_found_one_by_one_are_counted_too(monkeypatch):
    """Long ones are."""
    monkeypatch.setattr(lines, "MOST_EVENTS", 100)
    long = {"text": "x" * 200}
    assert read_host_totals(events(100, **long).bytes()).cores
    with pytest.raises(SourceError, match="more than 100 events"):
        read_host_totals(events(101, **long).bytes())


def test_steps_beyond_the_limit_of_roots_are_all_there(monkeypatch):
    """Where roots lead to markers, only those count; beyond the limit all of them do, as if no root led to any."""
    traced = roots(MOST + 1).bytes()
    assert figures_of_hosts([read_host_totals(traced)]).figures.step_time_s.count == MOST + 1
    monkeypatch.setattr(linking, "_MOST_ROOTS", MOST)
    assert figures_of_hosts([read_host_totals(traced)]).figures.step_time_s.count == MOST + 2


def test_the_limits_are_far_from_what_programs_have():
    """A trace of 64 MB has 2,000,000 events, a program some thousand ops, a host 16 cores."""
    assert lines.MOST_EVENTS > 2_000_000
    assert plane._MOST_IDS > 100_000
    assert linking._MOST_ROOTS > 100_000

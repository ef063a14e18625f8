"""The top operations of a sample: the report's numbers, only when asked for, and only of the last trace."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

from support.captures import megacore, nested, real_trace, training
from support.exporter import get, serving
from support.sample_kinds import KINDS, with_top_ops
from support.samples import sample
from support.simulated import fleet_of
from support.traces import CONV, Op, Traced, run_step
from tpumon.analysis import Update
from tpumon.analysis.history import WorkerHistory
from tpumon.cli.commands import monitor
from tpumon.cli.process import command_of
from tpumon.collection.sources import Client, SourceOptions
from tpumon.collection.sources.monitor_rpc import MonitorSource
from tpumon.collection.sources.traces.source import TraceSource
from tpumon.model import MOST_OPS, Figures, Query, Sample, Target, bounded
from tpumon.report.ops_section import build
from tpumon.report.profiles import Capture, Choice, HostProfile
from tpumon.simulator.scenario import SimulatedJob
from tpumon.simulator.topology import parse_topology
from tpumon.simulator.trace_writer import TraceOptions, build_trace
from tpumon.xspace import trace_figures
from tpumon.xspace.profile.profile import read_profile
from tpumon.xspace.profile.top_ops import NAME_LENGTH
from tpumon.xspace.trace_figures import read_figures


def real():
    return real_trace().read_bytes()


def simulated():
    job = SimulatedJob(topology=parse_topology("v6e-16"), scenario="steady", seed=1)
    return build_trace(
        job, 0, start_ns=10**10, stop_ns=10**10 + 350_000_000, epoch_unix_ns=1, options=TraceOptions()
    ).xspace


def alike():
    """More ops than anybody asks for, all of the same time."""
    traced = Traced()
    run_step(traced.core(0), 100, [(Op(f"fusion.{i}", f"kind {i % 30}"), 10) for i in range(60)])
    return traced.bytes()


TRACES = {
    "real": real,
    "simulated": simulated,
    "every kind of op": lambda: training().bytes(),
    "ops within ops": lambda: nested().bytes(),
    "megacore": lambda: megacore().bytes(),
    "all alike": alike,
}


@pytest.mark.parametrize("most", [1, 3, 10, MOST_OPS])
@pytest.mark.parametrize("trace", TRACES)
def test_the_numbers_are_those_of_the_report(trace, most):
    """Names, order, times, shares, counts and rates, of operations and of categories."""
    xspace = TRACES[trace]()
    profile = read_profile(xspace, {"ops"})
    found = read_figures(xspace, most)
    report = build(Capture(hosts=(HostProfile(name="h", profile=profile),), figures=found), Choice(top=most))

    numbers = ("self_time_s", "time_ratio", "flops_rate", "flops_utilization_ratio", "hbm_rate")
    numbers = (*numbers, "hbm_utilization_ratio")
    ops = found.figures.ops
    assert [(op.name, op.category, op.program, op.occurrences) for op in ops] == [
        (row.name, row.category, row.program, row.occurrences) for row in report.ops
    ]
    for op, row in zip(ops, report.ops, strict=True):
        assert [getattr(op, name) for name in numbers] == pytest.approx([getattr(row, name) for name in numbers])
    categories = {each.name: each for each in found.figures.op_categories}
    assert list(categories) == [group.name for group in report.by_category]
    for group in report.by_category:
        own = categories[group.name]
        assert (own.ops, own.occurrences) == (group.ops, group.occurrences)
        assert (own.self_time_s, own.time_ratio) == pytest.approx((group.self_time_s, group.time_ratio))


def test_what_is_not_asked_for_costs_nothing(monkeypatch):
    """No name is read, and all other figures are the same."""
    asked = read_figures(training().bytes(), 5)
    monkeypatch.setattr(trace_figures, "top_ops", None)
    found = read_figures(training().bytes(), 0)
    assert (found.figures.ops, found.figures.op_categories) == (None, None)
    assert asked.figures.with_ops(0) == found.figures


def test_names_are_short_and_safe():
    traced = Traced()
    name, category = "\x1b[31mfusion" + 10_000 * "x", "loop\nfusion" + 10_000 * "y"
    run_step(traced.core(0), 100, [(Op(name, category), 10), (CONV, 5)])
    figures = read_figures(traced.bytes(), 10).figures
    (longest, _) = figures.ops
    assert longest.name.startswith("fusionxxx")
    assert longest.category.startswith("loop fusionyyy")
    assert figures.op_categories[0].name == longest.category
    assert len(longest.name) == len(longest.category) == NAME_LENGTH


@pytest.mark.parametrize(
    ("traced", "reason"),
    [
        (lambda traced: traced.host().event("python", "step", 0, 100), "no device in the trace"),
        (lambda traced: traced.core(0).event("XLA Modules", "jit_f(42)", 0, 9), "programs ran, but no op was recorded"),
    ],
)
def test_where_there_is_no_operation_the_reason_is_said(traced, reason):
    space = Traced()
    traced(space)
    figures = read_figures(space.bytes(), 10).figures
    assert (figures.ops, figures.absent["ops"]) == (None, reason)


@pytest.mark.parametrize(("level", "ops"), [(2, 0), (2, 3), (1, 3)])
def test_a_sample_has_them_if_its_query_says_so(ops, level):
    """By a process of its own, as samples are taken; level 1 shows less."""

    async def main():
        async with fleet_of("v5e-4") as fleet:
            (target,) = fleet.targets
            async with Client(target.address) as client:
                return await TraceSource(client, target, SourceOptions()).fetch(
                    Query(level=level, window_s=0.2, ops=ops)
                )

    taken = asyncio.run(main()).figures
    if not ops or level < 2:
        assert (taken.ops, taken.op_categories) == (None, None)
        return
    assert len(taken.ops) == len(taken.op_categories) == ops
    assert taken.ops[0].category == taken.op_categories[0].name == "convolution fusion"


@pytest.mark.parametrize("ops", [0, 3])
def test_the_monitor_rpc_has_none_and_says_so(ops):
    async def main():
        async with fleet_of("v2-8", monitor=True) as fleet:
            (target,) = fleet.targets
            async with Client(target.address) as client:
                return await MonitorSource(client, target, SourceOptions()).fetch(
                    Query(level=2, window_s=0.05, ops=ops)
                )

    taken = asyncio.run(main()).figures
    assert taken.ops is None
    assert taken.absent.get("ops") == ("only traces show it" if ops else None)


TOP = with_top_ops(KINDS["trace"])


def exported(sample, most):
    """What outputs get of a sample."""
    return Update(time_unix_s=0.0, sample=sample).with_ops(most).sample


def test_outputs_get_as_many_as_they_are_to_write():
    """However many the live view beside them shows."""
    assert exported(TOP, 0) == KINDS["trace"]
    cut = exported(TOP, 2).figures
    assert (cut.ops, cut.op_categories) == (TOP.figures.ops[:2], TOP.figures.op_categories[:2])
    assert exported(TOP, MOST_OPS) is TOP
    silent = replace(TOP, figures=Figures(absent={"ops": "only traces show it", "idle_ratio": "not sent"}))
    assert exported(silent, 0).figures.absent == {"idle_ratio": "not sent"}
    assert exported(silent, 1) is silent


@pytest.mark.parametrize(("words", "asked"), [((), 0), (("--with-ops", "3"), 3), (("--with-ops", "50"), 50)])
@pytest.mark.parametrize("command", ["monitor", "serve"])
def test_the_option_asks_for_them_and_the_live_view_does(command, words, asked):
    """The view asks for ten at least; what outputs get is the option's."""
    (settings,) = command_of([*(() if command == "monitor" else (command,)), *words]).args
    feed = settings.feed if command == "monitor" else settings
    assert (feed.source.query.ops, feed.output_settings.ops) == (asked, asked)
    live = feed.source.with_ops(monitor._LIVE_OPS)
    assert live.query.ops == max(asked, 10)


def test_json_has_them_and_is_read_back():
    told = TOP.to_json()
    assert [op["name"] for op in told["ops"]][:2] == ["fusion.123", "all-reduce.4"]
    assert Sample.from_json(json.dumps(told)).figures.ops == TOP.figures.ops
    assert (
        Sample.from_json(json.dumps({**told, "ops": 1000 * told["ops"][:1]})).figures.ops
        == MOST_OPS * TOP.figures.ops[:1]
    )
    assert KINDS["trace"].to_json()["ops"] is None
    assert Sample.from_json(json.dumps(KINDS["trace"].to_json())).figures.ops is None


def test_impossible_shares_are_left_out():
    """An operation without its share says nothing; a rate that no chip has is absent."""
    wrong = replace(TOP.figures.ops[0], time_ratio=7.0)
    left = bounded(replace(TOP, figures=replace(TOP.figures, ops=(wrong,)))).figures
    assert left.ops == ()
    fast = replace(TOP.figures.ops[0], flops_rate=1e19)
    (one,) = bounded(replace(TOP, figures=replace(TOP.figures, ops=(fast,)))).figures.ops
    assert one == replace(fast, flops_rate=None)


def test_only_those_of_the_last_trace_are_kept():
    """Of a worker's first sample, and of the one after a restart, the rest is enough."""
    history = WorkerHistory(Target(worker="trace", address="h:1"))
    for uptime_s in (100.0, 5.0, 15.0, 25.0):
        figures = replace(TOP.figures, runtime=replace(TOP.figures.runtime, uptime_s=uptime_s))
        history = history.with_sample(replace(TOP, time_unix_s=1000.0 + uptime_s, figures=figures))
    assert history.restarted is not None
    assert (history.first.figures.ops, history.restarted.figures.ops) == (None, None)
    assert history.last.figures.ops == TOP.figures.ops


def test_an_exporter_hands_on_those_of_the_last_trace():
    """To a reader that has seen nothing yet, and to one that asks for what is new."""
    with serving("trace") as output:
        get(output, "/samples")
        output.add(replace(TOP, time_unix_s=1000.0))
        output.add(replace(TOP, time_unix_s=1010.0))
        for query in ("", "?after=0", "?after=1"):
            *older, last = json.loads(get(output, f"/samples{query}").text)["samples"]
            assert [one["ops"] for one in older] == [None] * len(older)
            assert [op["name"] for op in last["ops"]] == [op.name for op in TOP.figures.ops]


def test_a_sample_without_them_is_left_alone():
    plain = sample("w")
    assert plain.with_ops(0) is plain
    assert plain.with_ops(3) is plain

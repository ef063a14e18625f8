"""A server under twelve loads, cut into traces with TPU planes: its figures beside what it did, and its findings."""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import quantiles

import pytest

from support.traces import Op, Traced
from tpumon.analysis import Analysis
from tpumon.collection.sampler.extra_sources import ServerReading
from tpumon.collection.sampler.server_span import ServerSpan
from tpumon.model import Failure, Figures, Sample, ServerFigures, Target, Workers
from tpumon.xspace.trace_figures import read_figures

NEAR = 0.03
WINDOW_S, WINDOWS = 5.0, 12  # back to back: one truth for traces and page
END_S = WINDOW_S * WINDOWS
FIRST_S = 10.0  # of load before the first window
SIZES = (16, 32, 64, 128, 256)
SLOTS = 32
FAMILIES = {"run_model_impl": "step", "_prefill_jit": "prefill", "_generate_jit": "decode"}
NUMBERS = {name: 100 * number for number, name in enumerate(FAMILIES, 1)}


@dataclass(frozen=True)
class Run:
    """A run of a program: how long, for a batch of how many tokens, and how many of these it generated."""

    name: str
    begin_s: float
    end_s: float
    tokens: int
    made: int

    @property
    def size(self):
        return next(size for size in SIZES if size >= self.tokens)


def runs_of(rate, *, split=False, pause_s=0.001, prompt=60, answer=40, grows=0.0):
    """What a server does that batches all its requests in each step; and its requests at the begin of each window."""
    draw, now, at, waiting, running = random.Random(7), 0.0, 0.0, [], []
    runs, requests = [], {}
    while now < END_S + FIRST_S:
        while at <= now:
            if draw.random() < rate(at) / 50:
                waiting.append([draw.randint(prompt // 2, 2 * prompt), draw.randint(answer // 2, 2 * answer)])
            at += 0.02
        while waiting and len(running) < SLOTS:
            running.append(waiting.pop(0))
        requests.setdefault(int((now - FIRST_S) // WINDOW_S), len(running) + len(waiting))
        if not running:
            now = at
            continue
        new, old = [one for one in running if one[0]], [one for one in running if not one[0]]
        budget, read = 256 - len(old), 0
        for one in new:
            part = min(one[0], budget - read)
            one[0], read = one[0] - part, read + part
        made = [*old, *(one for one in new if not one[0])]
        batches = [("_prefill_jit", read, len(made) - len(old)), ("_generate_jit", len(old), len(old))]
        for name, tokens, of_them in batches if split else [("run_model_impl", read + len(old), len(made))]:
            if tokens:
                run = Run(name, now + pause_s, 0.0, tokens, of_them)
                lasts_s = (0.004 + 0.0002 * run.size) * (1 + grows * now)
                runs.append(Run(name, run.begin_s, run.begin_s + lasts_s, tokens, of_them))
                now = runs[-1].end_s
        for one in made:
            one[1] -= 1
        running = [one for one in running if one[1] > 0]
    return runs, requests


LOADS = {
    "steady": {"rate": lambda _s: 2.0},
    "low": {"rate": lambda _s: 0.3},
    "trickle": {"rate": lambda s: 50.0 if s % 25 < 0.02 else 0.0},
    "bursts": {"rate": lambda s: 6.0 if s % 16 < 7 else 0.0},
    "quiet night": {"rate": lambda s: 3.0 if s < 25 else 0.0},
    "full": {"rate": lambda _s: 12.0},
    "split": {"rate": lambda _s: 2.0, "split": True},
    "split, in bursts": {"rate": lambda s: 6.0 if s % 16 < 7 else 0.0, "split": True},
    "growing context": {"rate": lambda _s: 2.0, "grows": 0.02},
    "long prompts": {"rate": lambda _s: 3.0, "prompt": 300, "answer": 4},
    "ramp": {"rate": lambda s: 0.1 * s},
    "host gap": {"rate": lambda _s: 2.0, "pause_s": 0.03},
}


def trace(runs, begin_s, end_s):
    """What a profiler shows of a window: whole runs, and the ops of those that it cuts."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    for run in runs:
        if run.end_s <= begin_s or run.begin_s >= end_s:
            continue
        number, op = NUMBERS[run.name] + run.size, Op(f"fusion.{NUMBERS[run.name] + run.size}", "loop fusion")
        metadata = core.plane.event_metadata[core.event_id(op)]
        metadata.name = f"%{op.name} = bf16[{run.size},128]{{1,0}} fusion(bf16[128,128] %p)"
        for stat in metadata.stats:
            if stat.metadata_id == core.stat_id("program_id"):
                stat.int64_value = number
        first_s, last_s = max(run.begin_s, begin_s), min(run.end_s, end_s)
        core.event("XLA Ops", op, (first_s - begin_s) * 1e6, (last_s - first_s) * 1e6)
        if first_s == run.begin_s and last_s == run.end_s:
            whole_us = (run.begin_s - begin_s) * 1e6, (run.end_s - run.begin_s) * 1e6
            core.event("XLA Modules", f"jit_{run.name}({number})", *whole_us)
            host.event("python", f"execute_model: 1 reqs, {run.tokens} toks", *whole_us)
    return traced.bytes()


def sample_of(runs, requests, place):
    """The sample of a window, with what the server's page says as it begins: of the window before."""
    begin_s = FIRST_S + WINDOW_S * place
    made = sum(run.made for run in runs if begin_s - WINDOW_S <= run.end_s < begin_s)
    page = ServerFigures(
        requests_running=float(requests.get(place, 0)), tokens_per_s=made / WINDOW_S if place else None
    )
    given = {"worker": "w", "address": "a:1", "time_unix_s": begin_s, "window_s": WINDOW_S, "cores": 1}
    given |= {"interval_s": WINDOW_S}
    here = [run for run in runs if run.end_s > begin_s and run.begin_s < begin_s + WINDOW_S]
    if not here:
        failure = Failure(source="trace", reason="empty-trace", message="nothing ran")
        return Sample(**given, errors=(failure,), figures=Figures(server=page))
    figures = read_figures(trace(here, begin_s, begin_s + WINDOW_S), 0).figures
    fields = {name: getattr(figures, name) for name in Figures.__struct_fields__}
    programs = figures.traced_programs
    if programs is not None:
        fields["traced_programs"] = type(programs)(
            **{name: getattr(programs, name) for name in programs.__struct_fields__} | {"window_s": WINDOW_S}
        )
    return Sample(**given, source="trace", device_type="TPU v5", figures=Figures(**(fields | {"server": page})))


def samples_of(runs, requests, windows=WINDOWS):
    """The samples, joined as the sampler does."""
    span = ServerSpan()
    for place in range(windows):
        sample, now_s = sample_of(runs, requests, place), WINDOW_S * place
        yield span.joined(sample, now_s, [ServerReading(now_s, sample.figures.server)])


def said_of(samples):
    """The kind of job, and the findings after each sample: severities by id."""
    analysis, said = Analysis(), []
    analysis.add(Workers(targets=(Target(worker="w", address="a:1", server_metrics="http://a/metrics"),)))
    for sample in samples:
        kind = analysis.add(sample).sample.job_kind.kind
        said.append({one.finding: one for one in analysis.status(sample.time_unix_s + 1).findings})
    return kind, said


@pytest.mark.parametrize("load", LOADS)
def test_figures_are_those_of_what_the_server_did(load):
    runs, requests = runs_of(**LOADS[load])
    *_, last = samples_of(runs, requests)
    figures = last.figures.server
    inside = lambda run, last_s: max(0.0, min(run.end_s, last_s) - max(run.begin_s, FIRST_S))  # noqa: E731
    last_s = FIRST_S + END_S
    busy_s = sum(inside(run, last_s) for run in runs)
    assert figures.busy_ratio == pytest.approx(busy_s / END_S, rel=NEAR)
    seen = [run for run in runs if run.begin_s >= FIRST_S and run.end_s <= last_s]
    for each in figures.families:
        mine = [run for run in seen if FAMILIES[run.name] == each.family]
        assert each.executions_per_s == pytest.approx(len(mine) / END_S, rel=NEAR)
        twentieths = quantiles((run.end_s - run.begin_s for run in mine), n=20, method="inclusive")
        assert (each.duration_s.p50, each.duration_s.p95) == pytest.approx((twentieths[9], twentieths[18]), rel=NEAR)
        time_s = sum(run.end_s - run.begin_s for run in mine)
        assert each.time_ratio == pytest.approx(time_s / busy_s, rel=NEAR)
        assert set(each.sizes) == {run.size for run in mine}
    assert {each.family for each in figures.families} == {FAMILIES[run.name] for run in seen}
    padded = 1 - sum(run.tokens for run in seen) / sum(run.size for run in seen)
    assert figures.padding_ratio == pytest.approx(padded, abs=NEAR)
    counted_s = last_s - WINDOW_S
    made = sum(run.made for run in runs if FIRST_S <= run.end_s < counted_s)
    each_s = sum(inside(run, counted_s) for run in runs) / made
    assert figures.device_s_per_token == pytest.approx(each_s, rel=NEAR)
    if load in {"full", "host gap"}:
        assert figures.host_gap_ratio == pytest.approx(1 - busy_s / END_S, abs=NEAR)


@pytest.mark.parametrize("load", LOADS)
def test_a_gap_of_the_host_is_found_and_nothing_above_info_of_other_loads(load):
    kind, said = said_of(samples_of(*runs_of(**LOADS[load])))
    assert kind == "serving"
    above_info = {one.finding for each in said for one in each.values() if one.severity != "info"}
    assert above_info == ({"host-gap"} if load == "host gap" else set())


def test_a_server_that_stops_amid_requests_is_stuck_after_a_minute():
    """And until then nothing is said of it."""
    runs, requests = runs_of(**LOADS["full"])
    stopped, found = 3, 3 + round(60.0 / WINDOW_S) + 1
    stopped_s = FIRST_S + WINDOW_S * stopped
    requests |= dict.fromkeys(range(stopped, found + 1), requests[stopped])
    _, said = said_of(samples_of([run for run in runs if run.end_s <= stopped_s], requests, found + 1))
    *before, last = said
    assert before == [{}] * found
    assert set(last) == {"stuck"}
    assert (last["stuck"].severity, last["stuck"].since_unix_s) == ("critical", stopped_s)

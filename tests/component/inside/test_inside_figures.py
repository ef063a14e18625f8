"""Whatever finite numbers a worker reports, every screen draws, and every output writes finite numbers."""

from __future__ import annotations

import io
import json
import math
import sys

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from support.samples import bare_sample, sample
from support.shown import NOW, lines
from support.wired import Wired, wired
from tpumon.analysis import Analysis
from tpumon.model import (
    CoreFigures,
    DeviceFigures,
    Figures,
    RuntimeFigures,
    Sample,
    Spread,
    StepTimes,
    Target,
    Workers,
    bounded,
)
from tpumon.model.figure_table import SORT_KEYS
from tpumon.outputs.live.display import Display
from tpumon.outputs.live.view_settings import DisplaySettings
from tpumon.outputs.text_blocks import TextOutput

SMALLEST, LARGEST = 5e-324, sys.float_info.max
EXTREMES = [0.0, SMALLEST, 2.3e-308, 1e-9, 1.0, 1e15, 1e18, LARGEST]
NUMBERS = st.one_of(st.sampled_from(EXTREMES), st.floats(0.0, LARGEST), st.floats(0.0, 1.0))
WHOLE = st.one_of(st.sampled_from([0, 1, 1 << 30, 1 << 60, (1 << 63) - 1, 1 << 64]), st.integers(0, 1 << 64))


def maybe(strategy):
    return st.one_of(st.none(), strategy)


STEPS = st.builds(StepTimes, avg=NUMBERS, min=NUMBERS, max=NUMBERS, stddev=maybe(NUMBERS), count=maybe(WHOLE))
SPREADS = st.builds(Spread, avg=NUMBERS, min=NUMBERS, max=NUMBERS)
CORES = st.builds(
    CoreFigures,
    chip=maybe(WHOLE),
    core=maybe(WHOLE),
    **dict.fromkeys(["idle_ratio", "flops_utilization_ratio", "infeed_ratio", "step_time_s"], maybe(NUMBERS)),
)
DEVICES = st.builds(
    DeviceFigures,
    device=st.sampled_from("0123"),
    hbm_used_bytes=maybe(WHOLE),
    hbm_total_bytes=maybe(WHOLE),
    runtime_duty_cycle_ratio=maybe(NUMBERS),
    runtime_hbm_bandwidth_utilization_ratio=maybe(NUMBERS),
    runtime_tensorcore_idle_s=maybe(NUMBERS),
    runtime_hlo_queue_size=maybe(WHOLE),
)
FIGURES = st.builds(
    Figures,
    **{item.name: maybe(NUMBERS) for item in fields(Figures) if item.type == "float | None"},
    step_time_s=maybe(STEPS),
    infeed_ratio=maybe(SPREADS),
    step_parts_s=maybe(st.dictionaries(st.sampled_from(["idle", "infeed", "x"]), NUMBERS)),
    per_core=st.lists(CORES, max_size=3).map(tuple),
    hbm_used_bytes=maybe(WHOLE),
    hbm_total_bytes=maybe(WHOLE),
    devices=st.lists(DEVICES, max_size=3, unique_by=lambda device: device.device).map(tuple),
    runtime=st.builds(RuntimeFigures, uptime_s=maybe(NUMBERS), megascale_error=maybe(NUMBERS)),
    step_durations_s=st.lists(NUMBERS, max_size=4).map(tuple),
)


def samples_of(worker):
    """One query of a worker that answered with any finite figures whatever."""
    return st.builds(
        Sample,
        worker=st.just(worker),
        address=st.just(f"{worker}:8466"),
        time_unix_s=st.just(NOW - 1),
        window_s=maybe(NUMBERS),
        took_s=NUMBERS,
        interval_s=maybe(NUMBERS),
        traced_s=NUMBERS,
        source=st.sampled_from(["trace", "monitor", "runtime"]),
        cores=maybe(WHOLE),
        figures=FIGURES,
    )


FLEETS = st.tuples(st.lists(samples_of("a"), min_size=1, max_size=4), st.lists(samples_of("b"), max_size=4))
WORKERS = Workers(targets=tuple(Target(worker=name, address=f"{name}:8466", slice="s") for name in "ab"))
SIZES = st.one_of(
    st.sampled_from([(1, 1), (20, 5), (80, 24), (200, 60)]), st.tuples(st.integers(1, 200), st.integers(1, 60))
)
USUAL = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


def shown(display, size):
    """All that a user may open, as text."""
    screens = []
    for keys in ((), ("enter",), ("esc", "esc", "h"), ("esc", "f"), ("f", "s", "s", "p")):
        for key in keys:
            display.press(key)
        screens += lines(display, *size)
    return "\n".join(screens)


def watched(samples, **chosen):
    display = Wired(lambda context: Display(DisplaySettings(**chosen), context.analysis))
    display.add(WORKERS)
    for one in samples:
        display.add(one)
        display.refresh(NOW)
    return display


@USUAL
@given(fleet=FLEETS, size=SIZES, sort=st.sampled_from(SORT_KEYS), level=st.sampled_from([1, 2]))
@example(
    fleet=([sample("a", step_time_s=StepTimes(avg=SMALLEST, min=SMALLEST, max=SMALLEST))] * 4, []),
    size=(80, 24), sort="step", level=2,
)  # fmt: skip
@example(
    fleet=([sample("a", hbm_used_bytes=1 << 64, hbm_total_bytes=1, mxu_utilization_ratio=LARGEST)] * 2,
           [sample("b", mxu_utilization_ratio=LARGEST)]),
    size=(200, 60), sort="mxu", level=2,
)  # fmt: skip
def test_every_screen_draws_any_finite_sample(fleet, size, sort, level):
    """As it came: what bounds figures at their source is not what keeps the screen alive."""
    text = shown(watched([*fleet[0], *fleet[1]], sort=sort, level=level), size)
    assert "Cannot" not in text, text


@USUAL
@given(fleet=FLEETS)
def test_every_output_writes_finite_numbers_of_any_finite_sample(fleet, tmp_path_factory):
    """JSON, CSV, text, fleet and page, of samples as they leave the sampler."""
    folder = tmp_path_factory.mktemp("outputs")
    samples = [bounded(one) for one in (*fleet[0], *fleet[1])]
    outputs = [wired(name, str(folder / name)) for name in ("jsonl", "csv", "fleet-summary")]
    outputs.append(wired("textfile", str(folder / "page.prom")))
    outputs.append(Wired(lambda _context: TextOutput(io.StringIO(), level=2, number_samples=False)))
    for output in outputs:
        output.add(WORKERS)
        for one in samples:
            output.add(one)
        output.tick(NOW)
        output.close()
    assert len((folder / "jsonl").read_text().splitlines()) == len(samples)
    for path in folder.iterdir():
        words = path.read_text().lower().replace(",", " ").split()
        assert not {"inf", "-inf", "nan", "+inf", "infinity"} & {word for word in words if "le=" not in word}, path
    for one in samples:
        json.dumps(one.to_json(), allow_nan=False)
        assert bounded(one) is one


@given(figures=FIGURES)
def test_what_no_worker_can_have_is_absent_with_a_reason(figures):
    """Below 2^60 bytes, steps of 1 ns to 1e6 s; a figure that is possible stays as it is."""
    kept = bounded(bare_sample(worker="w", address="w:1", time_unix_s=1.0, window_s=1.0, took_s=1.0, source="trace",
                               figures=figures)).figures  # fmt: skip
    for name in ("hbm_used_bytes", "hbm_total_bytes"):
        value = getattr(figures, name)
        possible = value is None or value < 1 << 60
        assert getattr(kept, name) == (value if possible else None)
        assert (name in kept.absent) == (not possible)
    if kept.step_time_s is not None:
        assert kept.step_time_s == figures.step_time_s
        assert all(1e-9 <= value <= 1e6 for value in (kept.step_time_s.avg, kept.step_time_s.max) if value)
    elif figures.step_time_s is not None:
        assert "step_time_s" in kept.absent


@pytest.mark.parametrize(
    "figure",
    [
        {"idle_ratio": 1.01},
        {"duty_cycle_ratio": 2.0},
        {"infeed_ratio": Spread(avg=0.5, min=0.4, max=1.5)},
        {"infeed_ratio": Spread(avg=0.3, min=0.4, max=0.5)},
        {"step_time_s": StepTimes(avg=0.6, min=0.4, max=0.5)},
    ],
)
def test_shares_above_one_and_averages_outside_are_absent_with_a_reason(figure):
    (name,) = figure
    kept = bounded(sample(**figure)).figures
    assert getattr(kept, name) is None
    assert kept.absent == {name: "impossible value"}


def test_rounding_makes_no_figure_impossible():
    rounded = sample(
        idle_ratio=1 + 1e-12,
        infeed_ratio=Spread(avg=0.1 + 1e-15, min=0.1, max=0.1),
        flops_utilization_ratio=1.3,  # the peak may be wrong
    )
    assert bounded(rounded) is rounded


def test_ordinary_figures_are_not_touched():
    """The same object: nothing is copied where nothing is wrong."""
    ordinary = sample(
        mxu_utilization_ratio=0.4,
        step_time_s=StepTimes(avg=0.1, min=0.1, max=0.1, stddev=1e-17, count=5),
        devices=[{"device": "0", "hbm_used_bytes": 15 << 30, "hbm_total_bytes": 16 << 30}],
    )
    assert bounded(ordinary) is ordinary


@pytest.mark.parametrize("broken", ["_scene_maker", "_controls", "_messages"])
def test_a_view_that_cannot_draw_says_so_and_goes_on(broken, monkeypatch, record_testsuite_property):
    """A fault in judging or drawing is one line on the screen; it goes when the fault does, and no old figure shows."""
    display = watched([sample("a", time_unix_s=NOW - 1, mxu_utilization_ratio=0.4)])
    with monkeypatch.context() as patch:
        patch.setattr(display.output, broken, None)
        display.refresh(NOW)
        text = "\n".join(lines(display, 80, 24))
        assert "Cannot" in text
        assert "sampling goes on" in text
        assert "40.0%" not in text
    display.refresh(NOW)
    assert "40.0%" in "\n".join(lines(display, 80, 24))
    row = "test_inside_figures.py::test_a_view_that_cannot_draw_says_so_and_goes_on"
    record_testsuite_property(row, "the next picture")


def test_a_fleet_of_extremes_is_assessed():
    """Sums, averages and ratios of the largest and smallest numbers there are."""
    fleet = Analysis()
    fleet.add(WORKERS)
    for worker, value in (("a", LARGEST), ("b", LARGEST), ("a", LARGEST), ("a", LARGEST), ("b", SMALLEST)):
        fleet.add(sample(worker, time_unix_s=NOW - 1, mxu_utilization_ratio=value,
                         step_time_s=StepTimes(avg=value, min=value, max=value)))  # fmt: skip
        status = fleet.status(NOW)
    assert all(math.isfinite(across.avg) for across in status.figures().values())

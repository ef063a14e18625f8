"""Every screen, of any fleet, at any size."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from support.shown import INTERVAL_S, NOW, Shown, answered, display_of, empty_display, failed, lines
from tpumon.analysis.findings import Thresholds
from tpumon.model import FigureWarning, OpCategoryFigures, OpFigures, Spread, StepTimes, Target, Workers
from tpumon.model.figure_table import SORT_KEYS
from tpumon.outputs.live.view_settings import DisplaySettings

HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "new\nline",
    "測試用的很長的工人名字",
    "a\u0301\u0301\u0301",
    "\u202eesrever",
    "👩‍👩‍👧‍👦",
    "x" * 300,
    "tab\tbed",
    "",
)
KEYS = (
    *("p", " ", "s", "S", "f", "h", "?", "/", "j", "k", "g", "G", "r", "x", "1"),
    *(
        "up",
        "down",
        "left",
        "right",
        "pageup",
        "pagedown",
        "home",
        "end",
        "enter",
        "esc",
        "backspace",
        "tab",
        "ctrl-l",
        "ctrl-u",
    ),
    *(
        "e",
        "w",
        "o",
        "n",
        "N",
        "+",
        "-",
        "0",
        "m",
        "b",
        "wheelup",
        "wheeldown",
        "clicked:0:1",
        "clicked:12:4",
        "clicked:3:23",
    ),
    "pasted:\x1b[2Jn\u0301測\rq",
)
STATES = ("live", "stale", "down", "busy", "paused", "waiting", "runtime")
WORDS = ("LIVE", "NO ACTIVITY", "STALE", "DOWN", "BUSY", "SAMPLING PAUSED", "WAITING")

RATIOS = st.one_of(st.none(), st.sampled_from([0.0, 1.0, 0.0001, 0.5, 0.97, 12.5]))


@st.composite
def worker_samples(draw, worker):
    """What came in of one worker, if anything."""
    state = draw(st.sampled_from(STATES))
    bad = draw(st.sampled_from([*HOSTILE, "connection refused"]))
    if state == "waiting":
        return []
    if state in {"down", "busy", "paused"}:
        reason = {"down": "unavailable"}.get(state, state)
        before = [answered(worker, NOW - 60)] if draw(st.booleans()) else []
        return [*before, failed(worker, reason, bad, NOW - draw(st.sampled_from([0, 7, 90_000])))]
    if state == "runtime":
        return [failed(worker, "busy", bad, source="runtime", hbm_used_bytes=15 << 30, hbm_total_bytes=16 << 30)]
    step = draw(st.sampled_from([None, 0.0, 1e-7, 0.0627, 0.2, 1234.5, 1e7]))
    infeed = draw(RATIOS)
    return [
        answered(
            worker,
            NOW - (draw(st.sampled_from([40, 4000, 400_000])) if state == "stale" else 1) - INTERVAL_S * before,
            mxu_utilization_ratio=draw(RATIOS),
            idle_ratio=draw(RATIOS),
            step_time_s=None if step is None else StepTimes(avg=step, min=step, max=step),
            infeed_ratio=None if infeed is None else Spread(avg=infeed, min=infeed, max=infeed),
            simulated=draw(st.booleans()),
            device_type=draw(st.sampled_from([None, "TPU v2", bad])),
            absent={"mxu_utilization_ratio": bad},
            warnings=(FigureWarning("profiler", bad),),
            **draw(top_operations(bad)),
        )
        for before in reversed(range(draw(st.integers(1, 3))))
    ]


@st.composite
def top_operations(draw, bad):
    """None, or some with awkward names and numbers."""
    if draw(st.booleans()):
        return {}
    numbers = {
        "self_time_s": draw(st.sampled_from([0.0, 1e-9, 0.0627, 1e14])),
        "time_ratio": draw(st.sampled_from([0.0, 0.3, 1.0])),
    }
    numbers["occurrences"] = draw(st.sampled_from([0, 40, 10**14]))
    names = draw(st.lists(st.sampled_from([bad, *HOSTILE, "fusion.1"]), max_size=12))
    share = draw(RATIOS)
    return {
        "ops": tuple(
            OpFigures(name=n, program=n, category=bad, flops_utilization_ratio=share, **numbers) for n in names
        ),
        "op_categories": tuple(OpCategoryFigures(name=name, ops=3, **numbers) for name in names),
    }


@st.composite
def displays(draw):
    """A display of some fleet with some keys pressed, and its settings."""
    large = draw(st.integers(0, 3)) == 0  # a quarter: most of what can go wrong does so with few workers, too
    count = draw(st.sampled_from([64, 256, 1000]) if large else st.integers(0, 20))
    unusual = draw(st.lists(st.sampled_from(HOSTILE), max_size=3, unique=True))
    workers = [*unusual, *(f"tpu-node-{i}.us-central1-a.c.project.internal" for i in range(count))][: max(count, 0)]
    chosen = DisplaySettings(
        level=draw(st.sampled_from([1, 2])),
        sort=draw(st.sampled_from(SORT_KEYS)),
        ascii=draw(st.booleans()),
        filter=draw(st.sampled_from(["", "", "node", "\x1b[3", "測"])),
        from_url=draw(st.sampled_from([None, "http://測試\x1b[1m:10466"])),
    )
    display = Shown(chosen)
    targets = tuple(Target(worker=name, address=f"10.0.0.1:{i}", slice="s") for i, name in enumerate(workers))
    display.add(Workers(targets=targets, waiting=None if workers else draw(st.sampled_from([None, *HOSTILE]))))
    shown = {}
    kinds = [draw(worker_samples("?")) for _ in range(min(count, 6))]
    pick = random.Random(count)
    for i, name in enumerate(workers):
        for sample in kinds[i] if i < len(kinds) else pick.choice(kinds):
            display.add(replace(sample, worker=name))
            # What a screen shows is of the newest query, or of the last one that the profiler answered.
            shown[name, "newest"] = sample.simulated
            if sample.failure is None:
                shown[name, "figures"] = sample.simulated
    display.refresh(NOW - 20)
    if draw(st.booleans()):
        display.notice(draw(st.sampled_from(HOSTILE)) + " answers again")
    display.refresh(NOW)
    for key in draw(st.lists(st.sampled_from(KEYS), max_size=6)):
        display.press(key)
    return display, chosen, any(shown.values())


SIZES = st.one_of(
    st.sampled_from([(20, 5), (40, 12), (80, 24), (120, 40), (200, 60)]),
    st.tuples(st.integers(20, 200), st.integers(5, 60)),
)


@pytest.mark.slow
# Not made smaller when it fails: with a thousand workers that takes minutes.
@settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(made=displays(), size=SIZES, later_s=st.sampled_from([0, 5, 1000]))
def test_nothing_overflows_and_the_state_is_always_there(made, size, later_s):
    """No line too wide, none too many, ASCII where asked for, no control characters; state, interval and mark shown."""
    display, chosen, simulated = made
    now = NOW + later_s
    texts = lines(display, *size, now=now)
    whole = " ".join(texts)
    if chosen.ascii:
        assert whole.isascii(), whole
    assert all(char.isprintable() for char in whole), repr(whole)
    top = " ".join(texts[:4])
    assert any(word in top for word in (*WORDS, "FROZEN")), top
    if simulated:
        assert "SIMULATED" in top
    scene = display._controls.scene
    if any(row.history.kept_interval_s(scene.time_unix_s) is not None for row in scene.rows):
        assert f"{INTERVAL_S:.0f}s" in top, top
    if display._controls.frozen:
        assert "FROZEN" in top


@pytest.mark.parametrize("size", [(20, 5), (20, 6), (20, 8), (40, 5), (40, 6), (80, 5), (80, 6), (80, 24)], ids=str)
@pytest.mark.parametrize("ascii_only", [False, True], ids=["utf-8", "ascii"])
@pytest.mark.parametrize("simulated", [False, True], ids=["real", "simulated"])
def test_the_only_workers_figures_are_there_at_every_size(size, ascii_only, simulated):
    """MXU, idle and step come before who it is and what to think of it; what is hidden is said, and can be reached."""
    worker = answered("tpu-worker-0", infeed_ratio=Spread(avg=0.3, min=0.3, max=0.3), simulated=simulated)
    display = display_of(worker, ascii=ascii_only, thresholds=Thresholds(sustained=1))

    texts = lines(display, *size)
    whole = " ".join(texts)
    figures = ("MXU 45%", "idle 12%", "step 62.7ms") if size == (20, 5) else ("45", "12", "62.7ms")
    assert all(figure in whole for figure in figures), texts
    if size[1] < 9:
        assert re.search(r"\d-\d/\d", whole), texts
        for _ in range(20):
            display.press("down")
            texts += lines(display, *size)
    assert "infeed 30%" in " ".join(" ".join(texts).split())
    assert "tpu-worker-0" in " ".join(texts)


@pytest.mark.parametrize("size", [(20, 5), (28, 6), (40, 12), (80, 24), (120, 40), (200, 60)], ids=str)
@pytest.mark.parametrize("count", [2, 8, 20, 256])
@pytest.mark.parametrize("ascii_only", [False, True], ids=["utf-8", "ascii"])
def test_the_worst_worker_is_the_first_row(size, count, ascii_only):
    """At every size: who is down stands first, marked, others with their figures; what is hidden is said."""
    display = empty_display(ascii=ascii_only, thresholds=Thresholds(sustained=1))
    names = [f"w{i}" for i in range(count)]
    display.add(Workers(targets=tuple(Target(worker=name, address=f"{name}:1") for name in names)))
    for name in names[:-1]:
        display.add(answered(name))
    display.add(failed(names[-1]))
    display.refresh(NOW)

    texts = lines(display, *size)
    rows = [text for text in texts if any(f"{name} " in text for name in names)]
    assert re.match(rf" ?D ?{names[-1]} .*DOWN >0s", rows[0])
    width = size[0]
    figures = ("45%", "12%", "62.7") if width < 32 else ("45.3%", "12.5%", "62.7")
    assert all(figure in rows[1] for figure in figures), rows[1]
    if len(rows) < count:
        assert f"/{count}" in " ".join(texts)


def test_a_row_whose_trace_is_truncated_says_so():
    display = display_of(answered("w0"), answered("w1", truncated="TPU:0 has 3 runs without any op"))
    rows = [line for line in lines(display, 160, 30) if "w0" in line or "w1" in line]
    assert ["truncated" in row for row in rows[:2]] == ["w1" in row for row in rows[:2]]


def test_a_device_has_its_usual_name_where_there_is_room():
    display = display_of(*(answered(f"w{i}", device_type="TPU v6 Lite") for i in range(3)))
    assert "TPU v6 Lite (v6e)" in lines(display, 160, 30)[0]
    assert any("TPU v6 Lite " in lines(display, width, 30)[0] for width in range(40, 90))

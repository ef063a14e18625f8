"""Findings in the live view: the worst in a line, all of them on a screen of their own, a worker's own on its page."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from support.shown import NOW, answered, display_of, empty_display, failed, fleet, infeed, lines, name_of, press, screen
from tpumon.analysis import Analysis
from tpumon.analysis.findings import Thresholds
from tpumon.model import Cause, Evidence, ExporterSnapshot, Finding, NotJudged, StepTimes, Target, Workers
from tpumon.outputs.drawing.cells import clock
from tpumon.outputs.drawing.style import BOLD, CRITICAL, WARN

AT_ONCE = Thresholds(sustained=1)
SINCE = clock(NOW, NOW)
LONG = (
    "On all 300 workers, the host waits for everything that there is to wait for (and then for something else); "
    "nobody knows why"
)


def told(*findings, workers=4, not_judged=(), causes=None, judged=None, slice_=None, **settings):
    """A display of workers that an exporter has judged: `causes` and `judged` are those of each by its number."""
    display = empty_display(**settings)
    targets = (Target(worker=name_of(i), address=f"{name_of(i)}:1", slice=slice_) for i in range(workers))
    display.add(Workers(targets=tuple(targets)))
    display.add(ExporterSnapshot(complete=True, number=1, findings=findings, not_judged=tuple(not_judged)))
    for i in range(workers):
        display.add(answered(name_of(i), findings=tuple((causes or {}).get(i, ())), judged=(judged or {}).get(i)))
    display.refresh(NOW)
    return display


def finding(*workers, severity="critical", **given):
    usual = {"finding": "straggler", "sentence": f"On {workers[0]}, own work is long.", "since_unix_s": NOW}
    return Finding(**usual | {"severity": severity, "workers": workers} | given)


def line_about(display, word, *size):
    return next(line for line in lines(display, *size) if word in line)


# ---- the line


def test_a_worker_with_too_few_samples_is_said_not_to_be_judged_yet():
    display = display_of(*fleet(4))
    first = line_about(display, "ok since", 100, 30)
    for number in range(1, 4):  # the first one was compared with nobody
        now = NOW + 10.0 * number
        display.add(*(answered(name_of(i), time_unix_s=now) for i in range(4)))
        display.refresh(now)
    assert "; not judged yet: straggler (2 more samples)" in first
    assert "judged" not in "".join(lines(display, 100, 30, now))


@pytest.mark.parametrize("count", [4, 15, 16, 17, 24, 256])
def test_the_worst_finding_is_on_the_list(count):
    """At 80x24, wherever rows end: below them, or above them where they fill the screen; rows lose a line at most."""
    names = [name_of(i) for i in range(count)]
    sentence = f"On all {count} workers, a third of the step is lost."
    display = told(
        finding(*names, sentence=sentence),
        finding(names[1], finding="slow-down", severity="warning"),
        workers=count,
    )
    without = told(workers=count)
    said = line_about(display, "a third", 80, 24)
    assert said == f" X all {count} workers since {SINCE}: a third of the step is lost (+1, see w)"
    rows = [sum(" 45.3% " in line for line in lines(one, 80, 24)) for one in (display, without)]
    assert rows[1] - rows[0] <= 1


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ("idle 21%, may wait for tpu-worker-0", "tpu-worker-0: idles least (19.4%), others may wait for it"),
        ("idles least (20.1%), others may wait for it", "idles least (19.4%), others may wait for it"),
    ],
)
def test_words_of_one_worker_of_several_name_it(others, said):
    """They need not hold for the others, which have the same finding; where figures alone differ, they do."""
    words = ["idles least (19.4%), others may wait for it", others]
    each = [Cause(words=one, finding="host-bound", severity="warning", since_unix_s=NOW) for one in words]
    one = finding(name_of(0), name_of(1), finding="host-bound", severity="warning", sentence="On both, " + "x" * 200)
    display = told(one, workers=2, causes=dict(enumerate([[cause] for cause in each])))
    assert line_about(display, " 2 workers since", 100, 24) == f" ! 2 workers since {SINCE}: {said}"


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (
            160,
            f" X w since {SINCE}: steps are long; the others wait for it (it waits 5%, the median is 30%) (+1, see w)",
        ),
        (90, f" X w since {SINCE}: steps are long; the others wait for it (+1, see w)"),
        (50, f" X w since {SINCE}: waits 5% (+1, see w)"),
        (29, f" X w since {SINCE}: waits 5%"),
        (28, " X w: waits 5% (+1, see w)"),
        (20, " X w: waits 5%"),
    ],
)
def test_the_line_says_as_much_as_there_is_room_for(width, text):
    """All of it, then without the figures, then what its worker's row says; since when and how many more if there is
    room for what is the matter."""
    sentence = "On w, steps are long; the others wait for it (it waits 5%, the median is 30%)."
    cause = Cause(words="waits 5%", finding="straggler", severity="critical")
    display = empty_display()
    display.add(Workers(targets=tuple(Target(worker=name, address=f"{name}:1") for name in ("v", "w"))))
    findings = (finding("w", sentence=sentence), finding("v", finding="slow-down"))
    display.add(ExporterSnapshot(complete=True, number=1, findings=findings))
    display.add(answered("v", findings=()), answered("w", findings=(cause,)))
    display.refresh(NOW)
    press(display, "G")  # details of another worker
    assert next(line for line in lines(display, width, 30) if re.match(" X w(:| since)", line)) == text


def test_what_the_preview_says_is_not_said_twice():
    """The only finding is that of the worker whose details are shown."""
    worst = answered(name_of(3), **infeed(0.3))
    display = display_of(*fleet(3), worst, thresholds=AT_ONCE)
    assert screen(display, 80, 24).count(f"since {SINCE} or earlier: ") == 1
    press(display, "G")  # details of another one
    assert f" X {name_of(3)} since {SINCE} or earlier: infeed 30%" in lines(display, 80, 24)


def test_what_is_only_worth_knowing_has_no_line_and_no_mark():
    """It is on the screen of findings and on the worker's page; no figure is highlighted for it, no row moves."""
    cause = Cause(words="many collectives", finding="collective-bound", severity="info", figure="idle", excess=3.0)
    info = finding(name_of(3), finding="collective-bound", severity="info", sentence="On w, collectives.")
    display = told(info, causes={3: (cause,)})
    shown = lines(display, 120, 24)
    assert not any("collectives" in line for line in shown)
    assert [line.split()[0] for line in shown[2:6]] == [name_of(i) for i in range(4)]
    drawn = [segment for line in display.render(120, 24, NOW) for segment in line]
    assert not {segment.style for segment in drawn} & {WARN, CRITICAL}
    press(display, "G", "enter")
    assert "collective-bound" in screen(display, 120, 24)
    assert "info since" in screen(display, 120, 24)
    drawn = display.render(120, 24, NOW)
    idle = next(line for line in drawn if "TPU idle" in "".join(segment.text for segment in line))
    assert next(segment.style for segment in idle if "12.5%" in segment.text) is BOLD
    press(display, "w")
    assert "collective-bound · info" in screen(display, 120, 24)


def test_a_click_on_the_line_opens_the_findings_and_one_there_opens_the_worker():
    display = told(finding(name_of(2)), finding(name_of(1), finding="hang"))
    place = next(place for place, line in enumerate(lines(display, 80, 24)) if "own work is long" in line)
    press(display, f"clicked:30:{place}")
    shown = lines(display, 80, 24)
    assert "2 findings, worst first" in shown[1]
    place = next(place for place, line in enumerate(shown) if "hang ·" in line)
    press(display, f"clicked:5:{place}")
    assert lines(display, 80, 24)[1].split()[0] == name_of(1)


# ---- the screen


def test_all_findings_are_explained():
    """Severity, since when, how sure, who, figures with their limits, what to do; no file that is not here."""
    one = finding(
        name_of(1),
        name_of(0),
        sentence="On 2 of 4 workers, own work is long.",
        slice="s0",
        confidence="medium",
        evidence={
            "own_work_ratio": Evidence(value=1.25, threshold=1.03, reference=1.0),
            "hbm_full_in_s": Evidence(value=7200.0),
            "own_work_s": Evidence(value=0.0593),
            "queue_size": Evidence(value=3),
            "op_time_ratios.collective": Evidence(value=0.53),
            "full_in_s": Evidence(value=0.0, threshold=900.0),
            "preemptions_per_s": Evidence(value=1.5, threshold=0.0),
        },
        remedy="replace the host",
        url="docs/findings.md#straggler",
        more_workers=30,
    )
    missing = NotJudged(finding="input-bound", reason="no infeed ops", workers=3)
    display = told(one, not_judged=[missing], judged={3: ("input-bound",)}, slice_="s0")
    press(display, "w")
    shown = " ".join(screen(display, 80, 24).split())
    for words in (
        f"X straggler · critical · since {SINCE} · medium confidence",
        "On 2 of 4 workers, own work is long.",
        f"workers: {name_of(1)}, {name_of(0)} and 30 more",
        "slice: s0",
        "own work 125.0%, limit 103.0%, compared with 100.0%; hbm full in 2h; own work 59.3ms; queue size 3",
        "preemptions 1.5/s, limit 0/s",
        "full in 0s, limit 15m",
        "what to do: replace the host",
        "op time collective 53.0%",
        "so that its absence is no all-clear",
        "input-bound: no infeed ops (3 of 4 workers)",
    ):
        assert words in shown, (words, shown)
    assert "docs/" not in shown
    press(display, "w")
    assert "WORKER" in screen(display), "the same key closes it"


@pytest.mark.parametrize(
    ("width", "title"),
    [
        (60, [f" X straggler · critical · since {SINCE} or earlier", "    high confidence"]),
        (47, [" X straggler · critical", f"    since {SINCE} or earlier · high confidence"]),
        (30, [" X straggler · critical", f"    since {SINCE} or earlier", "    high confidence"]),
        (20, [" X straggler", "    critical", f"    since {SINCE}…", "    high confidence"]),
    ],
)
def test_a_title_that_is_too_long_goes_on_below_and_is_never_cut_unseen(width, title):
    """A begin without `or earlier` would be another one."""
    display = told(finding(name_of(0), since_or_earlier=True, confidence="high"))
    press(display, "w")
    texts = [line.rstrip() for line in lines(display, width, 30)]
    first = texts.index(title[0])
    assert texts[first : first + len(title)] == title


def test_a_workers_page_says_what_cannot_be_judged_of_that_worker():
    """Also where an exporter says it; on the page of all workers, of how many."""
    answers = [answered(name) for name in (name_of(0), name_of(1))]
    display = display_of(*answers, answered("zz", hbm_used_bytes=None, hbm_total_bytes=None, devices=()))
    for worker, is_missing in ((None, True), ("zz", True), (name_of(0), False)):
        shown = why_page(display, worker)
        assert ("hbm-nearly-full: no runtime metrics" in shown) is is_missing, worker
        assert ("(1 of 3 workers)" in shown) is (worker is None)

    missing = NotJudged(finding="input-bound", reason="no infeed ops", workers=1)
    display = told(not_judged=[missing], workers=2, judged={0: ("straggler", "input-bound"), 1: ("straggler",)})
    for number, is_missing in ((0, False), (1, True)):
        assert ("input-bound: no infeed ops" in why_page(display, name_of(number))) is is_missing


def test_a_frozen_page_says_what_could_not_be_judged_then():
    display = display_of(answered("zz", hbm_used_bytes=None, hbm_total_bytes=None, devices=()))
    press(display, "p")
    display.add(answered("zz", NOW + 10, hbm_used_bytes=9, hbm_total_bytes=16))
    display.refresh(NOW + 10)
    press(display, "w")
    assert "hbm-nearly-full: no runtime metrics" in " ".join(screen(display, 100, 60, NOW + 10).split())
    press(display, "p")
    assert "hbm-nearly-full: no runtime metrics" not in " ".join(screen(display, 100, 60, NOW + 10).split())


def why_page(display, worker):
    """What the key w shows, of one worker or of all."""
    press(display, "esc", "esc", "esc", "g")
    if worker is not None:
        press(display, "/", *worker, "enter", "enter")
    press(display, "w")
    return " ".join(screen(display, 100, 60).split())


def test_nothing_found_is_said_and_nothing_known_is_another_thing():
    """Without an answer, no finding is no good news."""
    display = display_of(*fleet(3))
    press(display, "w")
    shown = " ".join(screen(display, 80, 24).split())
    assert "no finding" in shown
    assert "straggler" not in shown.partition("What cannot be judged")[0]
    display = empty_display()
    display.add(Workers(targets=(Target(worker="w", address="w:1"),)))
    display.refresh(NOW)
    press(display, "w")
    assert "nothing is known yet: no figures so far" in screen(display)
    press(display, "esc", "enter", "w")
    assert "nothing is known of w yet: no figures so far" in screen(display)


def test_workers_that_do_not_answer_are_a_finding_with_its_remedy():
    """As `tpumon why` says it; of each worker, too."""
    display = display_of(answered("u"), failed("w"), failed("v"))
    for keys in (("w",), ("esc", "enter", "w")):
        press(display, *keys)
        shown = " ".join(screen(display, 80, 24).split())
        assert "X down · critical" in shown
        assert "w, v do not answer (unavailable: connection refused); 1 of 3 run." in shown
        assert "what to do: check that the job runs" in shown


def test_the_line_counts_what_the_list_has_above_info():
    """A worker that is down, too; what the exporter calls info and a restart are on the list only."""
    display = told(finding(name_of(0)), finding(name_of(1), finding="compute-bound", severity="info"), workers=2)
    assert "see w" not in screen(display)
    display.add(Workers(targets=tuple(Target(worker=name_of(i), address=f"{name_of(i)}:1") for i in range(3))))
    display.add(failed(name_of(2)))
    display.refresh(NOW)
    assert "(+1, see w)" in screen(display)
    press(display, "w")
    assert "3 findings, worst first" in screen(display)


def test_it_scrolls_as_other_screens_do():
    found = (finding(name_of(i), slice=f"s{i}", sentence=f"On {name_of(i)}, matter {i}.") for i in range(30))
    display = told(*found, workers=30)
    press(display, "w")
    assert "1-22/" in lines(display, 80, 24)[-1]
    seen = screen(display, 80, 24)
    for _ in range(20):
        press(display, "pagedown")
        seen += screen(display, 80, 24)
    assert all(f"matter {i}." in seen for i in range(30))
    press(display, "home")
    assert "30 findings, worst first" in lines(display, 80, 24)[1]


def test_of_very_many_the_first_are_explained_and_the_others_counted():
    display = told(*(finding(name_of(i % 3), slice=f"s{i}") for i in range(300)), workers=3)
    press(display, "w")
    assert "300 findings, worst first" in screen(display)
    press(display, "G")
    assert "and 100 more" in screen(display)


def test_on_a_workers_page_there_are_its_own():
    """With since when; the key shows them alone, also if the finding does not name all of its workers."""
    causes = (
        Cause(words="infeed 30%", finding="input-bound", since_unix_s=NOW - 60, figure="infeed"),
        Cause(words="many collectives", finding="collective-bound", severity="info", since_unix_s=NOW - 600),
    )
    many = finding(name_of(0), finding="input-bound", severity="warning", sentence="On all 4 workers, infeed.")
    many = Finding(**{name: getattr(many, name) for name in many.__slots__} | {"more_workers": 3})
    display = told(many, finding(name_of(1)), causes={2: causes})
    press(display, "/", *"er-2", "enter", "enter")
    shown = screen(display, 80, 24)
    assert f"! input-bound since {clock(NOW - 60, NOW)}: infeed 30%" in shown
    assert f"  collective-bound since {clock(NOW - 600, NOW)}: many collectives" in shown
    assert "warn" in shown
    press(display, "w")
    shown = screen(display, 80, 24)
    assert f"1 finding of {name_of(2)}, worst first" in shown
    assert "On all 4 workers, infeed." in shown
    assert "own work is long" not in shown


def test_a_row_says_the_worst_cause_only():
    """The others are on the worker's page."""
    display = display_of(*fleet(4), answered(name_of(4), **infeed(0.1), hbm_used_bytes=99, hbm_total_bytes=100,
        devices=({"device": "0", "hbm_used_bytes": 99, "hbm_total_bytes": 100},)), thresholds=AT_ONCE)  # fmt: skip
    row = next(line for line in lines(display, 120, 24) if line.startswith(f" X {name_of(4)}  "))
    assert row.rstrip().endswith("HBM 99% full")
    press(display, "enter")
    assert "HBM 99% full, infeed 10%" in screen(display, 120, 40)


def test_a_hang_is_said_in_the_row():
    """From the first moment on; while it is no more than a pause may be, that it may be one. The mark is the hang's."""
    for severity, word, mark in (("info", "may hang", "N"), ("warning", "hang", "!"), ("critical", "hang", "X")):
        stuck = Cause(words="no activity seen for 400 s", finding="hang", severity=severity, since_unix_s=NOW - 400)
        display = told(workers=4)
        display.add(failed(name_of(3), "empty-trace", "the trace holds no event", findings=(stuck,)))
        display.refresh(NOW)
        line = line_about(display, "NO ACTIVITY 0s: ")
        assert f" {mark} {name_of(3)} " in line
        assert f"{word}: no activity" in line


# ---- order


def test_in_a_hang_who_stopped_first_comes_before_those_that_wait():
    """However long each was watched, and whatever its name: in rows, and in `once`, which takes `worst_first`."""
    display, first = told(workers=4), name_of(2)
    for i in range(4):
        queue, excess = (0, 1.0) if name_of(i) == first else (3, 9.0)
        stuck = Cause(words="nothing runs", finding="hang", severity="critical", since_unix_s=NOW, excess=excess)
        devices = ({"device": "0", "runtime_hlo_queue_size": queue},)
        why = "the trace holds no event"
        display.add(failed(name_of(i), "empty-trace", why, source="runtime", devices=devices, findings=(stuck,)))
    display.refresh(NOW + 6)
    rows = [line for line in lines(display, 80, 24) if "nothing runs" in line and " X tpu-worker-" in line]
    assert first in rows[0], rows
    assert display.fleet.status(NOW).worst_first()[0].name == first


def stepping(worker, work, at=NOW, **figures):
    """A worker that works for this share of a step."""
    step = StepTimes(avg=0.1, min=0.1, max=0.1)
    return answered(worker, at, step_time_s=step, step_work_s=0.1 * work, idle_ratio=0.1, **figures)


def test_the_one_that_differs_comes_before_those_that_all_have_the_same():
    """All wait for input; one is the straggler, with less infeed than the others."""
    display = display_of(thresholds=AT_ONCE, workers=[name_of(i) for i in range(8)])
    for query in range(4):
        for i in range(8):
            own = infeed(0.06) if i == 5 else infeed(0.15)
            display.add(stepping(name_of(i), 0.7 if i == 5 else 0.65, NOW + 10 * query, **own))
        display.refresh(NOW + 10 * query)
    now = NOW + 30
    assert line_about(display, f" {name_of(5)}  ", 120, 30)[1] == "!"
    first = lines(display, 120, 30, now)[2]
    assert first.split()[:2] == ["!", name_of(5)], first
    assert "own work +8%" in first


# ---- the same from everywhere


def test_an_attached_view_shows_the_exporters_findings():
    """Screen for screen, from what the exporter hands on."""
    there, here = Analysis(AT_ONCE), empty_display()
    own = empty_display(thresholds=AT_ONCE)
    targets = Workers(targets=tuple(Target(worker=name_of(i), address=f"{name_of(i)}:1") for i in range(8)))
    samples = [answered(name_of(i), **infeed(0.3 if i < 2 else 0.01)) for i in range(8)]
    for each in (there, here, own):
        each.add(targets)
    samples = [*(replace(sample, time_unix_s=NOW - 10) for sample in samples), *samples]  # the first has no other yet
    judged = [there.add(sample).sample for sample in samples]
    own.add(*samples)
    here.add(there.snapshot(NOW), *judged)
    for display in (here, own):
        display.refresh(NOW)
    for keys in ((), ("w",), ("esc", "enter"), ("w",)):
        for display in (here, own):
            for key in keys:
                press(display, key)
        # The exporter says one reason for all.
        said, known = (
            [line.replace("for most workers: ", "") for line in lines(each, 120, 60)] for each in (here, own)
        )
        assert said == known


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("size", [(20, 5), (20, 12), (40, 12), (80, 24), (200, 60)])
def test_any_words_fit_any_screen(size, ascii_only):
    """Wide characters, control characters and long names from an exporter; plain ASCII where asked for."""
    hostile = "測試\x1b[31m用\u202e " + "x" * 300
    cause = Cause(words=hostile, finding="hang", severity="critical")
    figures = {hostile: Evidence(value=1e14), "a_s": Evidence(value=1e14), "b_ratio": Evidence(value=1e14)}
    display = told(
        finding(hostile, sentence=f"On {hostile}, {hostile}.", remedy=hostile, evidence=figures),
        finding(name_of(1), sentence=LONG, slice=hostile, more_workers=299, since_unix_s=None),
        finding("", severity="warning", sentence=""),
        Finding(finding="hang", severity="critical"),
        not_judged=[NotJudged(finding="hbm-nearly-full", reason=hostile, workers=10**9)],
        causes={1: (cause,)},
        ascii=ascii_only,
    )
    for keys in ((), ("w",), ("G",), ("esc", "enter"), ("w",)):
        for key in keys:
            press(display, key)
        texts = lines(display, *size)
        assert all(cell_len(text) <= size[0] and text.isprintable() for text in texts)
        assert not ascii_only or " ".join(texts).isascii()

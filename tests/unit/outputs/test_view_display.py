"""What keys do, what the display says of states, and that nothing old is shown as new."""

from __future__ import annotations

import math
import random
import re
from itertools import accumulate

import pytest
from msgspec.structs import replace

from support.shown import (
    INTERVAL_S,
    NOW,
    answered,
    display_of,
    empty_display,
    failed,
    fleet,
    infeed,
    lines,
    name_of,
    press,
    screen,
)
from tpumon.analysis.findings import Thresholds
from tpumon.model import ExporterSnapshot, Failure, FigureWarning, Target, Workers
from tpumon.outputs.drawing.cells import clock
from tpumon.outputs.live.screens.screen import Reply

AT_ONCE = Thresholds(sustained=1)


def bad(worker, **more):
    return answered(worker, **infeed(0.3), **more)


def rows_of(display, width=100, height=30, now=NOW):
    """Names of the workers that have a row, from above."""
    names = [row.name for row in display._controls.scene.rows]
    found = []
    for line in lines(display, width, height, now):
        words = line.replace("▸", " ").split()
        words = words[1:] if words and words[0] in {"X", "!", "?", "B", "D", "P", "S", "W"} else words
        if words and words[0] in names and len(line) > 40 and "·" not in line and " since " not in line:
            found.append(words[0])
    return found


# ---- states


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([answered("w", NOW - 10), answered("w")], ["LIVE", "every 10s"]),
        ([answered("w", NOW - 60)], ["STALE 1m", "no figures now"]),
        ([failed("w", "busy", "Another profiling session active.")], ["BUSY", "Another profiling session active."]),
        ([failed("w", "paused", "tpumon pause, for 9 minutes")], ["SAMPLING PAUSED", "for 9 minutes"]),
        ([failed("w")], ["DOWN", "connection refused", "no figures yet"]),
        ([answered("w", simulated=True)], ["SIMULATED", "LIVE"]),
    ],
)
def test_the_state_is_said_with_its_reason(samples, words):
    """A worker's state, how long it lasts, and why, on the screen of the only worker."""
    shown = screen(display_of(*samples))

    assert all(word in shown for word in words), shown


def test_it_waits_until_something_is_heard_of_a_worker():
    display = empty_display()
    waits, pauses_s = [display.waits], [display.pause_s(1.0)]
    targets = tuple(Target(worker=worker, address=f"{worker}:1") for worker in "ab")
    for step in (lambda: display.add(Workers(targets=targets)), lambda: display.add(failed("b"))):
        step()
        display.refresh(NOW)
        waits.append(display.waits)
        pauses_s.append(display.pause_s(1.0))
    assert waits == [True, True, False]
    assert pauses_s == [0.25, 0.25, 5.0], "a table of 2,000 that wait delays no first figures"
    assert [display.pause_s(busy_s) for busy_s in (0.0001, 0.001, 0.005, 0.02)] == [0.25, 0.5, 1.0, 2.0]


def test_without_a_worker_it_says_what_to_do():
    """WAITING, and the line that tells what to add to the job, wrapped and whole."""
    display = empty_display()
    line = "no profiler server on this host; add to the job: server = jax.profiler.start_server(9999)"
    display.add(Workers(waiting=line))
    display.refresh(NOW)

    texts = lines(display, 40, 12)
    assert "WAITING" in texts[0]
    assert line in " ".join(" ".join(texts).split())


def test_what_gets_old_is_taken_away_when_its_time_comes():
    """A present figure goes at the moment that `changes_at` names, even if nobody calls `refresh`."""
    display = display_of(answered("w"))
    assert "45.3%" in screen(display)

    stale_at = display.changes_at(NOW)
    assert NOW + 2.5 * INTERVAL_S < stale_at < NOW + 2.5 * INTERVAL_S + 1
    assert "45.3%" in screen(display, now=stale_at - 0.1)
    later = screen(display, now=stale_at)
    assert "STALE 25s" in later
    assert "now 45.3%" not in later
    assert "MXU        45.3%" not in later


def test_the_age_label_is_the_only_reason_to_draw_a_worker_that_is_down():
    """The picture changes when the age does: each second, then each minute."""
    display = display_of(failed("w"))
    for age_s, next_s in ((3.2, 4.0), (12.2, 13.0), (61.0, 120.0)):
        assert display.changes_at(NOW + age_s) == pytest.approx(NOW + next_s, abs=0.1)
    assert empty_display().changes_at(NOW) is None


def test_a_row_without_figures_says_so_and_for_how_long():
    """n/a in place of the last figures, then the state and its reason."""
    display = display_of(answered("a"), answered("b", NOW - 125), failed("b", time_unix_s=NOW - 120))

    row = next(line for line in lines(display) if " b " in line)
    assert row.startswith(" D b")
    assert row.count("n/a") >= 3
    assert "DOWN 2m: connection refused" in row
    assert "45.3%" not in row


@pytest.mark.parametrize("reason", ["paused", "busy", "continuous", "unavailable"])
def test_what_was_found_before_is_no_reason_for_a_pause(reason):
    """Nor for another session, or for no answer: on its row, on its page, and in the list of changes."""
    away = failed("b", reason, "paused by ada", NOW)
    display = display_of(answered("a"), bad("b", time_unix_s=NOW - 10), away, thresholds=AT_ONCE)
    row = next(line for line in lines(display, 140) if " b " in line)
    assert row.rstrip().endswith("0s: paused by ada")
    press(display, "e")
    assert re.search(r" b .*: paused by ada *$", screen(display), re.MULTILINE)
    press(display, "esc", "enter")
    assert re.search(r"0s .*, no figures now: paused by ada$", screen(display, 140), re.MULTILINE)


def test_runtime_metrics_stay_while_somebody_profiles():
    """A busy worker with present runtime metrics shows its HBM, and no figure of a profiler."""
    busy = failed("b", "busy", "in use", source="runtime", hbm_used_bytes=12 << 30, hbm_total_bytes=16 << 30)
    row = next(line for line in lines(display_of(answered("a"), busy), 140) if " b " in line)

    assert "75.0%" in row
    assert row.count("n/a") >= 3
    assert "BUSY >0s: in use" in row


def test_fleet_numbers_say_how_many_report():
    """Averages over those that have the figure, and of how many."""
    display = display_of(*fleet(30), failed(name_of(29)))
    shown = screen(display, 100, 40)

    assert "29/30" in shown
    assert "29 ok" in shown
    assert "D 1 down" in shown
    assert "LIVE 29/30" in shown


def test_how_figures_were_got_is_said_where_it_is_unusual():
    """MXU by FLOPs and steps by modules are named; the counter and step markers go without saying."""
    usual, unusual = fleet(2), fleet(2, mxu_method="flops", step_source="modules")

    assert "MXU:flops steps:modules" in screen(display_of(*unusual))
    top = lines(display_of(*usual))[0]
    assert "trace" in top
    assert "counter" not in top


def test_the_share_of_traced_time_is_in_the_header():
    """The greatest of all workers, of the last ten minutes: a view that has just begun frightens nobody."""
    early = display_of(answered("w", NOW - 1))
    late = display_of(*(answered("w", NOW - 600 + i) for i in range(0, 600, 10)))

    assert "traced 0.0%" in lines(early)[0]
    assert "traced 1.9%" in lines(late)[0]


def test_level_1_shows_less():
    """Type and MXU; no idle time, steps or infeed."""
    for count in (1, 4, 40):
        shown = screen(display_of(*fleet(count), level=1), 120, 40)
        assert "MXU" in shown
        assert "TPU v5 Lite" in shown
        assert not {"IDLE", "STEP", "INFEED", "idle", "Step"} & set(shown.split())


def test_what_is_made_up_stays_so_when_its_source_goes():
    """A failure may be reported by somebody who does not know; the graphs are made up all the same."""
    display = display_of(answered("w", simulated=True), failed("w"))
    assert "SIMULATED" in lines(display)[0]


def test_a_live_worker_without_a_profiler_is_not_ok():
    """Marked, counted, listed by f and explained, with as much of the reason as there is room for."""
    message = "connection refused; no server there"
    alone = failed("w3", message=message, source="runtime", hbm_used_bytes=1 << 30, hbm_total_bytes=16 << 30)
    display = display_of(*(answered(f"w{i}") for i in range(6)), replace(alone, address="10.0.0.3:9999"))
    display.add(Workers(targets=tuple(Target(worker=f"w{i}", address=f"10.0.0.{i}:9999") for i in range(6))))
    display.refresh(NOW)

    row = next(line for line in lines(display, 80, 24) if " w3 " in line)
    assert row.startswith(" ? w3 ")
    assert "connection refused" in row
    assert "10.0.0.3" not in row
    assert "? 1 unknown" in lines(display, 80, 24)[0]
    press(display, "f")
    assert rows_of(display, 80, 24) == ["w3"]
    press(display, "h")
    assert "only runtime metrics answer" in screen(display, 100, 100)


@pytest.mark.parametrize("width", [20, 40, 80])
def test_an_exporter_that_is_gone_is_not_taken_for_the_fleet(width):
    """The header says that it is the exporter, at any width, and which one where there is room."""
    away = Failure(source="exporter", reason="unavailable", message="exporter http://h:1: Connection refused")
    display = display_of(
        *(replace(failed(name_of(i)), errors=(away,)) for i in range(16)), from_url="http://10.0.0.9:10466"
    )

    assert "EXPORTER DOWN >7s" in " ".join(lines(display, width, 24, now=NOW + 7)[:3])
    if width == 80:
        assert "from http://10.0.0.9:10466" in lines(display, width, 24, now=NOW + 7)[0]
    display.add(ExporterSnapshot(complete=True, number=1))  # it answers again: nothing came of its workers yet
    display.refresh(NOW)
    top = " ".join(lines(display, width, 24)[:3])
    assert "EXPORTER" not in top
    assert "WAITING" in top
    display.add(answered(name_of(0)))
    display.refresh(NOW)
    assert "EXPORTER" not in lines(display, width, 24)[0]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_the_workers_of_an_exporter_that_never_answered_are_missed(width):
    """What is shown is live, and not all."""
    display = display_of(answered("w0"), answered("w1"))
    followed = tuple(Target(worker=name, address=f"{name}:1") for name in ("w0", "w1"))
    for unheard, words in ((("http://b:1",), "1 EXPORTER DOWN"), (("a", "b"), "2 EXPORTERS DOWN"), ((), "")):
        display.add(Workers(targets=followed, unheard=unheard))
        display.refresh(NOW)
        top = " ".join(" ".join(lines(display, width, 24)[:3]).split())
        assert words in top
        assert "LIVE" in top
        assert ("EXPORTER" in top) == bool(words)


def test_a_graph_of_what_was_says_until_when():
    """`last 2m` is of now; of a worker or fleet without present figures the end is said."""
    samples = [answered("w", NOW - 100 + 10 * i) for i in range(10)]
    assert ", last 2m" in screen(display_of(*samples), 80, 24)
    stale = screen(display_of(*samples, now=NOW + 7200), 80, 24, now=NOW + 7200)
    assert f", 2m until {clock(NOW - 10, NOW)}" in stale
    assert ", last " not in stale

    display = display_of(*fleet(20), now=NOW)
    assert "AVERAGE, LAST" in screen(display, 80, 24)
    for columns in range(66, 100):
        for title in re.findall("LAST.*", screen(display, columns, 24)):
            assert re.fullmatch(r"LAST \d+[smh].*", title), "the unit is not cut off"
    for later_s in (7200, 7300, 7400):
        display.refresh(NOW + later_s)
    title = next(line for line in lines(display, 80, 24, now=NOW + 7400) if "AVERAGE" in line)
    assert f"AVERAGE, UNTIL {clock(NOW + 7200, NOW)}" in title


def test_a_chart_with_nothing_in_it_has_no_axis():
    """No figure made it."""
    display = display_of(answered("a"), failed("w"))
    press(display, "enter")
    shown = screen(display, 80, 30)
    assert "Step time  none, 1m until" in shown
    assert "1000┤" not in shown


@pytest.mark.parametrize(("count", "size"), [(16, (80, 24)), (20, (80, 24)), (20, (100, 20)), (256, (80, 24))])
def test_since_when_and_why_is_on_the_list(count, size):
    """Of the worst that is live: below the rows, or above them where they fill the screen."""
    display = display_of(*fleet(count - 1), bad(name_of(count - 1)), thresholds=AT_ONCE)

    said = " ".join(" ".join(lines(display, *size)).split())
    assert (f"{name_of(count - 1)} · " in said) == (count == 16)
    since = f"since {clock(NOW, NOW)} or earlier: "  # it was so at the first look
    reason = "30% of the step is spent waiting for infeed" if size[0] > 80 else "infeed 30%"
    assert (f"X critical {since}infeed 30%" if count == 16 else f"X {name_of(count - 1)} {since}{reason}") in said, said


@pytest.mark.parametrize("width", [20, 24, 28])
def test_on_a_narrow_screen_the_interval_is_no_age(width):
    """It has a sign before it; while nobody is there, it is how often somebody is looked for."""
    samples = [*fleet(3, time_unix_s=NOW - 50), *fleet(3, time_unix_s=NOW - 40)]
    stale = " ".join(lines(display_of(*samples), width, 12)[:2])
    assert re.search(r"(@|every )10s", stale)
    waiting = " ".join(lines(empty_display(), width, 12)[:2])
    assert re.search(r"WAITING (@|every )10s +last --:--:--", waiting)
    assert re.search(r"(@|every )1s", " ".join(lines(empty_display(from_url="http://h:1"), width, 12)[:2]))


@pytest.mark.parametrize(
    ("gaps_s", "age_s", "words"),
    [
        ([], 0, "every n/a"),
        ([10.4], 0, "every 10s"),  # while its first traces need no saving
        ([10.4], 15, "every 10s"),
        ([10.4], 16, "every 18s"),  # which they do now
        ([10.4, 17.2], 0, "every 18s"),
        ([10.4, 300.0], 0, "every 18s"),  # a gap is no interval
    ],
)
def test_the_interval_is_the_one_that_is_kept_now(gaps_s, age_s, words):
    """Of all, and on a worker's page: not the one in the long run, as samples say it, nor a guess after the first."""
    last_s = NOW - age_s
    times = list(accumulate(reversed(gaps_s), lambda time_s, gap_s: time_s - gap_s, initial=last_s))[::-1]
    samples = [answered(worker, time_s, interval_s=18.0) for time_s in times for worker in "vw"]
    display = display_of(*samples, workers=("v", "w"))
    tops = [lines(display)[0]]
    display.press("enter")
    tops.append(lines(display)[0])
    assert [top[: top.index("traced")].split("  ")[-2].strip() for top in tops] == [words, words]


# ---- keys


def test_q_quits_and_unknown_keys_do_nothing():
    """Only what changes the picture asks for drawing."""
    display = display_of(*fleet(3))

    assert press(display, "q") is Reply.QUIT
    assert press(display, "x") is Reply.NOTHING
    assert press(display, "tab") is Reply.NOTHING
    assert press(display, "r") is Reply.REPAINT
    assert press(display, "ctrl-l") is Reply.REPAINT


@pytest.mark.parametrize("key", ["p", " "])
def test_freezing_holds_the_picture_while_data_goes_on_being_taken_in(key):
    """FROZEN and the old figures, with their time; then at once the newest, history included."""
    display = display_of(answered("w", mxu_utilization_ratio=0.11))
    press(display, key)
    before = screen(display, now=NOW)
    for i in range(1, 6):
        display.add(answered("w", NOW + i, mxu_utilization_ratio=0.77))
        display.refresh(NOW + i)

    held = screen(display, now=NOW + 6)
    assert "FROZEN" in held
    assert "11.0%" in held
    assert "77.0%" not in held
    assert held == before

    press(display, key)
    after = screen(display, now=NOW + 6)
    assert "FROZEN" not in after
    assert "77.0%" in after
    assert len(display._controls.scene.trend_of(display._controls.scene.row("w")).last("mxu", 10)) == 6


def test_a_held_picture_says_when_the_worker_is_gone_meanwhile():
    """FROZEN does not hide that there are no figures any more."""
    display = display_of(answered("w"))
    press(display, "p")
    display.add(failed("w", time_unix_s=NOW + 5))
    display.refresh(NOW + 5)

    assert "now DOWN" in lines(display, now=NOW + 5)[0]


def test_the_chosen_worker_stays_chosen_when_rows_move():
    """The cursor is on a worker, not on a line; g follows the first row again."""
    display = display_of(*fleet(5), thresholds=AT_ONCE)
    press(display, "down", "down", "down")
    assert next(line for line in lines(display) if "▸" in line).split()[1] == name_of(2)

    display.add(bad(name_of(4), time_unix_s=NOW + 1))
    display.refresh(NOW + 1)
    assert rows_of(display)[0] == name_of(4)
    assert next(line for line in lines(display) if "▸" in line).split()[1] == name_of(2)

    press(display, "g")
    assert "▸" not in screen(display)


@pytest.mark.parametrize(("down", "up"), [("down", "up"), ("j", "k"), ("pagedown", "pageup")])
def test_scrolling_reaches_every_worker(down, up):
    """Down to the last and up to the first; what is shown of how much is always right."""
    display = display_of(*fleet(100))
    seen = set(rows_of(display))
    for _ in range(100):
        press(display, down)
        seen.update(rows_of(display))
    assert seen == {name_of(i) for i in range(100)}
    assert "-100/100" in lines(display)[-1]
    for _ in range(100):
        press(display, up)
    assert rows_of(display)[0] == name_of(0)


def test_end_and_home():
    """G goes to the last row, g to the first."""
    display = display_of(*fleet(100))
    press(display, "G")
    assert rows_of(display)[-1] == name_of(99)
    press(display, "home")
    assert rows_of(display)[0] == name_of(0)


def test_s_sorts_by_the_next_figure_and_upper_case_s_the_other_way_round():
    """The footer says by what; order changes at once."""
    display = display_of(*(answered(name_of(i), mxu_utilization_ratio=0.1 + 0.1 * (i * 3 % 5)) for i in range(5)))
    press(display, "s", "s")
    assert "sort:mxu" in lines(display)[-1]
    least_first = [name_of(i) for i in (0, 2, 4, 1, 3)]
    assert rows_of(display) == least_first
    press(display, "S")
    assert rows_of(display) == least_first[::-1]
    assert "sort:mxu reversed" in lines(display)[-1]


def test_a_filter_is_typed_shown_kept_and_cleared():
    """`/` takes letters that are commands elsewhere; Enter keeps it, Esc shows all."""
    display = display_of(*fleet(30))
    press(display, "/", "q", "s", "backspace", "backspace", *"er-2")
    assert "/er-2_" in lines(display)[-1]
    press(display, "enter")
    assert rows_of(display) == [name_of(i) for i in (2, *range(20, 30))]
    assert "1-11/11 of 30" in lines(display, 120)[-1]
    assert "/er-2 " in lines(display, 120)[-1]
    press(display, "/")
    assert "/er-2_   Enter keeps  Ctrl-U empties  Esc clears" in lines(display, 120)[-1]
    press(display, "ctrl-u", "1", "9")
    assert "/19_" in lines(display)[-1]
    assert rows_of(display) == [name_of(19)]
    press(display, "x", "esc")
    assert "/30" in lines(display)[-1]


def test_a_filter_takes_the_name_of_a_state_or_a_finding():
    """Its beginning, from three letters on: a name may have any letter of theirs."""
    display = display_of(*fleet(12), failed(name_of(7)), bad(name_of(3)), thresholds=AT_ONCE)
    for typed, shown in (("/down", [7]), ("/INPUT", [3]), ("/input bound", [3]), ("/critical", [7, 3]), ("/do", [])):
        press(display, *typed, "enter")
        assert rows_of(display) == [name_of(i) for i in shown], typed
        press(display, "esc")


def test_a_filter_that_leaves_nobody_says_so():
    """No empty screen without a reason; Esc ends it."""
    display = display_of(*fleet(3), filter="nobody")
    assert "no worker matches /nobody; Esc shows all" in screen(display)
    press(display, "esc")
    assert len(rows_of(display)) == 3
    press(display, "f")
    assert "no worker that is not ok" in screen(display)


def test_a_pasted_filter_is_typed_and_pasted_commands_are_not():
    """Its first line, while a filter is typed; nowhere else is a paste anything."""
    display = display_of(*fleet(30))
    assert press(display, "pasted:q") is Reply.NOTHING
    press(display, "/", "pasted:\r\n\x1b[31mer-2\x07\r\nq\r\n")
    assert "/er-2_" in lines(display)[-1]
    press(display, "pasted:" + "x" * 1000)
    assert len(display._controls.filter) == 100


def test_a_filter_holds_for_the_only_worker():
    """As for any other; it cannot be opened unseen."""
    display = display_of(answered("w"), filter="nosuch")
    assert "no worker matches /nosuch; Esc shows all" in screen(display)
    press(display, "enter")
    assert "no worker matches" in screen(display)
    press(display, "esc")
    assert "45.3%" in screen(display)


def test_what_is_opened_is_what_the_cursor_is_at():
    """When a filter hides the chosen worker the cursor goes, to be seen, to another."""
    display = display_of(*fleet(20), failed(name_of(7)), failed(name_of(9)))
    press(display, "G", "f")
    marked = next(line for line in lines(display) if "▸" in line).replace("▸", " ").split()[1]
    assert marked == name_of(9)
    press(display, "enter")
    assert lines(display)[1].split()[0] == marked


def test_f_leaves_only_those_that_are_not_ok():
    """Those that answer without anything that stands out go."""
    display = display_of(*fleet(20), failed(name_of(7)), bad(name_of(3)), thresholds=AT_ONCE)
    press(display, "f")

    assert rows_of(display) == [name_of(7), name_of(3)]
    assert "not ok" in lines(display)[-1]


def test_enter_opens_the_chosen_worker_and_esc_goes_back():
    """Its own screen: figures, cores, devices, what failed when; whatever happens to the order meanwhile."""
    display = display_of(
        *fleet(4), failed(name_of(2), message="went away", time_unix_s=NOW - 30), answered(name_of(2), NOW - 1)
    )
    press(display, "j", "j", "j", "enter")

    shown = screen(display, 120, 70)
    assert name_of(2) in shown
    for words in ("Compute, high FLOPS", "CORE", "DEVICE", "9.00", "uptime 1h00m", "went away", "30s ago", "1 failed"):
        assert words in shown, words
    press(display, "esc")
    assert rows_of(display) == [name_of(i) for i in range(4)]


def test_a_worker_that_is_gone_takes_its_screen_with_it():
    """Nobody looks at the screen of a worker that is not followed any more."""
    display = display_of(*fleet(3))
    press(display, "j", "enter")
    display.add(Workers(targets=tuple(Target(worker=name_of(i), address=f"{i}") for i in (1, 2))))
    display.refresh(NOW)

    assert rows_of(display) == [name_of(1), name_of(2)]


def test_the_worker_screen_scrolls_to_its_end():
    """Every line is reachable, at any height."""
    display = display_of(answered("w", warnings=(FigureWarning("profiler", "events were dropped"),)))
    press(display, "enter")
    assert "answered in" not in screen(display, 80, 12)
    press(display, "G")
    assert "answered in" in screen(display, 80, 12)
    press(display, "g")
    assert "LIVE" in screen(display, 80, 12)
    assert "w ·" in screen(display, 80, 12)


def test_why_a_figure_is_absent_is_said():
    """On the only worker's screen, beside its n/a."""
    sample = answered("w", infeed_ratio=None, absent={"infeed_ratio": "no infeed ops"})
    line = next(line for line in lines(display_of(sample)) if "Infeed" in line)

    assert "n/a" in line
    assert "no infeed ops" in line


def test_help_lists_keys_marks_and_thresholds():
    """As they are set."""
    display = display_of(*fleet(2), thresholds=Thresholds(step_warn_ratio=1.07, infeed_critical_ratio=0.33))
    press(display, "?")
    pages = []
    for _ in range(16):
        pages.append(screen(display, 90, 16))
        press(display, "pagedown")
    shown = "\n".join(pages)

    for words in (
        "quit",
        "last 15m              that time",
        "1.07x the slice's median",
        "33%",
        "critical",
        "another profiler, or another tpumon",
        "too little to judge: few samples",
        "SIMULATED",
    ):
        assert words in shown, words
    press(display, "esc")
    assert rows_of(display)


# ---- messages


def test_a_notice_is_shown_for_a_while_and_kept_in_help():
    """Above the keys, which stay, then on the help screen with its time."""
    display = display_of(*fleet(2))
    display.notice("w1: answers again\x1b[2J after 3 queries")
    *_, message, keys = lines(display)
    assert "w1: answers again after 3 queries" in message
    assert "q quit" in keys

    over = display.changes_at(NOW)
    assert over < NOW + 20
    assert "answers again" not in screen(display, now=over)
    press(display, "h")
    assert "answers again" in screen(display, 90, 60, now=over)


def test_what_was_said_before_the_view_is_shown_until_a_key_is_pressed():
    """Whatever else is said meanwhile; on stderr the view covers it."""
    display = display_of(*fleet(2))
    display.begin_with(["TPUMON_INTERVALL is no variable of tpumon", "another one"])
    display.notice("a later line")
    assert "(+1, see h) TPUMON_INTERVALL is no variable" in lines(display, now=NOW + 3600)[-2]
    press(display, "h")
    assert "another one" in screen(display, 90, 60, now=NOW + 3600)
    assert "no variable" not in lines(display, 90, 20, now=NOW + 3600)[-2]


def test_a_notice_counts_from_when_it_is_first_shown():
    """One that comes before anything is drawn is not over at once."""
    display = empty_display()
    display.notice("traces cost 0.5 s")

    assert "traces cost" in screen(display, now=NOW)


def test_the_same_of_many_workers_is_one_message():
    """With how many; nothing older is pushed out of the help, and each has it on its own screen."""
    display = display_of(*fleet(64))
    display.notice("looked at it")
    for i in range(64):
        display.notice(f"{name_of(i)}: {name_of(i)}:8466: connection refused by 10.0.0.{i} [unavailable]")
    display.notice(f"{name_of(5)}: 3 events dropped")

    assert lines(display, 120)[-2].startswith(f" (+2, see h) {name_of(5)}: 3 events dropped")
    press(display, "h")
    shown = screen(display, 120, 60)
    assert f"{name_of(0)} and 63 more: connection refused by 10.0.0.0 [unavailable]" in shown
    assert "looked at it" in shown
    press(display, "esc", "/", *"er-63", "enter", "enter")
    assert "refused by 10.0.0.63" in " ".join(screen(display, 120, 80).split())


def test_a_message_takes_the_place_of_the_keys_on_a_low_screen():
    """But not that of the position."""
    display = display_of(*fleet(30))
    display.notice("something happened, it was")
    assert re.fullmatch(r" something happened, it was +1-\d/30", lines(display, 40, 11)[-1])


def test_a_message_goes_though_the_clock_was_set_back():
    """It is shown for its time, not until the clock is there again."""
    display = display_of(*fleet(2))
    display.notice("something happened")
    assert "something happened" in screen(display)
    display.refresh(NOW - 3000)
    assert "something happened" not in screen(display, now=NOW - 3000 + 11)
    assert "something happened" not in screen(display, now=NOW)


def test_messages_about_a_worker_are_on_its_screen():
    """Its own only: w1 is not w10."""
    display = display_of(answered("w1"), answered("w10"))
    display.notice("w10: went away")
    display.notice("w1: answers again")
    press(display, "enter")

    shown = screen(display, 100, 60, now=NOW + 60)
    assert "answers again" in shown
    assert "went away" not in shown


# ---- order


def test_rows_do_not_jump():
    """Sorted by a figure they move after five seconds at the earliest, sorted by worst as soon as a state changes."""
    display = display_of(*(answered(name_of(i), mxu_utilization_ratio=0.1 * (i + 1)) for i in range(3)), sort="mxu")
    before = rows_of(display)
    for i in range(3):
        display.add(answered(name_of(i), NOW + 1, mxu_utilization_ratio=0.9 - 0.1 * i))
    display.refresh(NOW + 1)
    assert rows_of(display, now=NOW + 1) == before
    assert "s sort:mxu held " in lines(display, now=NOW + 1)[-1], "the figures say otherwise"
    display.refresh(NOW + 6)
    assert rows_of(display, now=NOW + 6) == before[::-1]
    assert "s sort:mxu  1-3/3" in lines(display, now=NOW + 6)[-1]
    for i in range(3):
        display.add(answered(name_of(i), NOW + 7, mxu_utilization_ratio=0.1 * (i + 1)))
    display.refresh(NOW + 7)
    press(display, "S", "S")
    assert rows_of(display, now=NOW + 7) == before, "a key sorts at once"
    assert "held" not in lines(display, now=NOW + 7)[-1]

    display = display_of(*fleet(3))
    display.add(failed(name_of(2), time_unix_s=NOW + 1))
    display.refresh(NOW + 1)
    assert rows_of(display, now=NOW + 1)[0] == name_of(2)


@pytest.mark.parametrize("sort", ["mxu", "worst"])
def test_one_that_comes_and_goes_moves_nobody_else(sort):
    """Nor does it make the others' figures count before their time."""
    display = display_of(*fleet(7), answered(name_of(7), mxu_utilization_ratio=0.01), sort=sort)
    before = [name for name in rows_of(display) if name != name_of(7)]
    for second in range(1, 5):
        for i in range(7):
            display.add(answered(name_of(i), NOW + second, mxu_utilization_ratio=(i * 3 + second) % 7 / 10))
        last = answered if second % 2 else failed
        display.add(last(name_of(7), time_unix_s=NOW + second))
        display.refresh(NOW + second)
        now = rows_of(display, now=NOW + second)
        assert [name for name in now if name != name_of(7)] == before
        assert now.index(name_of(7)) == (7 if sort == "worst" and second % 2 else 0)


def test_those_that_are_as_bad_as_before_stay_where_they_are():
    """How far off they are counts again after a while, not when somebody else goes."""
    ratios = (0.30, 0.36, 0.43)

    def those(ratios, time_unix_s):
        return [answered(name_of(i), time_unix_s, **infeed(ratio)) for i, ratio in enumerate(ratios)]

    display = display_of(*fleet(12), *those(ratios, NOW), thresholds=AT_ONCE)
    assert rows_of(display)[:3] == [name_of(i) for i in (2, 1, 0)]
    for sample in (*those(ratios[::-1], NOW + 1), failed(name_of(11), time_unix_s=NOW + 1)):
        display.add(sample)
    display.refresh(NOW + 1)
    assert rows_of(display, now=NOW + 1)[:4] == [name_of(i) for i in (11, 2, 1, 0)]
    display.refresh(NOW + 6)
    assert rows_of(display, now=NOW + 6)[:4] == [name_of(i) for i in (11, 0, 1, 2)]


def test_among_equally_bad_ones_the_farthest_off_is_first():
    """By how far above its threshold, then by name."""
    samples = [answered(name_of(i), **infeed(ratio)) for i, ratio in {3: 0.3, 5: 0.6, 7: 0.3}.items()]
    display = display_of(*fleet(10), *samples, thresholds=AT_ONCE)
    assert rows_of(display)[:4] == [name_of(i) for i in (5, 3, 7, 0)]


def test_names_are_reversed():
    """As figures are."""
    assert rows_of(display_of(*fleet(3), sort="name", reverse=True)) == [name_of(i) for i in (2, 1, 0)]


def test_a_missing_figure_is_last_whatever_the_direction():
    """It is neither the least nor the greatest."""
    samples = [answered("a", mxu_utilization_ratio=None), *(answered(name_of(i)) for i in range(2))]
    for reverse in (False, True):
        assert rows_of(display_of(*samples, sort="mxu", reverse=reverse))[-1] == "a"


# ---- size


def test_columns_leave_by_priority():
    """Worker, MXU, idle and step at every width; HBM and infeed come with room, then sparklines."""
    display = display_of(*fleet(3))
    for width in (20, 40, 60, 80, 120, 200):
        row = next(line for line in lines(display, width, 20) if re.match(r" +(tpu-worker-|…)1 ", line))
        assert all(value in row for value in (("45%", "12%", "62.7") if width < 32 else ("45.3%", "12.5%", "62.7")))
        assert ("1.8%" in row) == (width >= 60)
        assert ("▄" in row or "▅" in row) == (width >= 80)
    assert "trace/counter/steps" in screen(display, 200, 20)


@pytest.mark.parametrize("width", [20, 23, 27, 31, 35, 39])
def test_what_part_is_shown_is_right_where_there_is_no_footer(width):
    """It stands in the header then, which gets higher or lower with it: that comes to an end, and is true."""
    for count in (8, 64, 256):
        for text in ("", "1", "er-2"):
            display = display_of(*fleet(count, simulated=True), failed(name_of(0)), filter=text)
            texts = lines(display, width, 5)
            first, last = map(int, re.search(r"(\d+)-(\d+)/\d", " ".join(texts)).groups())
            rows = [line for line in texts if re.search(r"62\.7|DOWN \d+s", line) and "1s-" not in line]
            assert len(rows) - any("DOWN" in line for line in texts[:1]) == last - first + 1


def test_a_gap_in_the_history_is_a_gap():
    """A query that failed leaves a hole in the sparkline; a zero does not."""
    samples = [answered("a", NOW - 4 + i, mxu_utilization_ratio=0.0) for i in range(3)]
    samples.insert(1, failed("a", time_unix_s=NOW - 3.5))
    display = display_of(*samples, answered("b"))

    scene = display._controls.scene
    assert scene.trend_of(scene.row("a")).last("mxu", 10)[:2] == [
        0.0,
        pytest.approx(math.nan, nan_ok=True),
    ]
    row = next(line for line in lines(display, 110) if " a " in line)
    assert "▁ ▁▁" in row


def test_rows_that_are_equally_bad_stay_by_name():
    """However their figures jitter; one that gets much worse goes first."""
    names = [name_of(i) for i in range(6)]

    def later(time_unix_s, seed):
        jitter = random.Random(seed)
        return [
            answered(name, time_unix_s, **infeed(ratio)) for name in names for ratio in [jitter.uniform(0.875, 0.885)]
        ]

    display = display_of(*later(NOW, 0), thresholds=AT_ONCE)
    for second in range(0, 120, 6):
        for sample in later(NOW + second, second):
            display.add(sample)
        display.refresh(NOW + second)
        assert rows_of(display, now=NOW + second) == names
    display.add(answered(names[4], NOW + 200, **infeed(0.99)))
    for sample in later(NOW + 200, 1):
        if sample.worker != names[4]:
            display.add(sample)
    display.refresh(NOW + 200)
    assert rows_of(display, now=NOW + 200)[0] == names[4]


@pytest.mark.parametrize(("width", "least"), [(80, "w-000"), (120, "w-000"), (200, "w-000")])
def test_names_do_not_take_the_room_of_figures(width, least):
    """Of long names that differ at their end, the end is shown; whole ones are on the worker's page."""
    long = "gke-cluster-of-some-team-us-central2-b-nodepool-w-{:03}"
    display = display_of(*(answered(long.format(i)) for i in range(6)))
    row = next(line for line in lines(display, width) if "w-000 " in line and "·" not in line)
    assert row.index("45.3%") <= 3 + 35 + 8
    assert least in row
    press(display, "enter")
    assert long.format(0) in screen(display, width)


def test_a_worker_that_is_slow_and_one_that_is_down_have_marks_of_their_own():
    """And the header says in words what they mean where there is room."""
    display = display_of(*fleet(6), bad(name_of(4)), failed(name_of(5)), thresholds=AT_ONCE)
    down, critical = lines(display, 120)[2:4]
    assert (down[1], critical[1]) == ("D", "X")
    assert "D 1 down  X 1 critical" in lines(display, 120)[0]

"""Workers on a CPU: no screen shows what such a job cannot have."""

from __future__ import annotations

import pytest

from support.sample_kinds import NOW, cpus, on_cpu, traced, workers_of
from support.samples import changed
from support.shown import display_of, empty_display, failed, lines, press, screen
from tpumon.model.figure_table import applicable_figures

OF_A_TPU = {"mxu", "idle", "infeed", "hbm"}


def shown(*samples, now=NOW, **settings):
    display = empty_display(**settings)
    display.add(workers_of(*{one.worker: one for one in samples}.values()))
    display.add(*samples)
    display.refresh(now)
    return display


def test_figures_of_a_device_say_nothing_of_a_job_on_a_cpu():
    """Beside a TPU they stay."""
    assert not OF_A_TPU & {figure.key for figure in applicable_figures([on_cpu()])}
    assert {figure.key for figure in applicable_figures([on_cpu(), traced()])} >= OF_A_TPU


@pytest.mark.parametrize(
    "known",
    [
        {"device_type": "TPU v6 Lite"},
        {"devices": ({"device": "0"},)},
        {"hbm_total_bytes": 1 << 34},
        {"device_type": None},
    ],
)
def test_where_a_device_is_known_its_figures_are_asked_for(known):
    """A TPU that a trace does not show is missing, which must be seen."""
    figures = {figure.key for figure in applicable_figures([changed(on_cpu(), **known)])}
    assert figures >= OF_A_TPU


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
def test_the_only_worker_on_a_cpu_fills_its_screen(size):
    """Step time, what the host does, functions and a graph; no empty axis."""
    text = screen(shown(*cpus(1)), *size, NOW)
    for words in ("Step time", "Compiling", "Callbacks", "train_step", "eval_step", "pid 4711 of ada", "┤"):
        assert words in text
    assert "MXU  none" not in text
    assert "0 cores" not in text
    assert sum(not line.strip() for line in text.splitlines()[:24]) <= 3


@pytest.mark.parametrize("size", [(40, 12), (30, 8), (20, 5), (80, 24), (120, 40)])
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_every_size_and_level_can_be_drawn(size, level, count):
    """Nothing of them fails where no figure is left."""
    assert "cpu-0" in screen(shown(*cpus(count), level=level), *size, NOW)


def test_a_list_of_workers_on_cpus_has_no_column_of_a_device():
    """Beside a worker on a TPU it has: their cells are empty there."""
    titles = next(line for line in lines(shown(*cpus(3)), 100, 24, NOW) if "WORKER" in line)
    assert "STEP ms" in titles
    assert not [word for word in ("MXU", "IDLE", "INFEED", "HBM") if word in titles]
    mixed = lines(shown(on_cpu(), traced()), 100, 24, NOW)
    row = next(line for line in mixed if line[3:].startswith("cpu "))
    assert "MXU" in next(line for line in mixed if "WORKER" in line)
    assert "n/a" not in row
    assert "%" not in row


def test_a_job_on_a_cpu_that_is_down_is_not_taken_for_one_on_a_tpu():
    """What it had is what is looked for."""
    gone = failed("cpu-0", time_unix_s=NOW - 1, address="cpu-0:9999")
    text = screen(shown(*cpus(1), gone), 100, 30, NOW)
    assert "DOWN" in text
    assert "MXU" not in text
    assert "Step time" in text


@pytest.mark.parametrize(("size", "seen"), [((80, 24), "4711 ada train.py"), ((40, 12), "4711 a"), ((30, 8), "")])
def test_rows_of_one_host_show_their_process(size, seen):
    """Between their names and their figures, as much as there is room for; rows of several hosts do not."""
    here = lines(shown(on_cpu("vm"), on_cpu("vm:9012")), *size, NOW)
    titles, *rows = (next(line for line in here if word in line) for word in ("WORK", "vm", ":9012"))
    assert ["PROCESS" in titles, *(seen in row for row in rows)] == [bool(seen), True, True]
    assert "4711" not in "".join(lines(shown(on_cpu("a"), on_cpu("b")), 80, 3, NOW))


@pytest.mark.parametrize("count", [1, 2])
def test_where_no_trace_can_show_whether_anything_runs_no_screen_says_that_nothing_does(count):
    """In the header, in rows, on its page, in the letters of its graph, and among the changes."""
    unseen = [failed(f"w{n}", "empty-trace", detail="not-seen", time_unix_s=NOW - 1) for n in range(count)]
    display = shown(*unseen)
    text = screen(display, 100, 24, NOW)
    assert text.count("NOT SEEN") == 2 * count  # header and page; header, rows and the page below them
    press(display, "e")
    changes = screen(display, 100, 24, NOW)
    assert "? w0" in changes or "? all 2 workers" in changes
    assert "no activity" not in (text + changes).lower()


def test_a_worker_on_a_tpu_is_drawn_as_before():
    """With its matrix units first."""
    assert "MXU" in screen(display_of(traced()), 100, 30, NOW)

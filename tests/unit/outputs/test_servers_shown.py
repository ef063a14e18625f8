"""The figures of a server of models on screens, in text and CSV, and on the metrics page."""

from __future__ import annotations

import csv
import io
import re

import pytest
from msgspec.structs import replace

from support.said import Lines
from support.sample_kinds import KINDS, NOW, failed, served, traced, workers_of
from support.shown import display_of, lines, press, screen
from support.wired import Judged
from tpumon.cli.commands.once import _table, _TableRow
from tpumon.model import JobKind, Process
from tpumon.model.figure_table import COMPARED, applicable_figures, of_job, values
from tpumon.model.figures import ServerFigures
from tpumon.outputs.metrics import SAMPLE_METRICS
from tpumon.outputs.text_blocks import render_block
from tpumon_exporters.comma_separated import COLUMNS

OF_SERVERS = {"busy", "program", "tokens", "waiting", "kv"}
OF_TRAINING = {"idle", "step", "infeed"}


def of_kind(kind, sample=None):
    return replace(sample or served(), job_kind=None if kind is None else JobKind(kind=kind))


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        *((kind, OF_SERVERS) for kind in ("serving", "batch")),
        *((kind, OF_TRAINING) for kind in (None, "training", "interactive", "unknown")),
        ("mixed", OF_SERVERS | OF_TRAINING),
    ],
)
def test_the_kind_of_job_says_which_figures_are_shown(kind, held):
    """Those of a server in place of those of steps; of a job that does both in turn, both."""
    sample = of_kind(kind)
    assert {figure.key for figure in applicable_figures([sample])} == {"mxu", "hbm"} | held
    there = {key for key, value in values(of_job(sample).figures).items() if value is not None}
    assert there == ({"mxu", "hbm"} | held) - {"infeed"}


def test_without_figures_of_a_server_its_steps_are_shown():
    sample = of_kind("serving", traced())
    assert of_job(sample) is sample
    assert {figure.key for figure in applicable_figures([sample])} == {"mxu", "hbm"} | OF_TRAINING
    assert applicable_figures([]) == applicable_figures([traced()])


def test_reasons_are_those_of_the_figures_that_are_shown():
    """Those of a server are kept by the name alone."""
    both = {"tokens_per_s": "no metrics were found", "infeed_ratio": "no infeed ops", "mxu_utilization_ratio": "why"}
    sample = served(tokens_per_s=None)
    sample = replace(sample, figures=replace(sample.figures, absent=both))
    tokens = COMPARED["tokens"]
    assert tokens.why_absent(of_job(sample).figures) == "no metrics were found"
    assert of_job(sample).figures.absent.keys() == {"tokens_per_s", "mxu_utilization_ratio"}
    assert of_job(of_kind("training", sample)).figures.absent.keys() == {"infeed_ratio", "mxu_utilization_ratio"}
    assert "Tokens/s: n/a (no metrics were found)" in render_block(sample, level=2)
    display = shown_with(sample)
    press(display, "g", "enter")
    assert "no metrics were found" in screen(display, 120, 60, NOW)


def test_libtpu_is_the_better_witness_of_use():
    """On screens; the metric is the one that traces show."""
    with_libtpu = served(busy_ratio=0.3).figures
    without = replace(with_libtpu, devices=())
    busy = COMPARED["busy"]
    assert (busy.value(with_libtpu), busy.method(with_libtpu)) == (0.875, "libtpu")
    assert (busy.value(without), busy.method(without)) == (0.3, "programs")
    assert busy.value(replace(with_libtpu, server=None)) is None
    (metric,) = (metric for metric in SAMPLE_METRICS if metric.name == "tpu_busy_ratio")
    assert list(metric.values(served(busy_ratio=0.3))) == [((), 0.3)]


def test_the_program_is_the_one_that_makes_tokens():
    """Even while prompts take more of the time: it must not jump from one to the other."""
    server = served().figures.server
    figures = replace(served().figures, server=replace(server, families=tuple(reversed(server.families))))
    assert [each.family for each in figures.server.families] == ["prefill", "decode"]
    assert COMPARED["program"].value(figures) == 0.0125
    only = replace(figures, server=replace(server, families=server.families[1:]))
    assert (COMPARED["program"].value(only), COMPARED["program"].subject(only)) == (0.0625, "prefill")


def test_every_metric_of_a_server_has_a_value_and_no_zero_stands_for_an_absent_one():
    of_server = [m for m in SAMPLE_METRICS if m.name.startswith(("tpu_server_", "tpu_program_", "tpu_busy"))]
    assert len(of_server) == 16
    assert all(list(metric.values(served(kv_pool_hbm_ratio=0.5))) for metric in of_server)
    bare = served(**(dict.fromkeys(ServerFigures.__struct_fields__) | {"families": ()}))
    assert not [series for metric in of_server for series in metric.values(bare)]
    assert not [series for metric in of_server for series in metric.values(traced())]
    (runs,) = (m for m in of_server if m.name == "tpu_program_executions_per_second")
    assert dict(runs.values(served())) == {("decode",): 24.5, ("prefill",): 1.5}


def test_text_has_no_step_of_a_server_and_csv_has_a_column_of_each_figure():
    text = render_block(KINDS["server"], level=2)
    for words in ("Step time", "Infeed", "idle time"):  # idle is what short windows of work show, no quiet night
        assert words not in text
    assert "Program: 12.5ms (median: decode)" in text
    assert "Step time" in render_block(of_kind("mixed"), level=2)
    assert "Tokens" not in render_block(of_kind("training"), level=2)
    assert "Busy" not in render_block(KINDS["server"], level=1)
    (row,) = csv.DictReader(io.StringIO(_csv(KINDS["server"])))
    assert (row["job_kind"], row["server_decode_duration_p95_s"], row["server_tokens_per_s"]) == (
        "serving",
        "0.0138",
        "812.5",
    )
    assert row["server_sample_time_ratio"] == ""


def _csv(sample):
    cells = {name: get(sample) for name, get in COLUMNS.items()}
    return "\n".join((",".join(cells), ",".join("" if cell is None else str(cell) for cell in cells.values())))


def shown_with(*samples):
    return display_of(*(replace(one, time_unix_s=NOW - 1) for one in samples), now=NOW)


def test_a_cell_is_empty_where_the_figure_says_nothing_of_the_job():
    """And n/a where it would say something."""
    texts = lines(shown_with(served("with"), KINDS["server-alone"], traced("train")), 100, 24, NOW)
    titles, *rows = (line for line in texts if line[3:].startswith(("WORKER", "with", "server-alone", "train")))
    ends = {word: titles.index(word) + len(word) for word in ("MXU", "STEP ms", "BUSY", "TOK/S")}
    cells = {row[3:].split()[0]: [row[end - 7 : end].strip() for end in ends.values()] for row in rows}
    assert cells == {
        "with": ["6.2%", "", "87.5%", "812"],
        "server-alone": ["6.2%", "", "87.5%", "n/a"],
        "train": ["42.5%", "62.7", "", ""],
    }


def waits(worker="waits"):
    """A server without a request: its trace is empty, its figures cover two minutes."""
    with_requests = served(worker, requests_running=0.0)
    empty = failed(worker, "empty-trace", "the trace holds no event", time_unix_s=NOW - 1)
    figures = replace(empty.figures, server=with_requests.figures.server, devices=with_requests.figures.devices)
    return replace(empty, job_kind=with_requests.job_kind, figures=figures)


def test_a_server_that_waits_for_requests_keeps_its_figures():
    """And no line says that it is in trouble."""
    display = shown_with(served("other"), waits())
    texts = lines(display, 80, 24, NOW)
    titles = next(line for line in texts if "WORKER" in line)
    row = next(line for line in texts if line[3:].startswith("waits "))
    assert row[: titles.index("TOK/S") + 5].split()[-4:] == ["n/a", "87.5%", "12.5", "812"]
    press(display, "j", "enter")
    shown = screen(display, 80, 24, NOW)
    assert "NO ACTIVITY >1s" in shown
    assert "no figures" not in shown
    assert Lines().update(waits()) == []


def test_a_fleet_of_servers_has_no_column_of_steps():
    """Nor does a large one's summary; they can be sorted by their own figures."""
    display = shown_with(*(served(f"s{i}", requests_waiting=float(i)) for i in range(20)))
    shown = screen(display, 80, 24, NOW)
    assert "STEP" not in shown
    assert "IDLE" not in shown
    assert "ALL WORKERS, BUSY" in shown
    orders = []
    while "waiting" not in orders:
        press(display, "s")
        orders.append(re.search(r"s sort:(\w+)", screen(display, 80, 24, NOW))[1])
    assert not {"idle", "step", "infeed"} & set(orders), "nobody has these"
    rows = [line[3:].split()[0] for line in lines(display, 80, 24, NOW) if line[3:5] == "s1"]
    assert rows[:2] == ["s19", "s18"]


@pytest.mark.parametrize(("began_s", "is_shown"), [(-100.0, True), (5.0, False)])
def test_the_kind_of_the_job_before_is_not_shown_beside_the_process_of_the_next(began_s, is_shown):
    """Until its first sample has come."""
    one = served("a")
    process = Process(pid=7, command="python serve.py", started_unix_s=one.job_kind.since_unix_s + began_s)
    display = shown_with(replace(one, process=process))
    press(display, "g", "enter")
    shown = screen(display, 120, 60, NOW)
    assert "python serve.py, pid 7" in shown
    assert ("serving job:" in shown) == is_shown


def test_the_page_of_a_server_says_what_it_is_and_what_its_programs_do():
    """The kind of job with its evidence; no parts of a step."""
    display = shown_with(served("a"))
    press(display, "g", "enter")
    shown = screen(display, 120, 60, NOW)
    assert "serving job: a server of models in its process tree" in shown
    for words in ("by libtpu's duty cycle", "median run: decode", "Host gap 12.5%", "Requests running 12"):
        assert words in " ".join(shown.split())
    assert [line.split()[:6] for line in lines(display, 120, 60, NOW) if line.strip().startswith("prefill")] == [
        ["prefill", "25.0%", "1.5", "62.5", "125", "256"]
    ]
    assert "STEP" not in shown
    assert "Step" not in shown
    assert "decode 75.0% 24.5/s p95 13.8ms" in screen(display, 80, 24, NOW)


def test_once_has_the_columns_of_both_kinds_of_job():
    """In one table, in which a figure that says nothing of a job is n/a, as one that is absent is."""
    samples = [replace(one, time_unix_s=NOW - 1) for one in (served("s"), traced("t"))]
    status = Judged(workers_of(*samples), *samples).fleet.status(NOW)
    titles, *rows = _table([_TableRow(worker, "ok") for worker in status.all()], NOW)
    names = ("MXU", "IDLE", "STEP ms", "BUSY", "PROG ms", "TOK/S", "WAITING", "KV", "INFEED", "HBM")
    ends = [titles.index(name) + len(name) for name in names]
    assert [[row[end - 6 : end].split()[-1] for end in ends] for row in rows] == [
        ["6.2%", "n/a", "n/a", "87.5%", "12.5", "812", "3", "62.5%", "n/a", "93.8%"],
        ["42.5%", "8.1%", "62.7", "n/a", "n/a", "n/a", "n/a", "n/a", "15.0%", "56.2%"],
    ]

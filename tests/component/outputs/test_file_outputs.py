"""Samples in files: CSV and JSON lines through log rotation, and the page for node_exporter."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import stat
import sys
import time
from contextlib import closing

import pytest

from support import wait_until
from support.exporter import found, sample
from support.prometheus import promtool
from support.wired import wired
from tpumon.errors import UsageError
from tpumon.model import Failure, Spread, StepTimes, Workers
from tpumon.outputs import QueuedOutput

FIGURES = {
    "idle_ratio": 0.0,
    "cores": 8,
    "step_time_s": StepTimes(avg=0.01, min=0.009, max=0.011, count=5),
    "infeed_ratio": Spread(avg=0.1, min=0.0, max=0.2),
    "step_parts_s": {"infeed": 0.001},
}


def opened(name, where):
    return closing(wired(name, str(where)))


def rows(path):
    return list(csv.DictReader(io.StringIO(path.read_text(), newline="")))


def workers(name, path):
    if name == "csv":
        return [row["worker"] for row in rows(path)]
    return [json.loads(line)["worker"] for line in path.read_text().splitlines()]


def test_csv_has_the_figures_of_a_sample(tmp_path):
    """Ratios 0-1 and seconds as they are; absent is empty, a measured zero is 0; failed queries have a reason."""
    path = tmp_path / "out.csv"
    with opened("csv", path) as output:
        output.add(sample(time_unix_s=5.5, **FIGURES))
        output.add(sample('a,"b"', reason="busy"))
    first, second = rows(path)
    assert (first["worker"], first["time_unix_s"], first["mxu_utilization_ratio"]) == ("w", "5.5", "0.425")
    assert (first["idle_ratio"], first["duty_cycle_ratio"], first["cores"]) == ("0.0", "", "8")
    assert (first["step_time_avg_s"], first["step_time_stddev_s"], first["step_count"]) == ("0.01", "", "5")
    assert (first["infeed_max_ratio"], first["step_part_infeed_s"], first["step_part_idle_s"]) == ("0.2", "0.001", "")
    assert (first["simulated"], first["error_reason"]) == ("false", "")
    assert (second["worker"], second["error_reason"], second["mxu_utilization_ratio"]) == ('a,"b"', "busy", "")


def test_csv_is_one_line_a_sample_and_never_not_a_number(tmp_path):
    """Whatever a server says of itself."""
    path = tmp_path / "out.csv"
    with opened("csv", path) as output:
        output.add(sample(device_type="TPU\r\nv9\x1b[31m", idle_ratio=math.nan))
    assert path.read_text().count("\n") == 2
    (row,) = rows(path)
    assert (row["device_type"], row["idle_ratio"]) == ("TPU v9", "")


def test_csv_holds_no_formula(tmp_path):
    """A text that a spreadsheet would compute begins with a quote; a number below zero is one."""
    path = tmp_path / "out.csv"
    with opened("csv", path) as output:
        for begin in ("=", "+", "-", "@", "\t=", "\r="):
            output.add(sample(f"{begin}1+1", time_unix_s=-1.5))
    assert [row["worker"] for row in rows(path)] == ["'=1+1", "'+1+1", "'-1+1", "'@1+1", "'=1+1", "'=1+1"]
    assert {row["time_unix_s"] for row in rows(path)} == {"-1.5"}


def test_csv_goes_on_where_it_ended(tmp_path):
    """One header, however often it is started; a file of something else is left alone."""
    path = tmp_path / "out.csv"
    for worker in ("a", "b"):
        with opened("csv", path) as output:
            output.add(sample(worker))
    assert workers("csv", path) == ["a", "b"]
    path.write_text("time,worker\n1,a\n")
    with pytest.raises(UsageError, match=r"out\.csv has other columns.*give another file"):
        wired("csv", str(path))
    assert path.read_text() == "time,worker\n1,a\n"


def test_csv_keeps_the_columns_of_a_file_that_another_version_began(tmp_path, said):
    """Its lines fit its header: columns it lacks are left out and named, columns unknown here stay empty."""
    path = tmp_path / "out.csv"
    path.write_text("time_unix_s,worker,idle_ratio,of_the_future\n1.0,old,0.5,7\n")
    with closing(wired("csv", str(path))) as output:
        output.add(Workers())
        output.add(sample("new", idle_ratio=0.25))
        output.add(Workers())
    assert [(row["worker"], row["idle_ratio"], row["of_the_future"]) for row in rows(path)] == [
        ("old", "0.5", "7"),
        ("new", "0.25", ""),
    ]
    assert len(said) == 1
    assert "mxu_utilization_ratio" in said[0]


def test_csv_names_the_address_that_failed(tmp_path):
    """A runtime metric service need not be at the worker's own address."""
    path = tmp_path / "out.csv"
    with opened("csv", path) as output:
        failure = Failure(source="runtime-metrics", reason="deadline", message="no answer", address="other:8431")
        output.add(sample("w", errors=(failure,)))
    assert rows(path)[0]["error_message"] == "other:8431: no answer"


def test_csv_on_stdout(capfd):
    """Header first; stdout stays open."""
    with opened("csv", "-") as output:
        output.add(sample())
    assert [row["worker"] for row in csv.DictReader(io.StringIO(capfd.readouterr().out))] == ["w"]
    assert not sys.stdout.closed


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_a_file_that_is_moved_away_is_begun_anew(tmp_path, name):
    """As logrotate does without copytruncate; deleting it is the same."""
    path, old = tmp_path / "out", tmp_path / "out.1"
    with opened(name, path) as output:
        output.add(sample("a"))
        path.rename(old)
        output.add(sample("b"))
        output.add(sample("c"))
        assert workers(name, old) == ["a"]
        assert workers(name, path) == ["b", "c"]
        path.unlink()
        output.add(sample("d"))
    assert workers(name, path) == ["d"]


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_a_file_that_is_emptied_goes_on_from_its_top(tmp_path, name):
    """As logrotate does with copytruncate: no hole of zeros, and the header again."""
    path, old = tmp_path / "out", tmp_path / "out.1"
    with opened(name, path) as output:
        output.add(sample("a"))
        shutil.copy(path, old)
        os.truncate(path, 0)
        output.add(sample("b"))
    assert workers(name, old) == ["a"]
    assert workers(name, path) == ["b"]


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_a_line_that_was_cut_off_before_stands_alone(tmp_path, name):
    """By a kill or a full disk of the run before: the first new line is whole."""
    path = tmp_path / "out"
    with opened(name, path) as output:
        output.add(sample("a"))
    with path.open("a") as file:
        file.write("torn")
    with opened(name, path) as output:
        output.add(sample("b"))
    lines = path.read_text().splitlines()
    assert lines[-2] == "torn"
    assert "b" in lines[-1]


def test_a_fifo_that_nobody_reads_is_refused(tmp_path):
    """At the start, instead of waiting for a reader for ever."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UsageError, match="cannot write to"):
        wired("jsonl", str(tmp_path / "fifo"))


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_a_directory_that_comes_back_is_used_again(tmp_path, name):
    """While it is gone each write fails, and says so."""
    path = tmp_path / "logs" / "out"
    path.parent.mkdir()
    with opened(name, path) as output:
        output.add(sample("a"))
        shutil.rmtree(path.parent)
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                output.add(sample("b"))
        path.parent.mkdir()
        output.add(sample("c"))
    assert workers(name, path) == ["c"]


@pytest.mark.parametrize("name", ["csv", "jsonl", "textfile"])
def test_a_file_that_cannot_be_had_is_a_usage_error(tmp_path, name):
    """At the start, in one line that names it and says what would do."""
    with pytest.raises(UsageError, match=r"cannot write to .*/no/where\.prom: No such file or directory; give a file"):
        wired(name, str(tmp_path / "no" / "where.prom"))


def test_a_textfile_is_the_page_of_metrics(tmp_path):
    """Readable by node_exporter, valid, and there from the start; a failed worker's figures vanish."""
    path = tmp_path / "tpumon.prom"
    with opened("textfile", path) as output:
        assert "# TYPE tpu_mxu_utilization_ratio gauge\n" in path.read_text()
        output.add(found("a", "b"))
        for worker in ("a", "b"):
            output.add(sample(worker))
        output.tick(time.time())
        assert 'tpu_mxu_utilization_ratio{worker="b"} 0.425\n' in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        promtool("check", "metrics", text=path.read_text())
        assert "process_" not in path.read_text(), "node_exporter has its own"
        output.add(sample("b", reason="unavailable"))
        output.tick(time.time())
        assert 'tpumon_target_up{worker="b"} 0.0\n' in path.read_text()
        assert 'tpu_mxu_utilization_ratio{worker="b"}' not in path.read_text()
        assert [each.name for each in tmp_path.iterdir() if each.suffix == ".prom"] == ["tpumon.prom"]


def test_a_textfile_is_never_seen_half_written(tmp_path):
    """Each state of it is another file: a reader that has it open reads the former to its end."""
    path = tmp_path / "tpumon.prom"
    with opened("textfile", path) as output, path.open() as reader:
        output.add(found("a"))
        output.add(sample("a"))
        output.tick(time.time())
        assert 'worker="a"' in path.read_text()
        assert 'worker="a"' not in reader.read()


def test_a_textfile_is_replaced_after_changes_and_every_10_s(tmp_path):
    """A sample becomes old also when nothing comes in any more; a clock that is put back stops nothing."""
    path = tmp_path / "tpumon.prom"

    def replaced(at):
        before = path.stat().st_ino, path.stat().st_mtime_ns
        output.tick(at)
        return (path.stat().st_ino, path.stat().st_mtime_ns) != before

    with opened("textfile", path) as output:
        output.add(found("a"))
        output.add(sample("a", time_unix_s=1000.0))
        assert replaced(1000.0)
        assert 'tpu_mxu_utilization_ratio{worker="a"}' in path.read_text()
        assert not replaced(1009.0)
        assert replaced(1010.5)
        assert replaced(2000.0)
        assert 'tpu_mxu_utilization_ratio{worker="a"}' not in path.read_text()
        assert replaced(1500.0)


def test_a_textfile_is_written_by_its_thread(tmp_path, said):
    """As `--export` runs it: nobody but the tick writes."""
    path = tmp_path / "tpumon.prom"
    inner = wired("textfile", str(path), {"interval_s": "0.1"})
    output = QueuedOutput(inner.output, "t")
    for event in (found("a"), sample("a")):
        output.on_update(inner.fleet.add(event))
    wait_until(lambda: 'tpu_mxu_utilization_ratio{worker="a"}' in path.read_text(), 10, path.read_text)
    output.close()
    assert not path.exists()
    assert said == [f"{path} is removed as tpumon ends: node_exporter would go on exposing it"]


def test_a_textfile_is_gone_with_tpumon(tmp_path):
    """node_exporter would show its last figures for ever."""
    with opened("textfile", tmp_path / "tpumon.prom") as output:
        output.add(found("a"))
        output.add(sample("a"))
    assert not list(tmp_path.iterdir())


def test_a_textfile_is_back_with_its_directory(tmp_path):
    """Each tick fails until then; nothing has to change for the file to be written again."""
    path = tmp_path / "collector" / "tpumon.prom"
    path.parent.mkdir()
    with opened("textfile", path) as output:
        output.add(found("a"))
        path.parent.rename(tmp_path / "away")
        for _ in range(3):
            with pytest.raises(FileNotFoundError):
                output.tick(time.time())
        path.parent.mkdir()
        output.tick(time.time())
        assert 'worker="a"' in path.read_text()


def test_a_textfile_that_cannot_be_replaced_goes(tmp_path):
    """Old figures are not left as the current ones."""
    path, beside = tmp_path / "tpumon.prom", tmp_path / ".tpumon.prom.tmp"
    with opened("textfile", path) as output:
        beside.mkdir()
        output.add(found("a"))
        with pytest.raises(IsADirectoryError):
            output.tick(time.time())
        assert not path.exists()
        beside.rmdir()
        output.tick(time.time())
        assert path.exists()


def test_a_textfile_needs_a_name_that_is_read():
    """node_exporter takes *.prom only."""
    with pytest.raises(UsageError, match=r"\*\.prom"):
        wired("textfile", "/tmp/tpumon.txt")

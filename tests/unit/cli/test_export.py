"""`tpumon export`: recorded samples as a Parquet file."""

from __future__ import annotations

import sys

import pytest

from support.samples import failed_sample, sample
from support.wired import Wired
from tpumon.cli.commands import export
from tpumon.errors import TpumonError, UsageError
from tpumon_exporters.comma_separated import COLUMNS
from tpumon_exporters.record import Recorder

START = 1_700_000_000.5


@pytest.fixture
def tape(tmp_path):
    recorder = Wired(lambda _context: Recorder(str(tmp_path / "rec"), clock=lambda: START))
    recorder.add(sample("a", time_unix_s=START, idle_ratio=0.0, cores=8, simulated=True))
    recorder.add(failed_sample("b", "busy", time_unix_s=START + 1))
    recorder.close()
    return str(tmp_path / "rec")


def run(recording, to):
    return export.run(recording=recording, to=str(to))


def test_a_row_per_sample_with_the_columns_of_csv(tape, tmp_path, monkeypatch, capsys):
    """Absent is null, a measured zero is 0; times are times; also across batches."""
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(export, "_BATCH", 1)
    path = tmp_path / "s.parquet"
    path.write_text("an older one")
    assert run(tape, path) == 0
    assert capsys.readouterr().out == f"{path}: 2 samples, {len(COLUMNS) + 1} columns\n"
    first, second = parquet.read_table(path).to_pylist()
    assert [*first] == ["time", *COLUMNS]
    assert first["time"].timestamp() == START
    assert (first["worker"], first["idle_ratio"], first["cores"], first["simulated"]) == ("a", 0.0, 8.0, True)
    assert (first["step_time_avg_s"], first["error_reason"]) == (None, None)
    assert (second["worker"], second["idle_ratio"], second["error_reason"]) == ("b", None, "busy")
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["s.parquet"]


def test_every_column_but_names_and_words_is_a_number(tape, tmp_path):
    """Also one whose name does not say so."""
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run(tape, tmp_path / "s.parquet") == 0
    types = {field.name: str(field.type) for field in parquet.read_schema(tmp_path / "s.parquet")}
    assert types.pop("time") == "timestamp[us, tz=UTC]"
    assert types.pop("simulated") == "bool"
    texts = {name for name, type_ in types.items() if type_ == "string"}
    assert texts == {
        *("worker", "address", "job", "slice", "job_kind", "source", "device_type", "mxu_method", "step_source"),
        *("step_name", "server_device_time_source", "error_source", "error_reason", "error_message"),
    }
    assert {type_ for name, type_ in types.items() if name not in texts} == {"double"}


def test_what_cannot_be_written_is_said(tape, tmp_path):
    """A name of another format, a directory that is not there, a recording that is not there."""
    pytest.importorskip("pyarrow.parquet")
    with pytest.raises(UsageError, match=r"give FILE\.parquet; for CSV: tpumon --from DIR --output csv"):
        run(tape, "a.csv")
    with pytest.raises(TpumonError, match=r"missing/a\.parquet: "):
        run(tape, tmp_path / "missing" / "a.parquet")
    with pytest.raises(UsageError, match=f"^{tmp_path}/nothing: there is no such file .*; give a recording$"):
        run(str(tmp_path / "nothing"), tmp_path / "a.parquet")


def test_without_pyarrow_it_says_what_to_install(tape, monkeypatch):
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"install .*\[parquet\]"):
        run(tape, "a.parquet")

"""`tpumon export`: recorded samples as one Parquet file, for notebooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, get_args, get_type_hints

from tpumon.collection.recording import Recording
from tpumon.errors import TpumonError, UsageError
from tpumon.model import Sample
from tpumon.model.figure_table import csv_numbers
from tpumon.system.console import show
from tpumon.system.extras import how_to_install
from tpumon.untrusted_text import LONGEST_PATH, one_line
from tpumon_exporters.comma_separated import COLUMNS

_BATCH = 5000  # samples in memory at a time


def run(*, recording: str, to: str) -> int:
    """Writes one row per query and worker, answered or not, with the columns of CSV and the time; returns 0.

    Raises:
        UsageError: there is no recording, the file's name is no Parquet file's, or pyarrow is not installed.
        TpumonError: the file cannot be written; one that was there is still there.
    """
    if not to.endswith(".parquet"):
        raise UsageError(f"--to {one_line(to)}: give FILE.parquet; for CSV: tpumon --from DIR --output csv")
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise UsageError(f"Parquet needs pyarrow: {how_to_install('parquet')}") from None
    try:
        recorded = Recording(recording)
        recorded.span_unix_s()
    except UsageError as error:
        raise UsageError(str(error).removeprefix("--from ").removesuffix(", or http://HOST:PORT")) from None
    numbers = _numbers()
    types = {name: pa.float64() if name in numbers else pa.string() for name in COLUMNS}
    schema = pa.schema({"time": pa.timestamp("us", tz="UTC"), **types, "simulated": pa.bool_()})
    path = Path(to)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    samples = (moment.event for moment in recorded.moments() if isinstance(moment.event, Sample))
    rows = 0
    try:
        # Opened here: the library knows no names of files that are not UTF-8.
        with unfinished.open("wb") as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in _batches(samples):
                rows += len(batch)
                times = [round(sample.time_unix_s * 1e6) for sample in batch]
                values = {name: _values(name, batch, numbers) for name in COLUMNS}
                writer.write_table(pa.table({"time": times, **values}, schema=schema))
        unfinished.replace(path)
    except OSError as error:
        raise TpumonError(f"{path}: it cannot be written: {one_line(str(error), limit=200)}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    show(f"{one_line(str(path), limit=LONGEST_PATH)}: {rows} samples, {len(schema)} columns")
    return 0


def _numbers() -> frozenset[str]:
    """Names of the columns of CSV that are numbers, by the types of what they hold."""
    kinds = {name: {kind, *get_args(kind)} for name, kind in get_type_hints(Sample).items()}
    return csv_numbers().union(name for name in COLUMNS if kinds.get(name, set()) & {float, int})


def _values(name: str, samples: Sequence[Sample], numbers: frozenset[str]) -> list[Any]:
    """A column of CSV, by its name, with values of the column's type."""
    values = map(COLUMNS[name], samples)
    kind: Callable[[Any], Any] = float if name in numbers else bool if name == "simulated" else str
    return [None if value is None else kind(value) for value in values]


def _batches(samples: Iterator[Sample]) -> Iterator[list[Sample]]:
    while batch := list(islice(samples, _BATCH)):
        yield batch

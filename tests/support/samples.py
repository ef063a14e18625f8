"""The one builder of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import fields, replace

from tpumon.errors import Detail, Reason
from tpumon.model import CoreFigures, DeviceFigures, Failure, Figures, FigureWarning, RuntimeFigures, Sample

_FIGURES = {item.name for item in fields(Figures)}
_ROWS = {"per_core": CoreFigures, "devices": DeviceFigures}


def sample(worker: str = "w0", **given: Any) -> Sample:
    """A sample of a worker that answered with a trace; every field by its name in JSON, a figure's too.

    Rows of cores and devices, and the runtime, may be mappings; warnings may be lines.
    """
    usual: dict[str, Any] = {
        "address": f"{worker}:8466",
        "time_unix_s": 1000.0,
        "window_s": 1.0,
        "took_s": 1.2,
        "interval_s": 10.0,
        "source": "trace",
    }
    return bare_sample(worker=worker, **(usual | given))


def failed_sample(
    worker: str = "w0",
    reason: Reason = "unavailable",
    message: str | None = None,
    detail: Detail | None = None,
    **given: Any,
) -> Sample:
    """A query that the worker's profiler did not answer; with `source="runtime"` only its runtime metrics did."""
    address = given.get("address", f"{worker}:8466")
    failure = Failure(source="trace", reason=reason, message=message or reason, address=address, detail=detail)
    alone = given.get("source") is not None
    return sample(worker, **({"source": None, "companions_only": alone, "errors": (failure,)} | given))


def bare_sample(**given: Any) -> Sample:
    """A sample of just these fields."""
    if "warnings" in given:
        given["warnings"] = tuple(_warning(warning) for warning in given["warnings"])
    figures = given.pop("figures", None) or figures_of(**{name: given.pop(name) for name in _FIGURES & given.keys()})
    return Sample(figures=figures, **given)


def figures_of(**given: Any) -> Figures:
    """Figures by their names in JSON."""
    return Figures(**_fields(given))


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    for name, kind in _ROWS.items():
        if name in given:
            given[name] = _rows(kind, given[name])
    if isinstance(given.get("runtime"), Mapping):
        given["runtime"] = RuntimeFigures(**given["runtime"])
    return given


def _rows(kind: type[Any], rows: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(kind(**row) if isinstance(row, Mapping) else row for row in rows)


def _warning(warning: FigureWarning | str) -> FigureWarning:
    return FigureWarning("profiler", warning) if isinstance(warning, str) else warning


def changed(sample: Sample, **given: Any) -> Sample:
    """The sample with some fields changed, by their names in JSON."""
    own = {name: given.pop(name) for name in given.keys() - _FIGURES}
    if "warnings" in own:
        own["warnings"] = tuple(_warning(warning) for warning in own["warnings"])
    return replace(sample, figures=replace(sample.figures, **_fields(given)), **own)

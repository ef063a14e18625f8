"""One query of one worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from tpumon.errors import Reason
from tpumon.model.codec import fallback, flat, from_plain, limited, not_in_json, to_plain
from tpumon.model.figures import Figures

SCHEMA_VERSION = 1

CautionCode = Literal[
    "truncated",
    "impossible-times",
    "impossible-values",
    "peaks-from-table",
    "missing-cores",
    "gpu",
    "core-silent",
    "unclear-device",
    "runtime-error",
    "profiler",
]
"""What a reader of the figures should know. `profiler`: the profiler's own words."""

_STALE_INTERVALS = 2.5
_MOST_TROUBLES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a source did not answer.

    Attributes:
        source: its name.
        reason: what `tpumon.errors.MEANING` explains.
        message: one line, without the address.
        address: the `host:port` that was asked; None if there is none.
    """

    source: str = field(metadata=fallback("exporter"))
    reason: Reason = field(metadata=fallback("internal"))
    message: str = field(metadata=fallback("no message"))
    address: str | None = None

    @property
    def line(self) -> str:
        """The message after the address."""
        return self.message if self.address is None else f"{self.address}: {self.message}"


@dataclass(frozen=True, slots=True)
class Caution:
    """Something that a reader of the figures should know; `message` is one line."""

    code: CautionCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One query of one worker, answered or not.

    Attributes:
        time_unix_s: start of the window, on this machine's wall clock.
        window_s: length of the window that the figures cover; None if none was chosen yet.
        took_s: from asking to having the answer.
        interval_s: effective interval, from one query's start to the next.
        traced_s: how long the job was traced for this query, collecting included; 0 if it was not.
        source: where the figures come from: the name of a profiler source, "file", or "runtime" if only companions
            answered; None if nothing did.
        device_type: as the source names it, for example "TPU v2".
        cores: TPU cores of the worker.
        figures: what the query measured; its fields stand beside the others in JSON.
        slice: the slice that the worker is part of, where known.
        warnings: what a reader of the figures should know, dropped events among them.
        errors: what failed; the profiler's failure, if any, comes last.
        server_text: the block that a Monitor RPC answered with, safe for a terminal; not part of the JSON.
    """

    worker: str
    address: str
    time_unix_s: float
    window_s: float | None
    took_s: float = field(metadata=fallback(0.0))
    interval_s: float | None = None
    traced_s: float = 0.0
    source: str | None = None
    simulated: bool = False
    device_type: str | None = None
    cores: int | None = None
    figures: Figures = field(default_factory=Figures, metadata=flat())
    slice: str | None = None
    errors: tuple[Failure, ...] = field(default=(), metadata=limited(_MOST_TROUBLES))
    warnings: tuple[Caution, ...] = field(default=(), metadata=not_in_json())
    server_text: str | None = field(default=None, metadata=not_in_json())

    @property
    def answered(self) -> bool:
        """Whether any source answered this query."""
        return self.source is not None

    @property
    def fresh_until_unix_s(self) -> float:
        """Until when its figures may be shown as current: 2.5 effective intervals plus a window after its start."""
        return self.time_unix_s + _STALE_INTERVALS * (self.interval_s or 0.0) + (self.window_s or 0.0)

    @property
    def failure(self) -> Failure | None:
        """Why the worker's profiler gave no figures; None if it did. Runtime metrics may be there all the same."""
        if self.answered and self.source != "runtime":
            return None
        return self.errors[-1] if self.errors else Failure(source="", reason="internal", message="no answer")

    def is_stale(self, now_unix_s: float) -> bool:
        """Whether this sample may no longer be shown as current; one rule for all outputs.

        It is stale if its query failed, or if it is older than 2.5 effective intervals plus a window.
        """
        return not self.answered or now_unix_s > self.fresh_until_unix_s

    def to_json(self) -> dict[str, Any]:
        """The Sample object of `--output jsonl`: every field, absent figures as None."""
        return {
            "schema": SCHEMA_VERSION,
            **to_plain(self),
            "warnings": [caution.message for caution in self.warnings],
            "warning_codes": [caution.code for caution in self.warnings],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Sample:
        """The reverse of `to_json`: unknown fields are ignored, fields of the wrong type count as absent.

        Raises:
            ValueError: `raw` names no worker, address or time.
        """
        sample = from_plain(cls, raw)
        if sample is None:
            raise ValueError("not a Sample object")
        return replace(sample, warnings=_cautions(from_plain(_Warnings, raw) or _Warnings()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Warnings:
    """Cautions as JSON has them: lines for people, and a code for each where the sender knows codes."""

    warnings: tuple[str, ...] = field(default=(), metadata=limited(_MOST_TROUBLES))
    warning_codes: tuple[str, ...] = field(default=(), metadata=limited(_MOST_TROUBLES))


def _cautions(raw: _Warnings) -> tuple[Caution, ...]:
    codes = raw.warning_codes if len(raw.warning_codes) == len(raw.warnings) else [""] * len(raw.warnings)
    known: Mapping[str, CautionCode] = {code: code for code in get_args(CautionCode)}
    return tuple(Caution(known.get(code, "profiler"), line) for code, line in zip(codes, raw.warnings, strict=True))

"""The values that travel through tpumon: frozen, without I/O, protobuf or a clock.

Times are in seconds, ratios 0-1, sizes in bytes, as the names say. Absent is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from tpumon.errors import Reason

SCHEMA_VERSION = 1

SIMULATED_MARK = "Simulated by tpumon"
"""Starts the line that every text, trace and metric of the simulator carries, so that its figures are told apart."""

_STALE_INTERVALS = 2.5

LONGEST_WINDOW_S = 10.0
"""The longest trace that is sampled without being asked for."""

SourceName = Literal["monitor", "trace", "file", "runtime"]
MxuMethod = Literal["server", "counter", "perf-counters", "flops"]
StepSource = Literal["server", "steps", "modules", "host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One worker's profiler server.

    Attributes:
        worker: unique name to show; the host's where one is known, else the address.
        address: `host:port` to dial; IPv6 in brackets.
    """

    worker: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What one query asks of every worker.

    Attributes:
        level: 1 (type, MXU) or 2 (also idle, steps, infeed).
        window_s: how long the server watches; None: as long as the source finds right.
        interval_s: the effective interval, to be noted in the sample.
    """

    level: int
    window_s: float | None = None
    interval_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A ratio over the steps of a window."""

    avg: float
    min: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Step durations in seconds over the steps of a window; `stddev` and `count` where the source tells."""

    avg: float
    min: float
    max: float
    stddev: float | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something that kept a source from answering; `message` is one line."""

    source: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One query of one worker, answered or not.

    Attributes:
        time_unix_s: start of the window, on this machine's wall clock.
        window_s: length of the window that the figures cover; None where none was chosen yet.
        took_s: from asking to having the answer.
        interval_s: effective interval, from one query's start to the next.
        traced_s: how long the job was traced for this query, collecting included; 0 where it was not.
        device_type: as the source calls it, for example "TPU v2".
        cores: TPU cores of the worker.
        warnings: what a reader of the figures should know, one line each; dropped events among them.
        absent: for a figure that is None though it was asked for: why, by field name.
        server_text: the block that a Monitor RPC answered with, safe for a terminal; not part of the JSON.
    """

    worker: str
    address: str
    time_unix_s: float
    window_s: float | None
    took_s: float
    interval_s: float | None = None
    traced_s: float = 0.0
    source: SourceName | None = None
    simulated: bool = False
    device_type: str | None = None
    cores: int | None = None
    mxu_utilization_ratio: float | None = None
    mxu_method: MxuMethod | None = None
    idle_ratio: float | None = None
    duty_cycle_ratio: float | None = None
    flops_utilization_ratio: float | None = None
    hbm_bandwidth_utilization_ratio: float | None = None
    step_time_s: StepTimes | None = None
    step_source: StepSource | None = None
    infeed_ratio: Spread | None = None
    step_parts_s: Mapping[str, float] | None = None
    per_core: tuple[Mapping[str, float | int | None], ...] = ()
    hbm_used_bytes: int | None = None
    hbm_total_bytes: int | None = None
    devices: tuple[Mapping[str, float | int | str | None], ...] = ()
    errors: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    server_text: str | None = None

    @property
    def answered(self) -> bool:
        """Whether any source answered this query."""
        return self.source is not None

    def is_stale(self, now_unix_s: float) -> bool:
        """Whether this sample may no longer be shown as the present state; one rule for all outputs.

        It is when its query failed, or when it is older than 2.5 effective intervals plus a window.
        """
        lasts_s = _STALE_INTERVALS * (self.interval_s or 0.0) + (self.window_s or 0.0)
        return not self.answered or now_unix_s - self.time_unix_s > lasts_s

    def to_json(self) -> dict[str, Any]:
        """The Sample object of `--output jsonl`: every field, absent figures as None."""
        return {"schema": SCHEMA_VERSION} | {name: _plain(getattr(self, name)) for name in _JSON_FIELDS}


def taken_over(figures: Any) -> dict[str, Any]:
    """What a Sample takes over from `tpumon.xspace.Figures`: the fields of the same name."""
    return {field.name: getattr(figures, field.name) for field in fields(figures) if field.name in Sample.__slots__}


_JSON_FIELDS = tuple(field.name for field in fields(Sample) if field.name != "server_text")


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, float, int)):
        return value
    if isinstance(value, (Spread, StepTimes, Failure)):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return dict(value)

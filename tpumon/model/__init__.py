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
        slice: the slice that it steps together with, where one is known; medians are taken within it.
        apart: whether nobody said that it works together with the others; then it is compared with none.
        runtime_addresses: where its runtime metric service may be, to be tried in this order.
    """

    worker: str
    address: str
    slice: str | None = None
    apart: bool = False
    runtime_addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The workers to follow from now on; all of them, not only what is new.

    Attributes:
        targets: unique in both name and address; a worker that stays keeps its name.
        waiting: where there are none: one line that says where was looked and what to do.
    """

    targets: tuple[Target, ...] = ()
    waiting: str | None = None


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
        errors: what failed; that of the profiler, if any, stands last.
        absent: for a figure that is None though it was asked for: why, by field name.
        slice: the slice that the worker is part of, where one is known.
        devices: a row for each device of the runtime metric service, keys as in `tpumon.metrics`.
        runtime: what that service says of the worker as a whole, keys as in `tpumon.metrics`.
        server_text: the block that a Monitor RPC answered with, safe for a terminal; not part of the JSON.
        step_durations_s: the steps that a trace showed, each; not part of the JSON.
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
    runtime: Mapping[str, float] = field(default_factory=dict)
    slice: str | None = None
    errors: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    server_text: str | None = None
    step_durations_s: tuple[float, ...] = ()

    @property
    def answered(self) -> bool:
        """Whether any source answered this query."""
        return self.source is not None

    @property
    def fresh_until_unix_s(self) -> float:
        """Until when its figures, if it has any, may be shown as present: for 2.5 effective intervals plus a window."""
        return self.time_unix_s + _STALE_INTERVALS * (self.interval_s or 0.0) + (self.window_s or 0.0)

    @property
    def failure(self) -> Failure | None:
        """Why the worker's profiler gave no figures; None where it did. Runtime metrics may be there all the same."""
        if self.answered and self.source != "runtime":
            return None
        return self.errors[-1] if self.errors else Failure(source="", reason="internal", message="no answer")

    def is_stale(self, now_unix_s: float) -> bool:
        """Whether this sample may no longer be shown as the present state; one rule for all outputs.

        It is when its query failed, or when it is older than 2.5 effective intervals plus a window.
        """
        return not self.answered or now_unix_s > self.fresh_until_unix_s

    def to_json(self) -> dict[str, Any]:
        """The Sample object of `--output jsonl`: every field, absent figures as None."""
        return {"schema": SCHEMA_VERSION} | {name: _plain(getattr(self, name)) for name in _JSON_FIELDS}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Sample:
        """The reverse of `to_json`. Fields that this version does not know are left out.

        Raises:
            KeyError, TypeError: it is no such object.
        """
        known = {name: told[name] for name in _JSON_FIELDS if name in told}
        for name, kind in (("step_time_s", StepTimes), ("infeed_ratio", Spread)):
            if known.get(name) is not None:
                known[name] = kind(**known[name])
        known["errors"] = tuple(Failure(**error) for error in known.get("errors", ()))
        for name in ("per_core", "devices", "warnings"):
            known[name] = tuple(known.get(name, ()))
        return cls(**known)


def taken_over(figures: Any) -> dict[str, Any]:
    """What a Sample takes over from `tpumon.xspace.Figures`: the fields of the same name."""
    return {field.name: getattr(figures, field.name) for field in fields(figures) if field.name in Sample.__slots__}


_NOT_IN_JSON = {"server_text", "step_durations_s"}
_JSON_FIELDS = tuple(field.name for field in fields(Sample) if field.name not in _NOT_IN_JSON)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, float, int)):
        return value
    if isinstance(value, (Spread, StepTimes, Failure)):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return dict(value)

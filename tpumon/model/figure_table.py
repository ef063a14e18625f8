"""The table of figures: how each one is named, compared, shown and exported.

The fleet, the views, `--sort`, CSV, the metrics page and the help read this table.
CONTRIBUTING.md says how to add a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from msgspec.structs import replace

from tpumon.model.figure_spec import FigureSpec, is_on_cpu, serves, trains
from tpumon.model.figures import Figures, Percentiles, ProgramFamily, ServerFigures, Spread, StepTimes
from tpumon.model.sample import Sample
from tpumon.model.server_figures import SERVER_FIGURES, families_of

Scalar = float | int | str | None


def _average(name: str) -> Callable[[Figures], float | None]:
    def value(figures: Figures) -> float | None:
        spread: Spread | StepTimes | None = getattr(figures, name)
        return None if spread is None else spread.avg

    return value


def _ends(name: str) -> Callable[[Figures], tuple[float, float] | None]:
    def ends(figures: Figures) -> tuple[float, float] | None:
        spread: Spread | StepTimes | None = getattr(figures, name)
        return None if spread is None else (spread.min, spread.max)

    return ends


def _hbm_of_devices(figures: Figures) -> list[tuple[float, float]]:
    """HBM used and total of each device that reports both."""
    return [
        (float(device.hbm_used_bytes), float(device.hbm_total_bytes))
        for device in figures.devices
        if device.hbm_used_bytes is not None and device.hbm_total_bytes
    ]


def _hbm_ratio(figures: Figures) -> float | None:
    """HBM used relative to its total on the fullest device; of the whole worker if devices are not reported."""
    devices = _hbm_of_devices(figures)
    if devices:
        return max(used / total for used, total in devices)
    if figures.hbm_used_bytes is None or not figures.hbm_total_bytes:
        return None
    return figures.hbm_used_bytes / figures.hbm_total_bytes


def _hbm_bytes(figures: Figures) -> tuple[float, float] | None:
    """HBM used and total of the worker: as reported, otherwise the sum over the devices that report both."""
    if figures.hbm_used_bytes is not None and figures.hbm_total_bytes:
        return float(figures.hbm_used_bytes), float(figures.hbm_total_bytes)
    devices = _hbm_of_devices(figures)
    return (sum(used for used, _ in devices), sum(total for _, total in devices)) if devices else None


MXU = FigureSpec(
    key="mxu",
    fields=("mxu_utilization_ratio", "mxu_method"),
    label="MXU",
    title="MXU",
    about="Utilization of the matrix units; the label mxu_method of tpu_worker_info names the method.",
    origin="device",
    value=attrgetter("mxu_utilization_ratio"),
    method=lambda figures: figures.mxu_method,
    worse="low",
    compared=True,
    level=1,
    always_shown=True,
    metric="tpu_mxu_utilization_ratio",
    from_monitor=True,
)
IDLE = FigureSpec(
    key="idle",
    fields=("idle_ratio",),
    label="TPU idle",
    title="IDLE",
    about="Share of the window in which no op ran, as on XProf's overview page.",
    origin="device",
    value=attrgetter("idle_ratio"),
    of_training=True,
    compared=True,
    always_shown=True,
    metric="tpu_idle_ratio",
    from_monitor=True,
)
DUTY = FigureSpec(
    key="duty",
    fields=("duty_cycle_ratio",),
    label="Duty cycle",
    about="Share of time in which ops ran, as in XProf's op profile.",
    origin="device",
    value=attrgetter("duty_cycle_ratio"),
    worse="low",
    of_training=True,
    metric="tpu_duty_cycle_ratio",
)
FLOPS = FigureSpec(
    key="flops",
    fields=("flops_utilization_ratio",),
    label="FLOPS utilization",
    about="FLOP/s while ops run, relative to the peak, as in XProf's op profile.",
    origin="device",
    value=attrgetter("flops_utilization_ratio"),
    worse="low",
    metric="tpu_flops_utilization_ratio",
)
HBM_BANDWIDTH = FigureSpec(
    key="hbm-bandwidth",
    fields=("hbm_bandwidth_utilization_ratio",),
    label="HBM bandwidth",
    about="HBM bandwidth that ops use, relative to the peak, as in XProf's op profile.",
    origin="device",
    value=attrgetter("hbm_bandwidth_utilization_ratio"),
    metric="tpu_hbm_bandwidth_utilization_ratio",
)
STEP = FigureSpec(
    key="step",
    fields=("step_time_s", "step_source", "step_name"),
    label="Step time",
    title="STEP ms",
    about="Average step time in the window; the label step_source of tpu_worker_info says what counts as a step.",
    origin="steps",
    value=_average("step_time_s"),
    range=_ends("step_time_s"),
    method=lambda figures: figures.step_source,
    subject=lambda figures: figures.step_name,
    unit="seconds",
    of_training=True,
    compared=True,
    always_shown=True,
    metric="tpu_step_time_seconds",
    from_monitor=True,
)
INFEED = FigureSpec(
    key="infeed",
    fields=("infeed_ratio",),
    label="Infeed",
    title="INFEED",
    about="Average share of the step time spent waiting for infeed; absent for programs without infeed.",
    origin="device",
    value=_average("infeed_ratio"),
    range=_ends("infeed_ratio"),
    of_training=True,
    compared=True,
    metric="tpu_infeed_ratio",
    from_monitor=True,
)
PARTS = FigureSpec(
    key="parts",
    fields=("step_parts_s",),
    label="Step parts",
    about="Time that an average step spends in each kind of op, and idle.",
    origin="steps",
    of_training=True,
)
HBM = FigureSpec(
    key="hbm",
    fields=("hbm_used_bytes", "hbm_total_bytes"),
    label="HBM",
    title="HBM",
    about="HBM used of total on the fullest device.",
    origin="runtime",
    value=_hbm_ratio,
    size_bytes=_hbm_bytes,
    compared=True,
)

OP_TIME = FigureSpec(
    key="op-time",
    fields=("op_time_ratios",),
    label="Time by kind of op",
    about="Share of the window by kind of op; with tpu_idle_ratio they add up to 1.",
    origin="device",
)
PADDING = FigureSpec(
    key="padding",
    fields=("matmul_padding_ratio",),
    label="Padding of matrix ops",
    about="Share of the matrix units' work that is padding, by the shapes of the ops.",
    origin="device",
    value=attrgetter("matmul_padding_ratio"),
)
BETWEEN_PROGRAMS = FigureSpec(
    key="between-programs",
    fields=("idle_between_programs_ratio",),
    label="Idle between programs",
    about="Share of the window in which no program ran; in the rest of idle time a program ran, but none of its ops.",
    origin="device",
    value=attrgetter("idle_between_programs_ratio"),
    of_training=True,
)
BARRIER = FigureSpec(
    key="barrier",
    fields=("barrier_ratio",),
    label="Barriers",
    about="Share of a step in which cores wait at barriers.",
    origin="device",
    value=attrgetter("barrier_ratio"),
    of_training=True,
)
DEBUG_PRINT = FigureSpec(
    key="debug-print",
    fields=("debug_print_ratio",),
    label="Debug print",
    about="Share of a step in which the device prints.",
    origin="device",
    value=attrgetter("debug_print_ratio"),
    of_training=True,
)
COMPILING = FigureSpec(
    key="compiling",
    fields=("compile_ratio",),
    label="Compiling",
    about="Share of the window in which the host traced or compiled functions.",
    origin="host",
    value=attrgetter("compile_ratio"),
    metric="tpu_compile_ratio",
)
INPUT_WAIT = FigureSpec(
    key="input-wait",
    fields=("input_wait_ratio",),
    label="Waiting for input",
    about="Share of its steps, or of the window without steps, in which the training thread waited for input.",
    origin="host",
    value=attrgetter("input_wait_ratio"),
    of_training=True,
)
CALLBACKS = FigureSpec(
    key="callbacks",
    fields=("callback_ratio",),
    label="Callbacks",
    about="Share of the window in which programs on the host's CPU called Python. Only of JAX without a TPU.",
    origin="host",
    value=attrgetter("callback_ratio"),
)

FIGURES: tuple[FigureSpec, ...] = (MXU, IDLE, DUTY, FLOPS, HBM_BANDWIDTH, STEP, *SERVER_FIGURES, INFEED, PARTS, HBM,
                               OP_TIME, PADDING, BETWEEN_PROGRAMS, BARRIER, DEBUG_PRINT,
                               COMPILING, INPUT_WAIT, CALLBACKS)  # fmt: skip
"""Every figure, in the order of CSV columns."""

DEVICE_FIELDS: tuple[str, ...] = tuple(figure.fields[0] for figure in FIGURES if figure.origin == "device")
"""Fields that are computed from a device's ops: without a device in the trace all are absent, for one reason."""

TRACE_FIELDS: tuple[str, ...] = tuple(
    figure.fields[0] for figure in FIGURES if figure.origin in {"device", "steps", "host"} and not figure.from_monitor
)
"""Fields that only traces show."""

COMPARED: Mapping[str, FigureSpec] = {figure.key: figure for figure in FIGURES if figure.compared}
"""The figures by which workers are compared, by key."""

NO_TPU = "no TPU in its trace"
"""Why a worker on a CPU has no figures of devices."""

WITHOUT_TPU = (
    f"N{NO_TPU[1:]}, so there is no {', '.join(figure.label for figure in COMPARED.values() if figure.of_device)}"
)
"""What a worker on a CPU cannot have."""

WORST, NAME = "worst", "name"

SORT_KEYS: tuple[str, ...] = (WORST, NAME, *COMPARED)
"""Keys that `--sort` accepts and the live view sorts by. A figure: its worse end first, workers without it last."""

STEP_PARTS: Mapping[str, str] = {
    "high_flops_compute": "Compute, high FLOPS",
    "low_flops_compute": "Compute, other",
    "async_wait": "Waiting for copies",
    "infeed": "Infeed",
    "outfeed": "Outfeed",
    "collective": "Collectives",
    "host_transfer": "Host transfer",
    "input_wait": "Waiting for input",
    "idle": "Idle",
}
"""Labels of the parts of a step, by the keys of `Figures.step_parts_s`."""

OP_KINDS: Mapping[str, str] = {
    "compute": "Compute",
    "collective": "Collectives",
    "infeed": "Infeed",
    "outfeed": "Outfeed",
    "host_transfer": "Host transfer",
    "async_wait": "Waiting for copies",
    "data_shuffle": "Moving data",
    "sparsecore": "SparseCore",
}
"""Labels of the kinds of ops, by the keys of `Figures.op_time_ratios`."""


def values(figures: Figures) -> Mapping[str, float | None]:
    """The compared figures, by key."""
    return {key: figure.value(figures) for key, figure in COMPARED.items()}


def applicable_figures(samples: Iterable[Sample]) -> list[FigureSpec]:
    """The compared figures that say something of some of these workers' jobs: of training while none is known."""
    kinds = {(serves(sample), trains(sample), is_on_cpu(sample)): sample for sample in samples}
    return [
        figure
        for figure in COMPARED.values()
        if (any(map(figure.applies_to, kinds.values())) if kinds else not figure.of_server)
    ]


def of_job(sample: Sample) -> Sample:
    """The sample with the figures that screens show of its job: those of a server, or those of training."""
    figures = sample.figures
    if figures.server is None or (serves(sample) and trains(sample)):
        return sample
    gone = [figure for figure in FIGURES if (figure.of_server if trains(sample) else figure.of_training)]
    names = {name.partition(".")[0] for figure in gone for name in figure.fields}
    reasons = {figure.name for figure in gone}
    absent = {name: why for name, why in figures.absent.items() if name not in reasons}
    return replace(sample, figures=replace(figures, **dict.fromkeys(names), absent=absent))


def of_level(figures: Figures, level: int) -> Figures:
    """Only the figures of a monitoring level; the others are absent, without a reason."""
    if level > 1:
        return figures
    names = {name for figure in FIGURES if figure.level <= level for name in figure.fields}
    kept = {name: getattr(figures, name) for name in names}
    return Figures(**kept, absent={name: why for name, why in figures.absent.items() if name in names})


def csv_columns() -> Mapping[str, Callable[[Figures], Scalar]]:
    """The CSV columns of all figures, by name: one per field, per number of a spread, or per part of a step."""
    columns: dict[str, Callable[[Figures], Scalar]] = {}
    for name in dict.fromkeys(name for figure in FIGURES for name in figure.fields):
        new = _columns(name)
        assert columns.keys().isdisjoint(new), f"{name}: two columns with one name"
        columns.update(new)
    return columns


def csv_numbers() -> frozenset[str]:
    """Names of the CSV columns of figures that are numbers."""
    names = (name for figure in FIGURES for name in figure.fields)
    return frozenset(column for name in names if not any(map(_is_text, _kinds(name))) for column in _columns(name))


_hints = cache(get_type_hints)  # it evaluates the annotations of all fields


def _kinds(name: str) -> set[Any]:
    """The types of a field's values."""
    owner = ServerFigures if name.startswith("server.") else Figures
    return {*get_args(_hints(owner)[name.removeprefix("server.")])}


def _is_text(kind: Any) -> bool:
    return kind is str or get_origin(kind) is Literal


def _columns(name: str) -> Mapping[str, Callable[[Figures], Scalar]]:
    kinds = _kinds(name)
    stem, _, unit = name.replace(".", "_").rpartition("_")
    if Percentiles in kinds:
        return {f"{stem}_{key}_{unit}": _item(name, key) for key in ("p50", "p95")}
    if name == "server.families":
        return {
            f"server_{family}_{column}": _of_family(family, path)
            for family in get_args(ProgramFamily)
            for column, path in _FAMILY_COLUMNS.items()
        }
    if StepTimes in kinds:
        numbers = {f"{stem}_{key}_{unit}": _item(name, key) for key in ("avg", "min", "max", "stddev")}
        return {**numbers, f"{stem.removesuffix('_time')}_count": _item(name, "count")}
    if Spread in kinds:
        return {f"{stem}_{key}_{unit}": _item(name, key) for key in ("avg", "min", "max")}
    if name == "step_parts_s":
        return {f"step_part_{part}_s": _key(name, part) for part in STEP_PARTS}
    if name == "op_time_ratios":
        return {f"op_time_{kind}_ratio": _key(name, kind) for kind in OP_KINDS}
    return {name.replace(".", "_"): _at(name)}


_FAMILY_COLUMNS: Mapping[str, str] = {
    "executions_per_s": "executions_per_s",
    "duration_p50_s": "duration_s.p50",
    "duration_p95_s": "duration_s.p95",
    "time_ratio": "time_ratio",
}
"""Fields of `FamilyFigures` by column."""


def _at(path: str) -> Callable[[Any], Scalar]:
    """Reads what is at the end of a path of fields; None where any of them is None."""

    def read(value: Any) -> Scalar:
        for name in path.split("."):
            value = getattr(value, name, None)
        at: Scalar = value
        return at

    return read


def _of_family(family: str, path: str) -> Callable[[Figures], Scalar]:
    read = _at(path)
    return lambda figures: read(next((each for each in families_of(figures) if each.family == family), None))


def _item(name: str, key: str) -> Callable[[Figures], Scalar]:
    return _at(f"{name}.{key}")


def _key(name: str, key: str) -> Callable[[Figures], Scalar]:
    return lambda figures: (getattr(figures, name) or {}).get(key)


class Counted(NamedTuple):
    """One of libtpu's metrics.

    Attributes:
        name: libtpu's.
        about: what it counts, for people.
    """

    name: str
    about: str


def _latency(what: str, about: str) -> Counted:
    return Counted(f"megascale.{what}.microsecond.cumulative.distribution", about)


def _count(what: str, about: str) -> Counted:
    return Counted(f"megascale.{what}.cumulative.count", about)


RUNTIME_LATENCIES: Mapping[str, Counted] = {
    "dcn_transfer": _latency("dcn_transfer_latencies", "Times of transfers to other slices"),
    "dcn_inbound_transfer": _latency("dcn_inbound_transfer_latencies", "Times of transfers from other slices"),
    "collective": _latency("collective_end_to_end_latencies", "Times of collectives between slices"),
    "host_to_device_transfer": _latency("host_to_device_transfer_latencies", "Times of transfers from host to device"),
    "device_to_host_transfer": _latency("device_to_host_transfer_latencies", "Times of transfers from device to host"),
    "host_compute": _latency("mxla_compute_latencies", "Times that hosts compute for collectives between slices"),
    "tcp_min_rtt": _latency("grpc_tcp_min_rtt", "Round-trip times between slices, TCP's minimum"),
}
"""Distributions of times."""

RUNTIME_COUNTS: Mapping[str, Counted] = {
    "tcp_sent_packets": _count("grpc_tcp_packets_sent", "TCP packets sent to other slices"),
    "tcp_retransmitted_packets": _count("grpc_tcp_packets_retransmitted", "TCP packets sent again"),
    "tcp_sent_bytes": _count("grpc_tcp_bytes_sent", "Bytes sent to other slices"),
    "tcp_retransmitted_bytes": _count("grpc_tcp_bytes_retransmitted", "Bytes sent again"),
}
"""Counts."""

"""The figures of one worker. An absent figure is None, never 0.

Names end in their unit: ratios 0-1, times in seconds, sizes in bytes. `figure_table` says how each one is shown.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from typing import Annotated, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from tpumon.model.documents import at_most

MxuMethod = Literal["server", "counter", "perf-counters", "flops"]
StepSource = Literal["server", "steps", "modules", "host"]

ProgramFamily = Literal["prefill", "decode", "step", "sample", "move", "other"]
"""Families of a server's programs, by their names: prompts, tokens, both in one program, the choice of the next token,
moves of the cache; all else."""

_MOST_FAMILIES = 6
MOST_SIZES = 64
"""Sizes of a family of programs, at most."""
_MOST_ROWS = 1024
MOST_FUNCTIONS = 20
MOST_PROGRAMS = 32
MOST_OPS = 100
"""Top operations of a sample, at most, and categories."""

_EMPTY_DOWN_TO = 0.51  # of the lower bound of the first bucket with a value


class Spread(Struct, frozen=True, kw_only=True):
    """A ratio over the steps of a window."""

    avg: float
    min: float
    max: float


class StepTimes(Struct, frozen=True, kw_only=True):
    """Step durations in seconds over the steps of a window; `stddev` and `count` where the source reports them."""

    avg: float
    min: float
    max: float
    stddev: float | None = None
    count: int | None = None


class Percentiles(Struct, frozen=True, kw_only=True):
    """Median and 95th percentile of some times, in seconds."""

    p50: float
    p95: float


class Distribution(Struct, frozen=True, kw_only=True):
    """Histogram of values since a process started.

    Attributes:
        bounds: upper bounds of the buckets, ascending.
        counts: values in each bucket, not cumulative; one more than bounds, for values above the last one.
        total: sum of the values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    def buckets(self) -> list[tuple[float, int]]:
        """Upper bounds with the number of values up to each, infinity last; most empty ones at the start are left out.

        Which are left out may differ from worker to worker: sums over workers stay right, because a missing one counts
        as 0. One in the middle or at the end would count as 0, too, so none is left out there. Some empty ones stay,
        down to half of the smallest value, so that a value below all others seldom makes a new series, whose first
        value `rate` does not count.
        """
        used = next((place for place, count in enumerate(self.counts) if count), len(self.bounds))
        lowest = self.bounds[max(used - 1, 0)] * _EMPTY_DOWN_TO
        first = bisect_left(self.bounds, lowest, hi=used)
        sums = accumulate(self.counts[first:])
        return list(zip((*self.bounds[first:], math.inf), sums, strict=True))


class FunctionFigures(Struct, frozen=True, kw_only=True):
    """One function of the program in the window; all programs compiled from it, one for each shape, count as one.

    Attributes:
        name: name in the trace, without the program's number: jit_f of a module, f of a call on the host.
        runs: number of runs, on the core or thread that ran it most often.
        period_s: time from start to start; None if it ran once.
        duration_s: duration of a run on a device; of a call where only the host shows it.
        device_time_ratio: its share of the time that all functions took on devices; None if the trace does not say.
        programs: number of programs compiled from it that ran, on the core that ran most; None where only calls show.
    """

    name: str
    runs: int
    period_s: Percentiles | None = None
    duration_s: Percentiles | None = None
    device_time_ratio: float | None = None
    programs: int | None = None


class OpFigures(Struct, frozen=True, kw_only=True):
    """One operation in the window, on all cores of a worker together; as in `tpumon report --section ops`.

    Attributes:
        name: its name in the program, at most 100 characters.
        program: its program, with the number, such as "jit_step(42)".
        self_time_s: time in it, without the operations within.
        time_ratio: the same as a share of the time of all cores, idle time included.
        flops_rate: FLOPs per second of its time.
        flops_utilization_ratio: the same relative to the peak; None if that is not known.
        hbm_rate: bytes of HBM per second of its time; None if the trace does not say.
        hbm_utilization_ratio: the same relative to the peak.
    """

    name: str
    program: str
    category: str
    self_time_s: float
    time_ratio: float
    occurrences: int
    flops_rate: float | None = None
    flops_utilization_ratio: float | None = None
    hbm_rate: float | None = None
    hbm_utilization_ratio: float | None = None


class OpCategoryFigures(Struct, frozen=True, kw_only=True):
    """The operations of one category in the window; as in `tpumon report --section ops`.

    Attributes:
        ops: number of different operations; the other fields are as in `ops`.
    """

    name: str
    ops: int
    self_time_s: float
    time_ratio: float
    occurrences: int


class CoreFigures(Struct, frozen=True, kw_only=True):
    """One core of a worker, from a trace; meanings as in `Figures`.

    Attributes:
        chip: number of the chip on its host, or in the slice if the trace covers several hosts.
        core: number of the core on its chip.
        collective_ratio: share of its window in collectives, waiting for other cores included.
    """

    chip: int | None = None
    core: int | None = None
    idle_ratio: float | None = None
    flops_utilization_ratio: float | None = None
    infeed_ratio: float | None = None
    step_time_s: float | None = None
    collective_ratio: float | None = None


class DeviceFigures(Struct, frozen=True, kw_only=True):
    """One device, from libtpu's runtime metric service; docs/metrics.md names the metrics of the service.

    Attributes:
        device: its ID in the slice.
        runtime_hlo_queue_size: sum over the device's cores.
    """

    device: str
    hbm_used_bytes: int | None = None
    hbm_total_bytes: int | None = None
    runtime_duty_cycle_ratio: float | None = None
    runtime_hbm_bandwidth_utilization_ratio: float | None = None
    runtime_tensorcore_idle_s: float | None = None
    runtime_hlo_queue_size: int | None = None


class RuntimeFigures(Struct, frozen=True, kw_only=True):
    """The runtime of one worker, from libtpu's runtime metric service.

    Attributes:
        uptime_s: time since it started.
        megascale_error: 1 if it reports an error of the multislice network, otherwise 0.
        slice_error: 1 if it reports an error of the slice, otherwise 0.
    """

    uptime_s: float | None = None
    megascale_error: float | None = None
    slice_error: float | None = None


class FamilyFigures(Struct, frozen=True, kw_only=True):
    """The programs of one family, on the core that ran most of them.

    Attributes:
        executions_per_s: runs that begin in the traced time, per second of it.
        duration_s: time of a run on the device; of a call where only the host shows it.
        time_ratio: share of the time of all programs.
        sizes: sizes seen (tokens or requests, padded), ascending; empty where the trace does not tell.
    """

    family: ProgramFamily
    executions_per_s: float | None = None
    duration_s: Percentiles | None = None
    time_ratio: float | None = None
    sizes: Annotated[tuple[int, ...], at_most(MOST_SIZES)] = ()


class ServerFigures(Struct, frozen=True, kw_only=True):
    """The figures of one server, over its samples of the last two minutes.

    Attributes:
        busy_ratio: time in programs over traced time, empty windows included.
        families: by family, the one with most time first.
        requests_running, requests_waiting: as the server counts them now.
        engines: how many engines it counts together; None: one, or it does not say.
        tokens_per_s: tokens that it generated, per second.
        tokens_per_s_per_chip: the same for each chip of this worker.
        prompt_tokens_per_s: tokens of prompts that it took in, per second.
        time_to_first_token_s: of the requests since the figures before.
        kv_used_ratio: share of its cache of keys and values that is in use.
        preemptions_per_s: requests put back for want of cache, per second.
        device_s_per_token: time in programs on this worker's cores, summed over them, per generated token.
        device_time_source: whether that time is of the programs in traces, or from the duty cycle of libtpu.
        padding_ratio: share of the computed tokens that are padding up to the next compiled size.
        host_gap_ratio: share of the time with requests in which no program ran.
        kv_pool_hbm_ratio: share of HBM that its cache was given; None so far, as no server tells its bytes.
    """

    busy_ratio: float | None = None
    families: Annotated[tuple[FamilyFigures, ...], at_most(_MOST_FAMILIES)] = ()
    requests_running: float | None = None
    requests_waiting: float | None = None
    engines: int | None = None
    tokens_per_s: float | None = None
    tokens_per_s_per_chip: float | None = None
    prompt_tokens_per_s: float | None = None
    time_to_first_token_s: Percentiles | None = None
    kv_used_ratio: float | None = None
    preemptions_per_s: float | None = None
    device_s_per_token: float | None = None
    device_time_source: Literal["programs", "libtpu"] | None = None
    padding_ratio: float | None = None
    host_gap_ratio: float | None = None
    kv_pool_hbm_ratio: float | None = None

    @property
    def requests(self) -> float | None:
        """Requests that run and that wait; None: not known."""
        return None if self.requests_running is None else self.requests_running + (self.requests_waiting or 0.0)


class FamilyRuns(Struct, frozen=True, kw_only=True):
    """The runs of one family of programs in one window, from which the figures of several windows are made.

    Attributes:
        durations_s: of each run that the window shows whole, on the core that ran most of them.
        sizes: as in `FamilyFigures`.
    """

    family: ProgramFamily
    durations_s: tuple[float, ...]
    sizes: tuple[int, ...] = ()


class TracedPrograms(Struct, frozen=True, kw_only=True):
    """A server's programs in one trace.

    Attributes:
        families: by family.
        busy_s: time in programs of any kind, on the core with most; None if only calls on the host are shown.
        window_s: for how long the profiler looked, also before the first event and after the last one.
        real_tokens: tokens in the batches that the host annotates; None if it annotates none.
        padded_tokens: the sizes to which these were padded; None if they are not known.
        runs_model: whether programs that run a model are among them; others alone may be another job's.
    """

    families: Annotated[tuple[FamilyRuns, ...], at_most(_MOST_FAMILIES)] = ()
    busy_s: float | None = None
    window_s: float = 0.0
    real_tokens: int | None = None
    padded_tokens: int | None = None
    runs_model: bool = True


class Figures(Struct, frozen=True, kw_only=True):
    """The figures of one worker in one window. Those from traces follow XProf's definitions; see docs/figures.md.

    Attributes:
        mxu_utilization_ratio: utilization of the matrix units.
        mxu_method: how it was measured.
        idle_ratio: share of the window in which no op ran.
        idle_between_programs_ratio: share of the window in which no program ran; in the rest of idle time a program
            ran, but none of its ops.
        duty_cycle_ratio: share of the time in which a chip ran ops, as in XProf's op profile.
        flops_utilization_ratio: FLOP/s relative to the peak, idle time excluded.
        hbm_bandwidth_utilization_ratio: HBM traffic of the ops relative to the peak bandwidth.
        step_time_s: durations of the steps; `stddev` and `count` only from traces.
        step_source: what counts as a step.
        step_name: the function or annotation that counts as the step; None if markers or the server define the steps.
        functions: what the program ran, heaviest first, at most 20.
        infeed_ratio: share of a step spent waiting for infeed.
        step_parts_s: mean time per step by part; the keys are those of `figure_table.STEP_PARTS`.
        step_work_s: own work of an average step: time in ops other than collectives and infeed, on the core with most.
        op_time_ratios: share of the window by kind of op; the keys are those of `figure_table.OP_KINDS`. Together
            with `idle_ratio` they add up to 1.
        matmul_padding_ratio: share of the matrix units' work that is padding, by the shapes of the ops.
        barrier_ratio: share of a step in which cores wait at barriers.
        debug_print_ratio: share of a step in which the device prints.
        compile_ratio: share of the window in which the host traced or compiled functions.
        input_wait_ratio: share of its steps, or of the window without steps, in which the training thread waited for
            input.
        callback_ratio: share of the window in which programs on the host's CPU called Python.
        programs: ids of the compiled programs that ran, heaviest first, at most 32.
        ops: the operations that took most time, the longest first; None unless they are asked for (`--with-ops N`).
        op_categories: the categories of operations that took most time, the longest first; None like `ops`.
        per_core: one row per core; empty without a trace.
        hbm_used_bytes, hbm_total_bytes: HBM of all devices of the worker; None unless every device reports it.
        devices: one row per device, from the runtime metric service.
        runtime: the runtime of the worker.
        runtime_latencies: by the keys of RUNTIME_LATENCIES; not part of the JSON.
        runtime_counts: by the keys of RUNTIME_COUNTS; not part of the JSON.
        server: figures of a server of models; None of anything else.
        absent: the reason for each requested figure that is None, by field name.
        traced_programs: what the window shows of a server's programs; not part of the JSON.
        step_durations_s: duration of each step of the window; not part of the JSON.
    """

    mxu_utilization_ratio: float | None = None
    mxu_method: MxuMethod | None = None
    idle_ratio: float | None = None
    duty_cycle_ratio: float | None = None
    flops_utilization_ratio: float | None = None
    hbm_bandwidth_utilization_ratio: float | None = None
    step_time_s: StepTimes | None = None
    step_source: StepSource | None = None
    step_name: str | None = None
    functions: Annotated[tuple[FunctionFigures, ...], at_most(MOST_FUNCTIONS)] = ()
    infeed_ratio: Spread | None = None
    step_parts_s: Mapping[str, float] | None = None
    op_time_ratios: Mapping[str, float] | None = None
    step_work_s: float | None = None
    matmul_padding_ratio: float | None = None
    idle_between_programs_ratio: float | None = None
    barrier_ratio: float | None = None
    debug_print_ratio: float | None = None
    compile_ratio: float | None = None
    input_wait_ratio: float | None = None
    callback_ratio: float | None = None
    programs: Annotated[tuple[str, ...], at_most(MOST_PROGRAMS)] = ()
    ops: Annotated[tuple[OpFigures, ...] | None, at_most(MOST_OPS)] = None
    op_categories: Annotated[tuple[OpCategoryFigures, ...] | None, at_most(MOST_OPS)] = None
    per_core: Annotated[tuple[CoreFigures, ...], at_most(_MOST_ROWS)] = ()
    hbm_used_bytes: int | None = None
    hbm_total_bytes: int | None = None
    devices: Annotated[tuple[DeviceFigures, ...], at_most(_MOST_ROWS)] = ()
    runtime: RuntimeFigures = field(default_factory=RuntimeFigures)
    server: ServerFigures | None = None
    absent: Mapping[str, str] = field(default_factory=dict)
    traced_programs: TracedPrograms | None = None
    runtime_latencies: Mapping[str, Distribution] = field(default_factory=dict)
    runtime_counts: Mapping[str, float] = field(default_factory=dict)
    step_durations_s: tuple[float, ...] = ()

    @property
    def serves(self) -> bool:
        """True if the window shows programs of a server that run its model."""
        return self.traced_programs is not None and self.traced_programs.runs_model

    @property
    def runtime_duty_cycle_ratio(self) -> float | None:
        """The runtime's duty cycle: the mean over the devices that report it."""
        known = [ratio for row in self.devices if (ratio := row.runtime_duty_cycle_ratio) is not None]
        return sum(known) / len(known) if known else None

    @property
    def runtime_hlo_queue_size(self) -> int | None:
        """Programs that wait for its devices; None: not known."""
        known = [size for row in self.devices if (size := row.runtime_hlo_queue_size) is not None]
        return sum(known) if known else None

    def with_ops(self, most: int) -> Figures:
        """The figures with so many top operations and categories at most, 0: as if they were not asked for."""
        if most and max(len(self.ops or ()), len(self.op_categories or ())) <= most:
            return self
        if not most:
            if self.ops is None and self.op_categories is None and "ops" not in self.absent:
                return self
            absent = {name: why for name, why in self.absent.items() if name != "ops"}
            return replace(self, ops=None, op_categories=None, absent=absent)
        return replace(
            self,
            ops=None if self.ops is None else self.ops[:most],
            op_categories=None if self.op_categories is None else self.op_categories[:most],
        )


NO_STEP = "no step: "
"""Begin of the reasons that a longer window would not change."""

SHARES_OF_WINDOW = (
    *("mxu_utilization_ratio", "idle_ratio", "duty_cycle_ratio", "flops_utilization_ratio"),
    *("hbm_bandwidth_utilization_ratio", "op_time_ratios", "idle_between_programs_ratio"),
)
"""Shares of the time that a trace covers, or rates in it: they need a whole step, or most of a window."""

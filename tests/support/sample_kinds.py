"""Samples of every kind, for golden files: the same at every run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from msgspec.structs import replace

from support.samples import failed_sample, sample
from tpumon.model import (
    Figures,
    FunctionFigures,
    JobKind,
    OpCategoryFigures,
    OpFigures,
    Percentiles,
    Process,
    Sample,
    Spread,
    StepTimes,
    Target,
    Workers,
)
from tpumon.model.figure_table import DEVICE_FIELDS, FIGURES
from tpumon.model.figures import FamilyFigures, ServerFigures

NOW = 1_769_000_000.0  # 2026-01-21 12:53:20 UTC
GIB = 1 << 30
ZEROS = {
    name: 0.0
    for name, kind in get_type_hints(Figures).items()
    if float in get_args(kind) and any(name in figure.fields for figure in FIGURES)
}
"""Every figure that is a plain number."""


def _usual(worker: str) -> dict[str, Any]:
    """Every default is written here, so that golden files change only with what they show."""
    return {
        "address": f"{worker}:9999",
        "time_unix_s": NOW - 3.0,
        "window_s": 1.0,
        "took_s": 1.25,
        "interval_s": 10.0,
        "source": None,
    }


def traced(worker: str = "trace", **fields) -> Sample:
    """A trace of a TPU, with every figure that one gives, and the runtime's own; `fields` replace some."""
    answered = {
        "traced_s": 0.25,
        "source": "trace",
        "slice": "slice-0",
        "device_type": "TPU v6 Lite",
        "cores": 2,
        "mxu_utilization_ratio": 0.425,
        "mxu_method": "counter",
        "idle_ratio": 0.081,
        "duty_cycle_ratio": 0.919,
        "flops_utilization_ratio": 0.326,
        "hbm_bandwidth_utilization_ratio": 0.173,
        "step_time_s": StepTimes(avg=0.0627, min=0.062, max=0.0634, stddev=0.0004, count=8),
        "step_source": "steps",
        "step_durations_s": (0.062, 0.0628, 0.0634),
        "infeed_ratio": Spread(avg=0.15, min=0.125, max=0.25),
        "step_parts_s": {
            "high_flops_compute": 0.04,
            "low_flops_compute": 0.005,
            "infeed": 0.009,
            "outfeed": 0.0,
            "collective": 0.0025,
            "host_transfer": 0.0,
            "idle": 0.0062,
        },
        "op_time_ratios": {
            "compute": 0.715,
            "collective": 0.04,
            "infeed": 0.144,
            "outfeed": 0.0,
            "host_transfer": 0.0,
            "async_wait": 0.01,
            "data_shuffle": 0.01,
            "sparsecore": 0.0,
        },
        "matmul_padding_ratio": 0.02,
        "input_wait_ratio": 0.125,
        "programs": ("7310467204561120160",),
        "per_core": tuple(
            {
                "chip": chip,
                "core": 0,
                "idle_ratio": 0.08 + chip / 100,
                "flops_utilization_ratio": 0.3 + chip / 100,
                "infeed_ratio": 0.15,
                "step_time_s": 0.0627,
                "collective_ratio": 0.04,
            }
            for chip in range(2)
        ),
        "hbm_used_bytes": 36 * GIB,
        "hbm_total_bytes": 64 * GIB,
        "devices": tuple(
            {
                "device": str(device),
                "hbm_used_bytes": 18 * GIB,
                "hbm_total_bytes": 32 * GIB,
                "runtime_duty_cycle_ratio": 0.875,
            }
            for device in range(2)
        ),
        "runtime": {"uptime_s": 3600.0},
    }
    return sample(worker, **(_usual(worker) | ZEROS | answered | fields))


def failed(worker: str, reason: str = "unavailable", message: str = "connection refused", **fields) -> Sample:
    """A query that the profiler did not answer."""
    return failed_sample(worker, reason, message, **(_usual(worker) | fields))


def monitored(worker: str = "monitor", **fields) -> Sample:
    """An answer of the Monitor RPC at level 2."""
    answered = {
        "source": "monitor",
        "device_type": "TPU v2",
        "cores": 8,
        "mxu_utilization_ratio": 0.107,
        "mxu_method": "server",
        "idle_ratio": 0.00091,
        "step_time_s": StepTimes(avg=0.0908, min=0.0898, max=0.0922),
        "step_source": "server",
        "infeed_ratio": Spread(avg=0.875, min=0.872, max=0.878),
    }
    return sample(worker, **(_usual(worker) | answered | fields))


def served(worker: str = "server", **figures) -> Sample:
    """A server of models, which decodes most of the time; `figures` are those of `ServerFigures` that differ."""
    usual = {
        "busy_ratio": 0.4125,
        "families": (
            FamilyFigures(
                family="decode",
                executions_per_s=24.5,
                duration_s=Percentiles(p50=0.0125, p95=0.0138),
                time_ratio=0.75,
                sizes=(8, 16, 32),
            ),
            FamilyFigures(
                family="prefill",
                executions_per_s=1.5,
                duration_s=Percentiles(p50=0.0625, p95=0.125),
                time_ratio=0.25,
                sizes=(256,),
            ),
        ),
        "requests_running": 12.0,
        "requests_waiting": 3.0,
        "tokens_per_s": 812.5,
        "tokens_per_s_per_chip": 406.25,
        "prompt_tokens_per_s": 3250.0,
        "time_to_first_token_s": Percentiles(p50=0.25, p95=0.75),
        "kv_used_ratio": 0.625,
        "preemptions_per_s": 0.0,
        "device_s_per_token": 0.0005,
        "padding_ratio": 0.4375,
        "host_gap_ratio": 0.125,
    }
    kind = JobKind(kind="serving", evidence=("a server of models in its process tree",), since_unix_s=NOW - 3 * 3600.0)
    return traced(
        worker,
        job_kind=kind,
        slice=None,
        mxu_utilization_ratio=0.0625,
        idle_ratio=0.07,
        step_time_s=StepTimes(avg=0.0134, min=0.0125, max=0.0625, stddev=0.004, count=8),
        step_source="modules",
        step_name="jit__generate_jit",
        step_durations_s=(),
        infeed_ratio=None,
        input_wait_ratio=None,
        hbm_used_bytes=60 * GIB,
        devices=tuple(
            {
                "device": str(device),
                "hbm_used_bytes": 30 * GIB,
                "hbm_total_bytes": 32 * GIB,
                "runtime_duty_cycle_ratio": 0.875,
            }
            for device in range(2)
        ),
        server=ServerFigures(**(usual | figures)),
        absent={"infeed_ratio": "no infeed ops"},
    )


KINDS: Mapping[str, Sample] = {
    "trace": traced(),
    # Without step markers and the counter: methods other than the usual ones are named.
    "fallbacks": traced(
        "fallbacks",
        mxu_method="flops",
        step_source="modules",
        step_name="jit_train_step",
        functions=(
            FunctionFigures(
                name="jit_train_step",
                runs=9,
                period_s=Percentiles(p50=0.0625, p95=0.0634),
                duration_s=Percentiles(p50=0.05, p95=0.055),
                device_time_ratio=0.96875,
            ),
            FunctionFigures(
                name="jit_init", runs=1, duration_s=Percentiles(p50=0.001, p95=0.001), device_time_ratio=0.03125
            ),
        ),
        infeed_ratio=None,
        absent={"infeed_ratio": "no infeed ops"},
        warnings=("12 events were dropped", "step time: the period of jit_train_step"),
    ),
    "monitor": monitored(),
    # Level 1 gives type and matrix units alone.
    "level-1": monitored(
        "level-1",
        cores=None,
        mxu_utilization_ratio=0.0,
        idle_ratio=None,
        step_time_s=None,
        step_source=None,
        infeed_ratio=None,
    ),
    "server-text": monitored("server-text", server_text="TPU type: TPU v3\nLaid out: by the server"),
    # A job on CPUs: only what its host's threads show.
    "host": sample(
        "host",
        **_usual("host") | {"source": "trace"},
        traced_s=0.3,
        step_time_s=StepTimes(avg=1.95, min=1.5, max=2.25, stddev=0.25, count=3),
        step_source="host",
        step_name="train_step",
        absent=dict.fromkeys(("mxu_utilization_ratio", "idle_ratio", "infeed_ratio"), "no TPU in the trace"),
    ),
    "simulated": traced("simulated", simulated=True),
    "server": served(),
    # Its own metrics are not there.
    "server-alone": served(
        "server-alone",
        **dict.fromkeys(
            ("requests_running", "requests_waiting", "tokens_per_s", "prompt_tokens_per_s", "time_to_first_token_s")
        ),
        tokens_per_s_per_chip=None,
        **dict.fromkeys(
            ("kv_used_ratio", "preemptions_per_s", "device_s_per_token", "padding_ratio", "host_gap_ratio")
        ),
    ),
    # Someone else profiles, but the runtime metric service answers.
    "runtime": failed(
        "runtime",
        "busy",
        "Another profiling session active.",
        source="runtime",
        hbm_used_bytes=9 * GIB,
        hbm_total_bytes=16 * GIB,
        devices=(
            {
                "device": "0",
                "hbm_used_bytes": 9 * GIB,
                "hbm_total_bytes": 16 * GIB,
                "runtime_duty_cycle_ratio": 0.5,
                "runtime_hlo_queue_size": 3,
            },
        ),
        runtime={"uptime_s": 120.0},
    ),
    "busy": failed("busy", "busy", "Another profiling session active."),
    "down": failed("down", detail="connection-refused"),
    "paused": failed("paused", "paused", "tpumon pause, for 9 minutes"),
    "stale": traced("stale", time_unix_s=NOW - 600.0),
    # A server's words that are hard to write down.
    "awkward": traced('a,"b"\\c', device_type='TPU "v9", é', slice="s,1"),
}
"""By name; each of a worker of its own."""


def on_cpu(worker: str = "cpu", **fields) -> Sample:
    """A trace of JAX on a CPU: what its host's threads show; `fields` replace some."""
    no_device = dict.fromkeys((*DEVICE_FIELDS, "hbm_used_bytes"), "no device in the trace")
    answered = {
        "source": "trace",
        "traced_s": 0.3,
        "device_type": "CPU",
        "cores": 0,
        "job_kind": JobKind(
            kind="training", evidence=("train_step is a program of training",), since_unix_s=NOW - 600.0
        ),
        "process": Process(pid=4711, user="ada", command="python train.py", started_unix_s=NOW - 640.0),
        "step_time_s": StepTimes(avg=0.125, min=0.0992, max=0.158, stddev=0.025, count=3),
        "step_source": "host",
        "step_name": "train_step",
        "compile_ratio": 0.0,
        "callback_ratio": 0.0625,
        "functions": tuple(
            FunctionFigures(
                name=name,
                runs=runs,
                period_s=Percentiles(p50=0.117, p95=0.152),
                duration_s=Percentiles(p50=0.081, p95=0.11),
                device_time_ratio=share,
            )
            for name, runs, share in (("train_step", 4, 0.875), ("eval_step", 2, 0.125))
        ),
        "absent": no_device | {"input_wait_ratio": "no event of an input pipeline"},
    }
    return sample(worker, **(_usual(worker) | answered | fields))


def cpus(count: int) -> list[Sample]:
    """Six samples of each worker on a CPU, oldest first."""
    return [
        on_cpu(
            f"cpu-{number}",
            time_unix_s=NOW - 3.0 - 10.0 * (5 - query),
            step_time_s=StepTimes(avg=0.12 + (7 * number + query) % 10 / 500, min=0.1, max=0.158, count=3),
        )
        for query in range(6)
        for number in range(count)
    ]


def with_top_ops(sample: Sample, count: int = 10) -> Sample:
    """The same with so many top operations, and their categories, as a trace shows them when they are asked for."""
    of = (("fusion.123", "convolution fusion"), ("all-reduce.4", "all-reduce"), ("copy-done.7", "copy-done"))
    ops = tuple(
        OpFigures(
            name=f"{of[place][0]}" if place < len(of) else f"fused_computation_of_a_long_name.{place}",
            program="jit_train_step(7310467204561120160)",
            category=of[place % len(of)][1],
            self_time_s=0.512 / 2**place,
            time_ratio=0.4 / 2**place,
            occurrences=40 + place,
            flops_rate=1.5e14 / 2**place,
            flops_utilization_ratio=0.75 / 2**place,
            hbm_rate=None if place % 3 == 1 else 2e11,
            hbm_utilization_ratio=None if place % 3 == 1 else 0.25,
        )
        for place in range(count)
    )
    categories = tuple(
        OpCategoryFigures(
            name=name,
            ops=4,
            self_time_s=sum(op.self_time_s for op in ops if op.category == name),
            time_ratio=sum(op.time_ratio for op in ops if op.category == name),
            occurrences=sum(op.occurrences for op in ops if op.category == name),
        )
        for _, name in of
    )
    return replace(sample, figures=replace(sample.figures, ops=ops, op_categories=categories))


def workers_of(*samples: Sample) -> Workers:
    """The workers of these samples, in their order."""
    return Workers(
        targets=tuple(
            Target(worker=one.worker, address=one.address, slice=one.slice, process=one.process) for one in samples
        )
    )


def fleet(count: int) -> list[Sample]:
    """Six samples of each worker, oldest first; of eight or more workers all wait for one, one is busy and one down."""
    samples = []
    for query in range(6):
        for number in range(count):
            worker = f"tpu-w-{number}"
            usual = {"infeed_ratio": Spread(avg=0.02, min=0.01, max=0.03), "step_work_s": 0.0425}
            when = {"time_unix_s": NOW - 3.0 - 10.0 * (5 - query)}
            if count > 4 and number == 3:
                one = traced(worker, idle_ratio=0.012, **usual | {"step_work_s": 0.0595}, **when)
            elif count > 4 and number == 5 and query > 3:
                one = failed(worker, "busy", "Another profiling session active.", **when)
            elif count > 4 and number == 6 and query > 3:
                one = failed(worker, **when)
            else:
                one = traced(worker, mxu_utilization_ratio=0.4 + (7 * number + query) % 10 / 100, **usual, **when)
            samples.append(replace(one, slice="slice-0"))
    return samples


def servers(count: int) -> list[Sample]:
    """Six samples of each server, oldest first; one has nothing to do, and one has too much."""
    samples = []
    for query in range(6):
        for number in range(count):
            figures = {"tokens_per_s": 800.0 + 50 * query + number, "requests_waiting": float(number % 3)}
            if number == 1:
                figures = {"busy_ratio": 0.0, "tokens_per_s": 0.0, "requests_running": 0.0, "requests_waiting": 0.0}
            if number == 2:
                figures = {"busy_ratio": 0.97, "tokens_per_s": 2400.0, "requests_waiting": 140.0, "kv_used_ratio": 0.99}
            one = served(f"server-{number}", **figures)
            duty = one.figures.server.busy_ratio + 0.0625 * (number % 2)
            devices = tuple(replace(each, runtime_duty_cycle_ratio=duty / 1.125) for each in one.figures.devices)
            figures = replace(one.figures, devices=devices)
            samples.append(replace(one, time_unix_s=NOW - 3.0 - 10.0 * (5 - query), figures=figures))
    return samples

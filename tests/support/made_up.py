"""Made-up workers with all figures."""

from __future__ import annotations

from typing import Any

from support.samples import sample
from tpumon.model import RUNTIME_COUNTS, RUNTIME_LATENCIES, Distribution, Percentiles, Sample, Spread, StepTimes
from tpumon.model.figures import FamilyFigures, ServerFigures


def healthy(number: int, now: float, **changes: Any) -> Sample:
    """A worker of a job of two slices, with every figure, a server's too; number 7 takes twice as long."""
    cores = [{"chip": chip, "core": 0, "idle_ratio": 0.1, "flops_utilization_ratio": 0.3, "infeed_ratio": 0.02,
              "step_time_s": 0.1} for chip in range(4)]  # fmt: skip
    devices = [
        {
            "device": str(device),
            "hbm_used_bytes": 15 << 30,
            "hbm_total_bytes": 16 << 30,
            "runtime_duty_cycle_ratio": 0.9,
            "runtime_hbm_bandwidth_utilization_ratio": 0.4,
            "runtime_tensorcore_idle_s": 0.0,
            "runtime_hlo_queue_size": 3,
        }
        for device in range(4)
    ]
    usual = dict(  # noqa: C408
        address=f"10.0.0.{number}:9999",
        time_unix_s=now,
        window_s=1,
        took_s=1.2,
        interval_s=3600,
        traced_s=1.1,
        source="trace",
        device_type="TPU v5 Lite",
        cores=4,
        slice=f"s{number % 2}",
        mxu_utilization_ratio=0.4 + number % 50 / 100,
        mxu_method="counter",
        idle_ratio=0.1,
        duty_cycle_ratio=0.8,
        flops_utilization_ratio=0.3,
        hbm_bandwidth_utilization_ratio=0.2,
        step_time_s=StepTimes(avg=0.2 if number == 7 else 0.1, min=0.09, max=0.3, stddev=0.001, count=10),
        step_source="steps",
        infeed_ratio=Spread(avg=0.02, min=0.01, max=0.03),
        step_parts_s={"idle": 0.01, "infeed": 0.002, "collective": 0.01, "high_flops_compute": 0.078},
        step_durations_s=(0.1, 0.1, 0.3),
        op_time_ratios={"compute": 0.8, "infeed": 0.02, "collective": 0.1},
        compile_ratio=0.01,
        server=ServerFigures(
            busy_ratio=0.8,
            families=tuple(
                FamilyFigures(
                    family=family,
                    executions_per_s=number + 1.0,
                    duration_s=Percentiles(p50=0.01, p95=0.02),
                    time_ratio=0.5,
                    sizes=(8, 16),
                )
                for family in ("decode", "prefill")
            ),
            requests_running=4.0,
            requests_waiting=float(number % 3),
            tokens_per_s=500.0 + number,
            tokens_per_s_per_chip=125.0,
            prompt_tokens_per_s=1000.0,
            time_to_first_token_s=Percentiles(p50=0.2, p95=0.5),
            kv_used_ratio=0.5,
            preemptions_per_s=0.0,
            device_s_per_token=0.001,
            padding_ratio=0.25,
            host_gap_ratio=0.1,
        ),
        per_core=tuple(cores),
        devices=tuple(devices),
        runtime={
            "uptime_s": 1000.0,
            "megascale_error": 1.0 if number == 8 else 0.0,
            "slice_error": 0.0,
        },
        runtime_latencies=dict.fromkeys(RUNTIME_LATENCIES, _latencies(now)),
        runtime_counts=dict.fromkeys(RUNTIME_COUNTS, 1000.0 * (now % 1e6)),
    )
    return sample(f"w{number}", **(usual | changes))


def _latencies(now: float) -> Distribution:
    """As many as seconds have passed, and all in one bucket of every other one of those that libtpu has."""
    bounds = tuple(4.0**place / 1e6 for place in range(14))
    return Distribution(bounds=bounds, counts=(0,) * 6 + (int(now % 1e6),) + (0,) * 8, total=0.004 * (now % 1e6))

"""Where does a step's time go, and does the input pipeline keep up?"""

from __future__ import annotations

from grafana.panels import Dashboard, Panel, Query, Row, bars, heatmap, lines, number
from grafana.queries import STEPS_BY_LE, few, of, step_quantile

_INPUT = "Remedies: the runbook TpuInputBound."


def dashboard() -> Dashboard:
    """About steps."""
    return Dashboard(
        uid="tpumon-steps",
        title="TPU steps and input",
        description="Where a step's time goes, how steps differ, and whether input keeps up. Data: tpumon.",
        rows=[
            Row(title="Now", panels=_now()),
            Row(title="Where a step's time goes", panels=_parts()),
            Row(title="Input", panels=_input()),
            Row(title="Steps", panels=_steps()),
        ],
    )


def _now() -> list[Panel]:
    return [
        number(
            "Step time",
            "Shortest, average and longest step of the present samples, median of the chosen workers.",
            Query(expr=f"quantile(0.5, {of('tpu_step_time_min_seconds')})", legend="shortest"),
            Query(expr=f"quantile(0.5, {of('tpu_step_time_seconds')})", legend="average"),
            Query(expr=f"quantile(0.5, {of('tpu_step_time_max_seconds')})", legend="longest"),
            unit="s",
            size=(9, 4),
        ),
        number(
            "Waiting for input",
            f"Share of a step spent waiting for infeed: median and worst of the chosen workers. {_INPUT}",
            Query(expr=f"quantile(0.5, {of('tpu_infeed_ratio')})", legend="median"),
            Query(expr=f"max({of('tpu_infeed_ratio')})", legend="worst"),
            unit="percentunit",
            size=(6, 4),
            limits=(0.05, 0.20),
        ),
        number(
            "Idle",
            "Share of time in which no op ran, median of the chosen workers. In JAX jobs, which have no infeed, "
            "waiting for "
            f"input is in here. {_INPUT}",
            Query(expr=f"quantile(0.5, {of('tpu_idle_ratio')})"),
            unit="percentunit",
            size=(4, 4),
        ),
        number(
            "Steps seen",
            "Steps in the traces of the range shown, all chosen workers together: what the histogram below is made of. "
            "Not all steps of the job: those of the sampled windows. n/a: no traces (Monitor RPC).",
            Query(expr=f"sum(increase({of('tpu_steps_seconds_count')}[$__range]))"),
            unit="short",
            size=(5, 4),
        ),
    ]


def _parts() -> list[Panel]:
    parts = of("tpu_step_part_seconds")
    return [
        lines(
            "Parts of an average step",
            "Seconds of a step by what it is spent on, mean of the chosen workers. Idle: no op ran, so the host or "
            "others "
            "were waited for. Infeed: input. Collective: other devices. Low FLOPs: everything that is not a matrix "
            "product. "
            "Parts are of different cores and need not add up to the step.",
            Query(expr=f"avg by (part) ({parts})", legend="{{part}}"),
            unit="s",
            size=(16, 10),
            stacked=True,
        ),
        bars(
            "Parts now",
            "The same at this moment, greatest first. Work on the greatest that is not high_flops_compute.",
            Query(expr=f"sort_desc(avg by (part) ({parts}))", legend="{{part}}"),
            unit="s",
            size=(8, 10),
        ),
        lines(
            "Parts, as shares",
            "The same as shares of all parts together.",
            Query(
                expr=f"avg by (part) ({parts}) / ignoring (part) group_left () sum(avg by (part) ({parts}))",
                legend="{{part}}",
            ),
            unit="percentunit",
            size=(16, 8),
            stacked=True,
        ),
        bars(
            "Collective time, most and least",
            "Workers by the share of their parts that goes into collectives; the five greatest and the five least. "
            "The worker "
            "with the least is the one that the others wait for.",
            Query(
                expr=f"topk(5, {_collective()}) or bottomk(5, {_collective()})",
                legend="{{worker}}",
            ),
            unit="percentunit",
        ),
    ]


def _collective() -> str:
    one = of("tpu_step_part_seconds", 'part="collective"')
    return f"sum by (job, worker) ({one}) / sum by (job, worker) ({of('tpu_step_part_seconds')})"


def _input() -> list[Panel]:
    return [
        lines(
            "Waiting for infeed, across workers",
            "Share of a step: the greatest step of any chosen worker, the average of the worst and of the median "
            "worker. From "
            f"5 % on worth a look, from 20 % on input holds the job up. {_INPUT}",
            Query(expr=f"max({of('tpu_infeed_max_ratio')})", legend="greatest step"),
            Query(expr=f"max({of('tpu_infeed_ratio')})", legend="worst worker"),
            Query(expr=f"quantile(0.5, {of('tpu_infeed_ratio')})", legend="median worker"),
            Query(expr=f"min({of('tpu_infeed_min_ratio')})", legend="least step"),
            unit="percentunit",
            small=True,
        ),
        lines(
            "Waiting for infeed, workers",
            "Share of a step spent waiting for infeed. One worker apart: its host or its share of the data. At "
            "most 10 of the "
            "chosen workers are drawn, those highest on average.",
            Query(expr=few("tpu_infeed_ratio"), legend="{{worker}}"),
            unit="percentunit",
            small=True,
        ),
        lines(
            "Idle beside infeed",
            "Mean of the chosen workers. Idle high and infeed low or absent: the host does not dispatch in time, "
            "or (JAX) "
            "input arrives late.",
            Query(expr=f"avg({of('tpu_idle_ratio')})", legend="idle"),
            Query(expr=f"avg({of('tpu_infeed_ratio')})", legend="infeed"),
            unit="percentunit",
        ),
        heatmap(
            "Waiting for infeed, how many cores at which share",
            "Darker: more cores. All cores of few workers: those hosts; few cores of all workers: uneven sharding "
            "of input.",
            Query(expr=of("tpu_core_infeed_ratio")),
            unit="percentunit",
            bucket=0.02,
        ),
    ]


def _steps() -> list[Panel]:
    return [
        lines(
            "Step time, shortest, average and longest",
            "Median of the chosen workers. The longest far above the average: single steps stall, for example on "
            "checkpoints, "
            "compiling or input.",
            Query(expr=f"quantile(0.5, {of('tpu_step_time_max_seconds')})", legend="longest"),
            Query(expr=f"quantile(0.5, {of('tpu_step_time_seconds')})", legend="average"),
            Query(expr=f"quantile(0.5, {of('tpu_step_time_min_seconds')})", legend="shortest"),
            unit="s",
        ),
        lines(
            "Quantiles of steps seen",
            "Of the steps in the sampled windows of all chosen workers, to the width of the histogram's buckets "
            "(1, 2, 5, 10 "
            "...). For a precise average see the panel beside it.",
            *(Query(expr=step_quantile(ratio), legend=f"{ratio:.0%}") for ratio in (0.5, 0.9, 0.99)),
            unit="s",
            interval="5m",
        ),
        heatmap(
            "Steps seen, by duration",
            "Steps in the sampled windows of all chosen workers. Two bands: two kinds of steps, for example with "
            "and without "
            "evaluation; a tail: stalls.",
            Query(expr=STEPS_BY_LE, legend="{{le}}"),
            unit="s",
        ),
        lines(
            "Unevenness of steps",
            "Longest step of a sample over the average. Near 1: steps are alike. At most 10 of the chosen workers are "
            "drawn, those with the longest steps on average.",
            Query(
                expr=f"{of('tpu_step_time_max_seconds')} / {of('tpu_step_time_seconds')} and "
                f"topk(10, avg_over_time({of('tpu_step_time_max_seconds')}[$__range] @ end()))",
                legend="{{worker}}",
            ),
            unit="none",
        ),
    ]

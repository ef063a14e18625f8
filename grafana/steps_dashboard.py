"""Dashboard of steps: the parts of a step, and the input pipeline."""

from __future__ import annotations

from grafana.board import Dashboard, Row
from grafana.config import Config
from grafana.panels import Panel, Query, bars, heatmap, lines, number
from grafana.queries import (
    PER_WORKER,
    STEPS_BY_LE,
    STEPS_SEEN,
    averaged,
    counted,
    few,
    of,
    quantile,
    rate,
    step_quantile,
)

_INPUT = "For remedies, see the runbook TpuInputBound."


def dashboard(config: Config) -> Dashboard:
    """Builds the dashboard about steps."""
    return Dashboard(
        config=config,
        uid="tpumon-steps",
        title="TPU steps and input",
        description="Where the step time goes, how steps differ, and whether input keeps up. Data: tpumon.",
        rows=[
            Row(title="Now", panels=_now()),
            Row(title="Where the step time goes", panels=_parts()),
            Row(title="Input", panels=_input()),
            Row(title="Steps", panels=_steps()),
            Row(title="Between slices", panels=_between_slices()),
        ],
    )


def _now() -> list[Panel]:
    return [
        number(
            "Step time",
            "Min, average and max step time of the current samples; median of the selected workers.",
            Query(expr=f"quantile(0.5, {of('tpu_step_time_min_seconds')})", legend="min"),
            Query(expr=f"quantile(0.5, {of('tpu_step_time_seconds')})", legend="average"),
            Query(expr=f"quantile(0.5, {of('tpu_step_time_max_seconds')})", legend="max"),
            unit="s",
            size=(9, 4),
        ),
        number(
            "Infeed wait",
            f"Share of the step time spent waiting for infeed: median and max of the selected workers. {_INPUT}",
            Query(expr=f"quantile(0.5, {of('tpu_infeed_ratio')})", legend="median"),
            Query(expr=f"max({of('tpu_infeed_ratio')})", legend="max"),
            unit="percentunit",
            size=(6, 4),
            limits=(0.05, 0.20),
        ),
        number(
            "Idle",
            "Share of time in which no op ran; median of the selected workers. JAX jobs have no infeed, so waiting "
            f"for input appears here. {_INPUT}",
            Query(expr=f"quantile(0.5, {of('tpu_idle_ratio')})"),
            unit="percentunit",
            size=(4, 4),
        ),
        number(
            "Steps seen",
            "Number of steps in the traces of the time range, over all selected workers; the data of the histogram "
            "below. Covers the sampled windows, not every step of the job. n/a: no traces (Monitor RPC).",
            Query(expr=STEPS_SEEN),
            unit="short",
            size=(5, 4),
        ),
    ]


def _parts() -> list[Panel]:
    parts = of("tpu_step_part_seconds")
    return [
        lines(
            "Parts of an average step",
            "Time that an average step spends in each part; mean of the selected workers. Idle: no op ran, so the "
            "device waited for the host or other workers. Infeed: input. Collective: communication with other "
            "devices. Low FLOPs: everything but matrix products. Parts come from different cores and need not add up "
            "to the step time.",
            Query(expr=f"avg by (part) ({parts})", legend="{{part}}"),
            unit="s",
            size=(16, 10),
            stacked=True,
        ),
        bars(
            "Parts now",
            "The current values, largest first. Work on the largest part that is not high_flops_compute.",
            Query(expr=f"sort_desc(avg by (part) ({parts}))", legend="{{part}}"),
            unit="s",
            size=(8, 10),
        ),
        lines(
            "Parts, as shares",
            "Each part as a share of the sum of all parts.",
            Query(
                expr=f"avg by (part) ({parts}) / ignoring (part) group_left () sum(avg by (part) ({parts}))",
                legend="{{part}}",
            ),
            unit="percentunit",
            size=(16, 8),
            stacked=True,
        ),
        bars(
            "Collective time, highest and lowest",
            "Workers by the share of their parts that collectives take; the five highest and the five lowest. The "
            "other workers wait for the lowest.",
            Query(
                expr=f"topk(5, {_collective()}) or bottomk(5, {_collective()})",
                legend="{{worker}}",
            ),
            unit="percentunit",
        ),
        lines(
            "Time by kind of op",
            "Share of the window by kind of op, mean of the selected workers; what is left to 100 % is idle. Also for "
            "programs without steps. Compiling is the host's, and may go on while devices work; only from traces of "
            "the host.",
            Query(expr=f"avg by (kind) ({of('tpu_op_time_ratio')})", legend="{{kind}}"),
            Query(expr=f"avg({of('tpu_compile_ratio')})", legend="compiling (host)"),
            unit="percentunit",
            size=(24, 8),
        ),
    ]


def _collective() -> str:
    one = of("tpu_step_part_seconds", 'part="collective"')
    return f"sum by ({PER_WORKER}) ({one}) / sum by ({PER_WORKER}) ({of('tpu_step_part_seconds')})"


def _input() -> list[Panel]:
    return [
        lines(
            "Infeed wait, across workers",
            "Share of the step time: max and min of single steps, and the averages of the highest and the median "
            f"worker. Investigate from 5 %; from 20 % the job is input-bound. {_INPUT}",
            Query(expr=f"max({of('tpu_infeed_max_ratio')})", legend="max step"),
            Query(expr=f"max({of('tpu_infeed_ratio')})", legend="max worker"),
            Query(expr=f"quantile(0.5, {of('tpu_infeed_ratio')})", legend="median worker"),
            Query(expr=f"min({of('tpu_infeed_min_ratio')})", legend="min step"),
            unit="percentunit",
            small=True,
        ),
        lines(
            "Infeed wait, by worker",
            "Share of the step time spent waiting for infeed. If one worker differs, look at its host or its share of "
            "the data. Shows the selected workers with the highest averages, at most 10.",
            Query(expr=few("tpu_infeed_ratio"), legend="{{worker}}"),
            unit="percentunit",
            small=True,
        ),
        lines(
            "Idle and infeed wait",
            "Means of the selected workers. If idle is high and infeed wait is low or absent, the host dispatches too "
            "slowly, or input arrives late (JAX).",
            Query(expr=f"avg({of('tpu_idle_ratio')})", legend="idle"),
            Query(expr=f"avg({of('tpu_infeed_ratio')})", legend="infeed"),
            unit="percentunit",
        ),
        heatmap(
            "Infeed wait, distribution over cores",
            "Darker cells contain more cores. If all cores of a few workers are high, look at their hosts; if a few "
            "cores of all workers are, at uneven sharding of input.",
            Query(expr=counted("tpu_core_infeed_ratio", 0.02), legend="{{le}}"),
            unit="percentunit",
        ),
    ]


def _steps() -> list[Panel]:
    return [
        lines(
            "Step time, min, average and max",
            "Medians of the selected workers. If max is far above the average, single steps stall, for example on "
            "checkpoints, compilation or input.",
            Query(expr=f"quantile(0.5, {of('tpu_step_time_max_seconds')})", legend="max"),
            Query(expr=f"quantile(0.5, {of('tpu_step_time_seconds')})", legend="average"),
            Query(expr=f"quantile(0.5, {of('tpu_step_time_min_seconds')})", legend="min"),
            unit="s",
        ),
        lines(
            "Step time quantiles",
            "Quantiles of the steps in the sampled windows of all selected workers, within 19 %, "
            "the width of the histogram's buckets. The panel beside it has exact averages.",
            *(Query(expr=step_quantile(ratio), legend=f"{ratio:.0%}") for ratio in (0.5, 0.9, 0.99)),
            unit="s",
            interval="5m",
        ),
        heatmap(
            "Step time distribution",
            "Steps in the sampled windows of all selected workers. Two bands are two kinds of steps, for example with "
            "and without evaluation; a tail is stalls.",
            Query(expr=STEPS_BY_LE, legend="{{le}}"),
            unit="s",
        ),
        lines(
            "Step time, max / average",
            "Max step time of a sample divided by the average; near 1, steps are alike. Shows the selected workers "
            "with the longest steps on average, at most 10.",
            Query(
                expr=f"{of('tpu_step_time_max_seconds')} / {of('tpu_step_time_seconds')} and "
                f"topk(10, {averaged('tpu_step_time_max_seconds')})",
                legend="{{worker}}",
            ),
            unit="none",
        ),
    ]


_MEGASCALE = "tpu_runtime_megascale"
_MULTISLICE = "Source: libtpu's runtime metric service; only jobs of several slices have it."


def _between_slices() -> list[Panel]:
    return [
        _times("Collectives between slices", "collective", "If high, the steps wait for other slices or the network."),
        _times("Transfers to other slices", "dcn_transfer", "The data center network, sending side."),
        _times("Transfers from other slices", "dcn_inbound_transfer", "The data center network, receiving side."),
        _times("Transfers from host to device", "host_to_device_transfer", "Of data for collectives between slices."),
        _times("Transfers from device to host", "device_to_host_transfer", "Of data for collectives between slices."),
        _times("Computation on hosts", "host_compute", "Of collectives between slices."),
        _times("Round trips between slices", "tcp_min_rtt", "TCP's minimum; the network without load."),
        lines(
            "Sent to other slices",
            f"Bytes per second, over the selected workers. {_MULTISLICE}",
            Query(expr=f"sum({rate(f'{_MEGASCALE}_tcp_sent_bytes_total')})", legend="sent"),
            Query(expr=f"sum({rate(f'{_MEGASCALE}_tcp_retransmitted_bytes_total')})", legend="sent again"),
            unit="Bps",
            size=(8, 8),
        ),
        lines(
            "Packets sent again",
            f"Share of the TCP packets to other slices that were sent again, over the selected workers. More than 1 % "
            f"is a fault of the network. {_MULTISLICE}",
            Query(
                expr=f"sum({rate(f'{_MEGASCALE}_tcp_retransmitted_packets_total')})"
                f" / (sum({rate(f'{_MEGASCALE}_tcp_sent_packets_total')}) > 0)",
                legend="sent again",
            ),
            unit="percentunit",
            size=(8, 8),
            small=True,
        ),
    ]


def _times(title: str, what: str, hint: str) -> Panel:
    return lines(
        title,
        f"Quantiles over the selected workers, all sizes together. {hint} {_MULTISLICE}",
        *(Query(expr=quantile(ratio, f"{_MEGASCALE}_{what}_seconds"), legend=f"{ratio:.0%}") for ratio in (0.5, 0.99)),
        unit="s",
        size=(8, 8),
    )

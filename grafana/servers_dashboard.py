"""Dashboard of servers of models: requests and tokens beside what the TPUs do for them."""

from __future__ import annotations

from grafana.board import Dashboard, Row
from grafana.config import Config
from grafana.panels import Panel, Query, lines, number
from grafana.queries import few, of

_FEW = "Shows the selected workers with the highest averages, at most 10."
_OWN = "Source: the server's own metrics; absent where tpumon does not find them."
_BOTH = "Only where tpumon finds the server's own metrics, too."
_FAMILIES = "prefill: prompts; decode: tokens; step: both in one program; sample: the next token; move: the cache."


def dashboard(config: Config) -> Dashboard:
    """Builds the dashboard of servers."""
    return Dashboard(
        config=config,
        uid="tpumon-servers",
        title="TPU servers",
        description="Servers of models: what requests wait for, and what the TPUs do meanwhile. Data: tpumon.",
        rows=[
            Row(title="Now", panels=_now()),
            Row(title="Requests", panels=_requests()),
            Row(title="TPUs", panels=_tpus()),
            Row(title="Programs", panels=_programs()),
        ],
    )


def _now() -> list[Panel]:
    return [
        number(
            "Requests",
            f"Requests that the selected workers work on, and those that wait. {_OWN}",
            Query(expr=f"sum({of('tpu_server_requests_running')})", legend="running"),
            Query(expr=f"sum({of('tpu_server_requests_waiting')})", legend="waiting"),
            unit="short",
            size=(6, 4),
        ),
        number(
            "Tokens",
            f"Tokens that the selected workers generate, per second; per chip: of the median worker. {_OWN}",
            Query(expr=f"sum({of('tpu_server_tokens_per_second')})", legend="all"),
            Query(expr=f"quantile(0.5, {of('tpu_server_tokens_per_second_per_chip')})", legend="per chip"),
            unit="short",
            size=(4, 4),
        ),
        number(
            "Time to first token",
            f"Median of the median worker, and 95th percentile of the slowest. {_OWN}",
            Query(expr=f"quantile(0.5, {of('tpu_server_time_to_first_token_p50_seconds')})", legend="median"),
            Query(expr=f"max({of('tpu_server_time_to_first_token_p95_seconds')})", legend="p95"),
            unit="s",
            size=(5, 4),
        ),
        number(
            "Busy",
            "Time in programs over traced time: median and max of the selected workers.",
            Query(expr=f"quantile(0.5, {of('tpu_busy_ratio')})", legend="median"),
            Query(expr=f"max({of('tpu_busy_ratio')})", legend="max"),
            unit="percentunit",
            size=(5, 4),
        ),
        number(
            "KV cache in use",
            f"The fullest of the selected workers. When it is full, requests wait or are put back. {_OWN}",
            Query(expr=f"max({of('tpu_server_kv_used_ratio')})"),
            unit="percentunit",
            size=(4, 4),
            limits=(0.9, 0.98),
        ),
    ]


def _requests() -> list[Panel]:
    return [
        lines(
            "Requests running and waiting",
            f"Over the selected workers. Requests that wait while TPUs are idle: see the host gap below. {_OWN}",
            Query(expr=f"sum({of('tpu_server_requests_running')})", legend="running"),
            Query(expr=f"sum({of('tpu_server_requests_waiting')})", legend="waiting"),
            unit="short",
        ),
        _each("Requests waiting, by worker", "tpu_server_requests_waiting", "The queue of each server.", _OWN),
        lines(
            "Tokens per second, by worker",
            f"Tokens that each server generates. Replicas that get equal load should be alike. {_FEW} {_OWN}",
            Query(expr=few("tpu_server_tokens_per_second"), legend="{{worker}}"),
            unit="short",
        ),
        lines(
            "Time to first token, over time",
            f"Median of the median worker, and 95th percentile of the slowest. {_OWN}",
            Query(expr=f"quantile(0.5, {of('tpu_server_time_to_first_token_p50_seconds')})", legend="median"),
            Query(expr=f"max({of('tpu_server_time_to_first_token_p95_seconds')})", legend="p95"),
            unit="s",
        ),
    ]


def _tpus() -> list[Panel]:
    return [
        _each("Busy, by worker", "tpu_busy_ratio", "Time in programs over traced time.", unit="percentunit"),
        lines(
            "Duty cycle, by libtpu",
            "The better witness where it is there: it knows the time between traces, too. Shows the devices with the "
            "highest averages, at most 10.",
            Query(expr=few("tpu_runtime_duty_cycle_ratio"), legend="{{worker}} {{device}}"),
            unit="percentunit",
            size=(8, 8),
        ),
        _each(
            "Host gap, by worker",
            "tpu_server_host_gap_ratio",
            "Share of the time with requests in which no program ran: the TPU waits for the server's host.",
            _BOTH,
            unit="percentunit",
        ),
        _each(
            "Device time per token",
            "tpu_server_device_seconds_per_token",
            "What a token costs: time in programs, summed over cores, per generated token.",
            _BOTH,
            unit="s",
        ),
        _each(
            "Padding",
            "tpu_server_padding_ratio",
            "Share of the computed tokens that are padding up to the next compiled size. Usual at low load.",
            _BOTH,
            unit="percentunit",
        ),
        _each(
            "KV cache in use, by worker",
            "tpu_server_kv_used_ratio",
            "When it is full, requests wait or are put back.",
            _OWN,
            unit="percentunit",
        ),
    ]


def _programs() -> list[Panel]:
    return [
        _by_family("Runs per second", "sum", "tpu_program_executions_per_second", "Sum over", "short"),
        _by_family("Share of time", "avg", "tpu_program_time_ratio", "Mean of", "percentunit"),
        _by_family("Duration, median", "max", "tpu_program_duration_p50_seconds", "The slowest of", "s"),
        _by_family("Duration, p95", "max", "tpu_program_duration_p95_seconds", "The slowest of", "s"),
    ]


def _by_family(title: str, how: str, metric: str, over: str, unit: str) -> Panel:
    return lines(
        f"{title}, by kind of program",
        f"{over} the selected workers. {_FAMILIES}",
        Query(expr=f"{how} by (family) ({of(metric)})", legend="{{family}}"),
        unit=unit,
    )


def _each(title: str, metric: str, description: str, more: str = "", *, unit: str = "short") -> Panel:
    query = Query(expr=few(metric), legend="{{worker}}")
    size = (12, 8) if unit == "short" else (8, 8)
    return lines(title, f"{description} {_FEW} {more}".strip(), query, unit=unit, size=size)

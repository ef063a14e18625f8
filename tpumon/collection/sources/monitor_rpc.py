"""The Monitor RPC: figures that the server computes itself. TPU nodes offer it, TPU VMs do not."""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tpumon import proto as wire
from tpumon.collection.sources.base import ProfilerSource, SourceOptions
from tpumon.collection.sources.doctor_reports import Examination
from tpumon.collection.sources.rpc import Client
from tpumon.errors import SourceError
from tpumon.model import SIMULATED_MARK, Figures, Query, Sample, Spread, StepTimes, Target
from tpumon.model.figure_table import FIGURES, TRACE_FIELDS
from tpumon.proto.profiler_pb2 import MonitorRequest, MonitorResponse, MonitorResult
from tpumon.untrusted_text import safe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_USUAL_WINDOW_S = 1.0
_MAX_TEXT_CHARS = 64 * 1024

_NUMBER = r"([0-9.]+(?:e[+-]?[0-9]+)?)"
# Each matches one line without the blanks around it, and none can be slow on a hostile text.
_DEVICE_TYPE = re.compile(r"TPU type:(.+)")
_CORES = re.compile(r"Number of TPU cores[^:]*: *(\d{1,6})(?!\d)", re.IGNORECASE)
_IDLE = re.compile(rf"TPU idle time[^:]*: *{_NUMBER} *%")
_MXU = re.compile(rf"Utilization of TPU Matrix Units[^:]*: *{_NUMBER} *%")
_STEP = re.compile(rf"Step time[^:]*: *{_NUMBER} *(\w+) *\(avg\), *{_NUMBER} *(\w+) *\(min\), *{_NUMBER} *(\w+)")
_INFEED = re.compile(rf"Infeed percentage[^:]*: *{_NUMBER} *% *\(avg\), *{_NUMBER} *% *\(min\), *{_NUMBER} *%")
_LONGEST_LINE_CHARS = 300
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "kms": 1.0}  # "1.95 kms" is how 1950 ms was once printed


_RESULT_TYPES = frozenset({MonitorResult.UTIL_ONLY, MonitorResult.UTIL_IDLE, MonitorResult.UTIL_IDLE_STEP})


class MonitorSource(ProfilerSource):
    """Asks a worker for the figures of one window.

    Source: /tensorflow.ProfilerService/Monitor; figures from `monitor_result`, present as its `response_type` says;
    device type and number of cores from the text. If the server sends only text, all figures come from the text.
    """

    name = "monitor"
    title = "the Monitor RPC"
    usual_interval_s = 0.0  # the server has these figures anyway: asking costs the job next to nothing
    rpc = "Monitor"
    gives = "by Monitor: MXU, idle and step time, infeed; free for the job"
    missing = "not offered, as on every TPU VM; traces tell more"

    def __init__(self, client: Client, target: Target, options: SourceOptions) -> None:
        self._client = client
        self._target = target
        self._progress = options.progress

    async def fetch(self, query: Query) -> Sample:
        """Runs one query. The server watches for `query.window_s`, then answers.

        Raises:
            SourceError: the call failed, or the answer holds neither text nor figures.
        """
        self._progress.does(self._target.address, "it is asked for Monitor", "asking")
        await self._client.wait_for_turn()
        window_s = query.window_s if query.window_s is not None else _USUAL_WINDOW_S
        request = MonitorRequest(duration_ms=round(window_s * 1000), monitoring_level=query.level, timestamp=True)
        time_unix_s, start_s = time.time(), time.monotonic()
        timeout_s = window_s + self._client.grace_s(wire.MONITOR)
        reply = await self._client.call(wire.MONITOR, request, MonitorResponse, timeout_s=timeout_s)
        took_s = time.monotonic() - start_s

        text = safe(reply.data[:_MAX_TEXT_CHARS]).strip("\n")
        has_result = reply.monitor_result.response_type in _RESULT_TYPES  # there may be none, or one of a newer type
        if not text.strip() and not has_result:
            message = "Monitor answered without figures; check that the job is running"
            raise SourceError("empty-trace", message, address=self._client.address)
        lines = [line.strip() for line in text.splitlines() if len(line) <= _LONGEST_LINE_CHARS]
        figures = _figures_of_result(reply.monitor_result, query) if has_result else _figures_of_text(lines, query)
        return Sample(
            worker=self._target.worker,
            address=self._target.address,
            time_unix_s=time_unix_s,
            window_s=window_s,
            took_s=took_s,
            interval_s=query.interval_s,
            source="monitor",
            simulated=SIMULATED_MARK in text,
            device_type=_first(_DEVICE_TYPE, lines),
            cores=int(cores) if (cores := _first(_CORES, lines)) else None,
            figures=figures,
            server_text=text if text.strip() else None,
        )

    async def examine(self) -> Examination:
        """Finds out for `doctor` whether the server has the figures, by a Monitor of 1 ms."""
        return replace(await super().examine(), generation="a TPU node's (v2, v3)")


async def why_no_profiler(client: Client, *, timeout_s: float) -> SourceError | None:
    """Returns None if a profiler server answers, otherwise what came instead.

    Makes the one call that harms nobody: a Monitor of 1 ms.
    """
    request = MonitorRequest(duration_ms=1, monitoring_level=1, timestamp=True)
    try:
        await client.call(wire.MONITOR, request, MonitorResponse, timeout_s=timeout_s)
    except SourceError as error:
        return None if error.reason == "unimplemented" else error
    return None


def _figures_of_result(result: MonitorResult, query: Query) -> Figures:
    sent: dict[str, Any] = {}
    if result.response_type >= MonitorResult.UTIL_ONLY:
        sent["mxu_utilization_ratio"] = ratio_of_percent(result.matrix_unit_utilization_percent)
    if result.response_type >= MonitorResult.UTIL_IDLE:
        sent["idle_ratio"] = ratio_of_percent(result.device_idle_time_percent)
    if result.response_type >= MonitorResult.UTIL_IDLE_STEP:
        times_ms = (result.step_time_ms_avg, result.step_time_ms_min, result.step_time_ms_max)
        sent["step_time_s"] = _step_times(*(time_ms / 1000 for time_ms in times_ms))
        sent["infeed_ratio"] = _spread(result.infeed_percent_avg, result.infeed_percent_min, result.infeed_percent_max)
    return _figures(sent, query, impossible="the server sent an impossible value")


def _figures_of_text(lines: Sequence[str], query: Query) -> Figures:
    sent: dict[str, Any] = {}
    for line in lines:
        if match := _IDLE.match(line):
            sent["idle_ratio"] = ratio_of_percent(_float(match[1]))
        elif match := _MXU.match(line):
            sent["mxu_utilization_ratio"] = ratio_of_percent(_float(match[1]))
        elif match := _STEP.match(line):
            pairs = zip(match.groups()[::2], match.groups()[1::2], strict=True)
            sent["step_time_s"] = _step_times(
                *(_float(number) * _SECONDS.get(unit, math.nan) for number, unit in pairs)
            )
        elif match := _INFEED.match(line):
            sent["infeed_ratio"] = _spread(*(_float(number) for number in match.groups()))
    return _figures(sent, query, impossible="the server's text cannot be parsed")


def _figures(sent: Mapping[str, Any], query: Query, *, impossible: str) -> Figures:
    """The figures of a level with their methods, and a reason for each that is absent.

    Args:
        sent: the figures that were sent, by field name; None: an impossible value.
        query: what was asked for.
        impossible: the reason for those.
    """
    level = query.level
    asked = [figure.fields[0] for figure in FIGURES if figure.from_monitor and figure.level <= level]
    from_traces = (*TRACE_FIELDS, *(("ops",) if query.ops else ())) if level > 1 else ()
    there = {name: value for name in asked if (value := sent.get(name)) is not None}
    absent = {name: impossible if name in sent else "not sent by the server" for name in asked if name not in there}
    return Figures(
        **there,
        mxu_method="server" if "mxu_utilization_ratio" in there else None,
        step_source="server" if "step_time_s" in there else None,
        absent=dict.fromkeys(from_traces, "only traces show it") | absent,
    )


def ratio_of_percent(percent: float) -> float | None:
    """The ratio, 0-1; None if the percentage is impossible."""
    # A share computed from clocks may pass 100 % by its rounding, not by more.
    return min(percent / 100, 1.0) if 0 <= percent <= 100.01 else None


def _spread(*percents: float) -> Spread | None:
    avg, low, high = (ratio_of_percent(percent) for percent in percents)
    return None if avg is None or low is None or high is None else Spread(avg=avg, min=low, max=high)


def _step_times(avg: float, low: float, high: float) -> StepTimes | None:
    possible = all(math.isfinite(value) and value >= 0 for value in (avg, low, high))
    return StepTimes(avg=avg, min=low, max=high) if possible else None


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _first(pattern: re.Pattern[str], lines: Sequence[str]) -> str | None:
    matches = (match for line in lines if (match := pattern.match(line)))
    first = next(matches, None)
    return first[1].strip() if first else None

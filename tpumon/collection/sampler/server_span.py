"""The last two minutes of one worker's server: its programs, joined with what it says of its requests."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from statistics import quantiles
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tpumon.collection.sampler.extra_sources import ServerReading
from tpumon.model import (
    FamilyFigures,
    FamilyRuns,
    Figures,
    Percentiles,
    ProgramFamily,
    Sample,
    ServerFigures,
    Target,
    TracedPrograms,
)
from tpumon.model.figures import MOST_SIZES

_SPAN_S = 120.0
_LEAST_EXPOSED_RATIO = 0.5
_FEW_WINDOWS = 2
_FEW_REQUESTS = 10  # of all windows
_NEARLY_ALL = 0.9

_NO_PROGRAMS = "no trace of the last two minutes shows programs of a server"
_CALLS_ONLY = "the trace shows calls on the host, not when their programs run"
_NO_REQUESTS, _NO_TOKENS = "nothing tells its requests", "nothing tells how many tokens it generates"
_NO_CHIPS = "no trace tells how many chips its worker has"
_NO_BATCHES = "the host annotates no batch in the windows; host tracer level 1 shows those of tpu-inference"


def workers_of_servers(targets: Sequence[Target]) -> Mapping[str, int]:
    """By worker, how many its server has, where these are more than the pages that count its tokens."""
    slices = defaultdict(list)
    for target in targets:
        slices[target.job, target.slice, target.worker if target.independent else None].append(target)
    workers: dict[str, int] = {}
    for members in slices.values():
        count = max(len(members), *(member.slice_workers or 1 for member in members))
        pages = {member.server_metrics for member in members if member.server_metrics is not None}
        if count > max(len(pages), 1):
            workers |= {member.worker: count for member in members}
    return workers


class _Window(Struct, frozen=True):
    """One sample.

    Attributes:
        at_s: when it came, by a monotonic clock.
        window_s: for how long the profiler looked.
        programs: what ran; nothing if the trace is empty.
        requests: running and waiting as the window began; None if the server did not say.
    """

    at_s: float
    window_s: float
    programs: TracedPrograms
    requests: float | None

    @property
    def middle_s(self) -> float:
        """The middle of its time."""
        return self.at_s + self.window_s / 2


class _Weighted(Struct, frozen=True):
    """A value that held for some time, until `at_s`."""

    at_s: float
    value: float
    for_s: float


class ServerSpan:
    """The samples of one worker, as far as they show a server of models; makes its figures of them."""

    def __init__(self) -> None:
        self._windows: deque[_Window] = deque()
        self._tokens_per_s: deque[_Weighted] = deque()
        self._duty: deque[_Weighted] = deque()
        self._cores = 1
        self._chips = 0
        self._serves = False
        self._noted_s: float | None = None
        self._read_s: float | None = None

    def forget(self) -> None:
        """Forgets all: what answers next may be another process."""
        for values in (self._windows, self._tokens_per_s, self._duty):
            values.clear()
        self._serves = False
        self._noted_s = self._read_s = None

    def joined(
        self, sample: Sample, now_s: float, readings: Sequence[ServerReading], server_workers: int = 1
    ) -> Sample:
        """The sample with the figures of the server; the sample itself where no server is seen.

        Args:
            sample: profiler and extra sources together.
            now_s: the loop's time as the sample began.
            readings: of the server's own metrics, since the sample before.
            server_workers: how many workers they count together.
        """
        failure = sample.failure
        if failure is not None and not sample.is_conclusive:
            return sample
        self._note(sample, now_s, readings)
        server = sample.figures.server
        if not self._serves and server is None:
            return sample
        if failure is not None and failure.reason != "empty-trace":
            return sample  # figures of traces are absent while none can be taken
        figures, absent = self._figures(server or ServerFigures(), server_workers)
        missing = {name: why for name, why in absent.items() if getattr(figures, name) is None}
        return replace(
            sample, figures=replace(sample.figures, server=figures, absent={**sample.figures.absent, **missing})
        )

    def _note(self, sample: Sample, now_s: float, readings: Sequence[ServerReading]) -> None:
        for at_s, read in readings:
            if read.tokens_per_s is not None and self._read_s is not None:
                self._tokens_per_s.append(_Weighted(at_s, read.tokens_per_s, at_s - self._read_s))
            self._read_s = at_s
        for values in (self._windows, self._tokens_per_s, self._duty):
            while values and values[0].at_s < now_s - _SPAN_S:
                values.popleft()
        figures = sample.figures
        self._cores = sample.cores or self._cores
        self._chips = len({core.chip for core in figures.per_core if core.chip is not None}) or self._chips
        requests = next((read.requests for at_s, read in readings if at_s >= now_s), None)
        programs = _programs(sample)
        if programs is not None:
            self._windows.append(_Window(now_s, programs.window_s, programs, requests))
        self._serves = figures.serves or (self._serves and not (_has_programs(figures) and not self._shows_programs))
        duty_ratio = figures.runtime_duty_cycle_ratio
        if duty_ratio is not None and self._noted_s is not None:
            self._duty.append(_Weighted(now_s, duty_ratio, now_s - self._noted_s))
        self._noted_s = now_s

    @property
    def _shows_programs(self) -> bool:
        return any(window.programs.families and window.programs.runs_model for window in self._windows)

    def _figures(self, server: ServerFigures, server_workers: int) -> tuple[ServerFigures, Mapping[str, str]]:
        """Figures of the windows and of the server's own metrics, and the reasons of absent ones."""
        windows = self._windows if self._serves else ()
        traced_s = sum(window.window_s for window in windows)
        known = all(window.programs.busy_s is not None for window in windows)
        busy = _busy_ratio(windows) if known and traced_s > 0 else None
        why_not_busy = _NO_PROGRAMS if traced_s <= 0 else _CALLS_ONLY
        gap, why_no_gap = self._host_gap(windows) if busy is not None else (None, why_not_busy)
        device_s, source, why_no_device_s = self._device_s_per_token(windows if known else ())
        tokens_per_s = server.tokens_per_s
        per_chip = tokens_per_s / self._chips if tokens_per_s is not None and self._chips else None
        why_not_per_chip = _NO_TOKENS if tokens_per_s is None else _NO_CHIPS
        if server.engines is not None:  # and the windows are of one of them
            gap = device_s = source = per_chip = None
            why_no_gap = why_no_device_s = why_not_per_chip = (
                f"its page counts the requests of {server.engines} engines together"
            )
        elif server_workers > 1 and tokens_per_s is not None:  # and the time and the chips are this one's
            device_s = source = per_chip = None
            why_no_device_s = why_not_per_chip = f"its page counts the tokens of {server_workers} workers together"
        computed = replace(
            server,
            busy_ratio=busy,
            families=_families(windows, with_times=known),
            device_s_per_token=device_s,
            device_time_source=source,
            padding_ratio=_padding_ratio(windows),
            host_gap_ratio=gap,
            tokens_per_s_per_chip=per_chip,
        )
        return computed, {
            "busy_ratio": why_not_busy,
            "device_s_per_token": why_no_device_s,
            "padding_ratio": _NO_BATCHES if windows else _NO_PROGRAMS,
            "host_gap_ratio": why_no_gap,
            "tokens_per_s_per_chip": why_not_per_chip,
        }

    def _device_s_per_token(
        self, windows: Sequence[_Window]
    ) -> tuple[float | None, Literal["programs", "libtpu"] | None, str]:
        """Time in programs on all cores per generated token, by libtpu's duty cycle where that is there.

        Of the windows those in which tokens were counted: those of the last one are told by the next reading.
        """
        tokens_per_s, duty_ratio = _mean_over_time(self._tokens_per_s), _mean_over_time(self._duty)
        counted = [
            window
            for window in windows
            if any(each.at_s - each.for_s <= window.middle_s < each.at_s for each in self._tokens_per_s)
        ]
        ratio = _busy_ratio(counted) if duty_ratio is None else duty_ratio
        if tokens_per_s is None:
            return None, None, _NO_TOKENS
        if not tokens_per_s:
            return None, None, "no token was generated in the last two minutes"
        if ratio is None:
            return None, None, _NO_PROGRAMS
        return ratio * self._cores / tokens_per_s, "programs" if duty_ratio is None else "libtpu", ""

    @staticmethod
    def _host_gap(windows: Sequence[_Window]) -> tuple[float | None, str]:
        """Share of the time with requests in which no program ran.

        Only where nearly all windows begin with requests there: else these come and go more quickly than windows do,
        and idle time may be without any.
        """
        joined = [(window, window.requests) for window in windows if window.requests is not None]
        having = [window for window, requests in joined if requests]
        if not joined:
            return None, _NO_REQUESTS
        if len(having) < _FEW_WINDOWS or sum(requests for _, requests in joined) < _FEW_REQUESTS:
            return None, "there were no requests, or few"
        if len(having) < _NEARLY_ALL * len(joined):
            return None, "requests come and go"
        return 1 - (_busy_ratio(having) or 0.0), ""


def _programs(sample: Sample) -> TracedPrograms | None:
    """The window's programs; None if it is none, as after a probe, or programs ran in it that are no server's."""
    figures = sample.figures
    if figures.traced_programs is not None:
        return figures.traced_programs
    is_empty = (sample.source == "trace" and sample.device_type is not None) or (
        sample.failure is not None and sample.failure.reason == "empty-trace"
    )
    if not is_empty or sample.truncated or _has_programs(figures) or not sample.window_s:
        return None
    return TracedPrograms(busy_s=0.0, window_s=sample.window_s)


def _has_programs(figures: Figures) -> bool:
    return bool(figures.programs or figures.functions)


def _busy_ratio(windows: Sequence[_Window]) -> float | None:
    traced_s = sum(window.window_s for window in windows)
    return min(sum(window.programs.busy_s or 0.0 for window in windows) / traced_s, 1.0) if traced_s > 0 else None


def _padding_ratio(windows: Sequence[_Window]) -> float | None:
    with_padding = [window.programs for window in windows if window.programs.padded_tokens]
    padded = sum(each.padded_tokens or 0 for each in with_padding)
    return max(0.0, 1 - sum(each.real_tokens or 0 for each in with_padding) / padded) if padded else None


def _families(windows: Sequence[_Window], *, with_times: bool) -> tuple[FamilyFigures, ...]:
    """The families that ran, the one with most time first."""
    runs: dict[ProgramFamily, list[FamilyRuns]] = {}
    for window in windows:
        for each in window.programs.families:
            runs.setdefault(each.family, []).append(each)
    durations_s = {family: [each_s for each in mine for each_s in each.durations_s] for family, mine in runs.items()}
    times_s = {family: sum(mine) for family, mine in durations_s.items()}
    total_s = sum(times_s.values())
    return tuple(
        FamilyFigures(
            family=family,
            executions_per_s=_rate(durations_s[family], windows) if durations_s[family] else None,
            duration_s=_percentiles(durations_s[family]),
            time_ratio=times_s[family] / total_s if times_s[family] and with_times else None,
            sizes=tuple(sorted({size for each in runs[family] for size in each.sizes}))[:MOST_SIZES],
        )
        for family in sorted(runs, key=lambda family: -times_s[family])
    )


def _rate(durations_s: Sequence[float], windows: Sequence[_Window]) -> float:
    """Runs per second. A window shows only whole runs, so a run must begin early enough in it to end in it.

    A run that fills more than half of a window counts as half of it: else a run that just fits would count for many.
    """
    lengths_s = [window.window_s for window in windows]
    return sum(
        1 / sum(max(window_s - run_s, _LEAST_EXPOSED_RATIO * window_s) for window_s in lengths_s)
        for run_s in durations_s
    )


def _percentiles(durations_s: Sequence[float]) -> Percentiles | None:
    if not durations_s:
        return None
    twentieths = quantiles(
        [*durations_s, *durations_s[:1]] if len(durations_s) < 2 else durations_s, n=20, method="inclusive"
    )
    return Percentiles(p50=twentieths[9], p95=twentieths[18])


def _mean_over_time(values: Sequence[_Weighted]) -> float | None:
    total_s = sum(each.for_s for each in values)
    return sum(each.value * each.for_s for each in values) / total_s if total_s > 0 else None

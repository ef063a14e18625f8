"""The one place that decides which state a sample puts its worker in."""

from __future__ import annotations

from tpumon.errors import MEANING
from tpumon.model import Figures, Process, Sample, State
from tpumon.model.figure_table import IDLE, MXU

_ALL_IDLE_RATIO = 0.9999
_SAME_UPTIME_S = 1.0
_SAME_START_S = 2.0  # the start of a process is known by the wall clock, which may be set
_LISTENING: frozenset[State] = frozenset({"no-activity", "busy", "continuous"})


def state_of(sample: Sample | None) -> State:
    """The state after a query; None: there was none yet."""
    if sample is None:
        return "waiting"
    failure = sample.failure
    if failure is None:
        return "no-activity" if nothing_ran(sample.figures) else "live"
    if sample.of_exporter:
        return "stale"
    state = MEANING[failure.reason].state
    if state == "down" and sample.has_figures:
        return "no-activity" if nothing_ran(sample.figures) else "live"
    return state


def nothing_ran(figures: Figures) -> bool:
    """True if the figures say that nothing ran: no step, and the device idle all the time.

    The device's idle time is that of the window; without it, the duty cycle that the runtime reports of each device.
    Without either, a node's Monitor: while no step runs it sends the use of the matrix units alone.
    """
    steps = figures.step_time_s
    if (steps is not None and steps.avg > 0) or figures.functions or (MXU.value(figures) or 0.0) > 0:
        return False
    if figures.idle_ratio is not None:
        return figures.idle_ratio >= _ALL_IDLE_RATIO
    duty = [device.runtime_duty_cycle_ratio for device in figures.devices]
    if duty:
        return all(ratio == 0 for ratio in duty)
    return figures.mxu_method == "server" and MXU.value(figures) == 0 and IDLE.why_absent(figures) is not None


def restarted(
    sample: Sample, *, process: Process | None, uptime_s: float | None, was_closed: bool, listened_unix_s: float
) -> bool:
    """True if the worker's job was restarted before this sample.

    A restart is one of: another process; an uptime of the runtime that went back; an answer after nothing had listened
    at the port, from a runtime that, if it tells its uptime, began since.

    Args:
        sample: the sample.
        process: the process that its samples named last.
        uptime_s: the last uptime that its runtime reported.
        was_closed: whether its profiler had answered before, and nothing listened at its port at the last query.
        listened_unix_s: when something did last.
    """
    now = sample.process if listens(sample) else None
    if process is not None and now is not None and not _is_same(process, now):
        return True
    now_s = sample.figures.runtime.uptime_s
    if uptime_s is not None and now_s is not None:
        went_back = now_s < uptime_s - _SAME_UPTIME_S
        if went_back or sample.time_unix_s - now_s <= listened_unix_s:
            return went_back
    return was_closed and listens(sample) and (process is None or now is None)


def restart_unix_s(sample: Sample, after_unix_s: float) -> float:
    """Begin of a job, by its first sample: of its process, else of its runtime, else of the sample.

    Args:
        sample: the first of the job.
        after_unix_s: when the job before was seen last; what began before that has not replaced it.
    """
    process, uptime_s = sample.process, sample.figures.runtime.uptime_s
    began = (
        None if process is None else process.started_unix_s,
        None if uptime_s is None else sample.time_unix_s - uptime_s,
    )
    earliest_unix_s = after_unix_s - _SAME_START_S
    possible = (one for one in began if one is not None and earliest_unix_s <= one <= sample.time_unix_s)
    return next(possible, sample.time_unix_s)


def _is_same(process: Process, other: Process) -> bool:
    if process.started_unix_s is None or other.started_unix_s is None:
        return process.pid == other.pid
    return process.pid == other.pid and abs(process.started_unix_s - other.started_unix_s) < _SAME_START_S


def began_before(process: Process | None, other: Process | None) -> bool:
    """True if both are known and the first is an earlier one."""
    if process is None or other is None or process.started_unix_s is None or other.started_unix_s is None:
        return False
    return other.started_unix_s - process.started_unix_s >= _SAME_START_S


def listens(sample: Sample) -> bool:
    """True if a profiler listens at its port: a job that was restarted compiles first, so its first trace is empty."""
    failure = sample.failure
    return failure is None or (not sample.of_exporter and MEANING[failure.reason].state in _LISTENING)

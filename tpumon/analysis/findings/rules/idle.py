"""host-bound and idle: the device has nothing to do between steps."""

from __future__ import annotations

from tpumon.analysis.findings.rule import Member, Observation, Rule
from tpumon.analysis.findings.rules.input_bound import IDLE_LIMIT_RATIO, input_share
from tpumon.model import Evidence, FindingDetail
from tpumon.model.figure_table import IDLE


def _detail(idle: float, words: str, sentence: str) -> FindingDetail:
    return FindingDetail(
        words=words,
        sentence=sentence,
        evidence={"idle_ratio": Evidence(value=idle, threshold=IDLE_LIMIT_RATIO)},
        figure=IDLE.key,
    )


class HostBound(Rule[None, None]):
    """Idle above 20 % of the window, although the program does not wait for input; or as much in callbacks to Python.

    Idle time is measured of devices, callbacks of programs that run on the host's CPU.
    """

    finding = "host-bound"
    remedy = (
        "give the TPU more work per call: steps_per_execution (Keras), iterations_per_loop (TPUEstimator), "
        "jax.lax.scan over several steps; fetch losses and write logs every N steps only; remove callbacks and "
        "block_until_ready from the loop"
    )
    hidden_by = frozenset({"hang", "input-bound", "straggler", "recompiling", "barrier-wait", "debug-print"})

    def severity_ratio(self, member: Member[None, None]) -> float | str:
        """Relative to the limit."""
        idle, found = member.seen.figures.idle_ratio, input_share(member.seen)
        if idle is None:
            return self._of_callbacks(member.seen)
        if found is None:
            return "no infeed ops, no events of an input pipeline: idle may be waiting for input"
        return idle / IDLE_LIMIT_RATIO

    def _of_callbacks(self, seen: Observation) -> float | str:
        """Few callbacks say nothing of Python between steps, so that without idle time they are no all-clear."""
        share = seen.figures.callback_ratio
        if share is None:
            return "idle time is not known"
        severity_ratio = share / IDLE_LIMIT_RATIO
        return (
            severity_ratio
            if severity_ratio >= self.leaves_below
            else "idle time is not known, and callbacks take little"
        )

    def detail(self, member: Member[None, None]) -> FindingDetail:
        """Says what it is not, or that it is callbacks."""
        if member.seen.figures.idle_ratio is None:
            return _detail_of_callbacks(member.seen.figures.callback_ratio or 0.0)
        idle = member.seen.figures.idle_ratio
        waited = (input_share(member.seen) or (0.0, ""))[0]
        return _detail(
            idle,
            f"idle {idle:.0%}, not for input",
            f"{{who}}, the TPU is idle {idle:.0%} of the time between its programs, and waits for input only "
            f"{waited:.0%}: the host hands out work too slowly (dispatch, Python, callbacks, logging).",
        )


def _detail_of_callbacks(share: float) -> FindingDetail:
    return FindingDetail(
        words=f"callbacks {share:.0%}",
        sentence=f"{{who}}, compiled programs run Python {share:.0%} of the time, in callbacks.",
        evidence={"callback_ratio": Evidence(value=share, threshold=IDLE_LIMIT_RATIO)},
        remedy="take Python out of the compiled step: no jax.pure_callback, io_callback, jax.debug.callback or "
        "jax.debug.print in it, or only every N steps; compute in JAX, or before the step",
    )


class Idle(Rule[None, None]):
    """Idle above 20 % of the window, where it cannot be told whether for input or for the host."""

    finding = "idle"
    remedy = (
        "take host events for a moment (--host-tracer-level 1) to see whether it waits for input or for Python; then "
        "prefetch input, or run several steps per call"
    )
    hidden_by = frozenset(
        {"hang", "input-bound", "host-bound", "straggler", "recompiling", "barrier-wait", "debug-print"}
    )

    def severity_ratio(self, member: Member[None, None]) -> float | str:
        """Relative to the limit."""
        idle = member.seen.figures.idle_ratio
        if idle is None:
            return "idle time is not known"
        return 0.0 if input_share(member.seen) is not None else idle / IDLE_LIMIT_RATIO

    def detail(self, member: Member[None, None]) -> FindingDetail:
        """Says that the reason is not known."""
        idle = member.seen.figures.idle_ratio or 0.0
        return _detail(
            idle,
            f"idle {idle:.0%}",
            f"{{who}}, the TPU is idle {idle:.0%} of the time between its programs: it waits for its host, for input "
            "or for dispatch.",
        )

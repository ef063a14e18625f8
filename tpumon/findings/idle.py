"""host-bound and idle: the device has nothing to do between steps."""

from __future__ import annotations

from tpumon.figures import IDLE
from tpumon.findings.base import Account, Member, Rule
from tpumon.findings.input_bound import input_share
from tpumon.model import Evidence

LIMIT_RATIO = 0.20
"""Idle time above this counts. XProf suggests to look from 10 % on; gaps of a few percent are usual."""


def _account(idle: float, words: str, sentence: str) -> Account:
    return Account(
        words=words,
        sentence=sentence,
        evidence={"idle_ratio": Evidence(value=idle, threshold=LIMIT_RATIO)},
        figure=IDLE.key,
    )


class HostBound(Rule[None, None]):
    """Idle above 20 % of the window, although the program does not wait for input."""

    finding = "host-bound"
    remedy = (
        "give the TPU more work per call: steps_per_execution (Keras), iterations_per_loop (TPUEstimator), "
        "jax.lax.scan over several steps; fetch losses and write logs every N steps only; remove callbacks and "
        "block_until_ready from the loop"
    )
    hidden_by = frozenset({"hang", "input-bound", "straggler", "recompiling", "barrier-wait", "debug-print"})

    def strength(self, member: Member[None, None]) -> float | str:
        """Relative to the limit."""
        idle, found = member.seen.figures.idle_ratio, input_share(member.seen)
        if idle is None:
            return "idle time is not known"
        if found is None:
            return "no infeed ops and no host events: idle time may be waiting for input"
        return idle / LIMIT_RATIO

    def account(self, member: Member[None, None]) -> Account:
        """Says what it is not."""
        idle = member.seen.figures.idle_ratio or 0.0
        waited = (input_share(member.seen) or (0.0, ""))[0]
        return _account(
            idle,
            f"idle {idle:.0%}, not for input",
            f"{{who}}, the TPU is idle {idle:.0%} of the time between its programs, and waits for input only "
            f"{waited:.0%}: the host hands out work too slowly (dispatch, Python, callbacks, logging).",
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

    def strength(self, member: Member[None, None]) -> float | str:
        """Relative to the limit."""
        idle = member.seen.figures.idle_ratio
        if idle is None:
            return "idle time is not known"
        return 0.0 if input_share(member.seen) is not None else idle / LIMIT_RATIO

    def account(self, member: Member[None, None]) -> Account:
        """Says that the reason is not known."""
        idle = member.seen.figures.idle_ratio or 0.0
        return _account(
            idle,
            f"idle {idle:.0%}",
            f"{{who}}, the TPU is idle {idle:.0%} of the time between its programs: it waits for its host, for input "
            "or for dispatch.",
        )

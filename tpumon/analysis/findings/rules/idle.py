"""host-bound and idle: the device has nothing to do between steps."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from tpumon.analysis.findings.recent import Recent, alike_s
from tpumon.analysis.findings.rule import (
    SERVERS,
    MayBeOther,
    Member,
    NeedsFewMoreSamples,
    Observation,
    Rule,
    Sibling,
    Suspected,
)
from tpumon.analysis.findings.rules.input_bound import input_share
from tpumon.analysis.history import Moment
from tpumon.model import IDLE_LIMIT_RATIO, Evidence, FindingDetail
from tpumon.model.figure_table import BETWEEN_PROGRAMS, IDLE
from tpumon.untrusted_text import listed

_FEWEST = 3  # workers, of which one may idle less than the others
_REMEDY_OF_BUSIEST = (
    "look first at the cores of the worker that idles least: `tpumon report --service-addr HOST:PORT --section steps`"
)
_MAY_BE_AWAITED = "it idles least, and others may wait for it: too few samples tell"
_STEPLESS = 2  # samples in a row: short windows of long steps
_FIRST = 1.5  # beyond the distances from the limit that chance makes
_LESS_RATIO, _APART = 0.005, 2.0  # of the time, and times as far as the others are from each other
_NOISES = 4.0  # times as far as samples of one worker are from each other


class IdleAndInput(Recent):
    """Idle time of the last samples, and the share of waiting for input that counts for the last one.

    Attributes:
        share: as `input_share` has it; of a window without a step that of the sample before, twice at most.
        at: time of the last sample.
    """

    def __init__(self) -> None:
        super().__init__()
        self.share: tuple[float, str] | None = None
        self.at: Moment | None = None
        self._stepless = 0

    def note_input(self, seen: Observation) -> None:
        """Notes what a sample says of waiting for input; a window without a step says nothing of it."""
        share = input_share(seen)
        self._stepless = self._stepless + 1 if share is None and not seen.step_s else 0
        if not 0 < self._stepless <= _STEPLESS:
            self.share = share


class Busiest(NamedTuple):
    """The worker that idles clearly less than all others of its slice.

    Attributes:
        worker, idle: the worker, and for what share of the time it idles.
        most: the most that another one idles.
        is_early: whether some have too few samples to tell.
    """

    worker: str
    idle: float
    most: float
    is_early: bool = False


def _between_ratio(seen: Observation) -> float | None:
    """Share of the time in which no program ran; where that is not known, in which no op did."""
    between = seen.figures.idle_between_programs_ratio
    return seen.figures.idle_ratio if between is None else between


def _device(seen: Observation) -> str:
    return "GPU" if any(warning.code == "gpu" for warning in seen.sample.warnings) else "TPU"


def _idle_words(seen: Observation) -> str:
    """Says how long the device is idle, and how much of that is between programs, as far as it is known."""
    idle, between = seen.figures.idle_ratio or 0.0, seen.figures.idle_between_programs_ratio
    where = "" if between is None else f", {between:.0%} between its programs"
    return f"the {_device(seen)} is idle {idle:.0%} of the time{where}"


def _usual(sibling: Sibling[IdleAndInput]) -> float | None:
    """Idle time of the last samples; that of the last one while they are few."""
    return sibling.seen.figures.idle_ratio if sibling.memory.median is None else sibling.memory.median


class _WholeWorkers(Rule[IdleAndInput, Busiest | None]):
    """Idle time that only figures of whole workers tell: it may be waiting for a slow core of the busiest worker."""

    memory_type = IdleAndInput
    compares = True

    def remember(self, memory: IdleAndInput, seen: Observation) -> None:
        """Remembers idle time and waiting for input."""
        if seen.state == "live":
            if seen.is_long_after(memory.at):
                memory.forget()
            memory.at = seen.at
            memory.note_input(seen)
            if seen.figures.idle_ratio is not None:
                memory.add(seen.figures.idle_ratio)

    def slice_stats(self, siblings: Sequence[Sibling[IdleAndInput]]) -> Busiest | None:
        """The worker for which the others may wait; None: none stands out, or cores are seen, as in traces."""
        live = [sibling for sibling in siblings if sibling.seen.state == "live"]
        known = sorted((idle, sibling.seen.target.worker) for sibling in live if (idle := _usual(sibling)) is not None)
        steps = sorted(sibling.seen.step_s or 0.0 for sibling in live)
        if len(known) < max(_FEWEST, len(live)) or any(sibling.seen.figures.per_core for sibling in live):
            return None
        (least, worker), (second, _), (most, _) = known[0], known[1], known[-1]
        is_one_job = steps[0] > 0 and steps[-1] <= alike_s(steps[0], 0.0)[1]
        noise = median(sibling.memory.spread for sibling in live)
        stands_out = second - least > max(_LESS_RATIO, _APART * (most - second), _NOISES * noise)
        most = min(most, max(sibling.seen.figures.idle_ratio or 0.0 for sibling in live))  # what is over waits no more
        is_early = any(sibling.memory.median is None for sibling in live)
        return Busiest(worker, least, most, is_early) if is_one_job and stands_out else None

    def may_wait(self, member: Member[IdleAndInput, Busiest | None]) -> Busiest | None:
        """The worker for which this one may wait."""
        busiest = member.slice_stats
        is_own = busiest is None or busiest.is_early or busiest.worker == member.seen.target.worker
        return None if is_own else busiest

    def awaited(self, member: Member[IdleAndInput, Busiest | None]) -> Busiest | None:
        """This worker, if the others may wait for it, idle beyond the limit; it then has the finding that they have."""
        busiest = member.slice_stats
        is_other = busiest is None or busiest.worker != member.seen.target.worker
        return None if is_other or busiest is None or busiest.most <= IDLE_LIMIT_RATIO else busiest

    def of_idle(self, idle: float, member: Member[IdleAndInput, Busiest | None]) -> float | str:
        """Idle time relative to the limit; the worker for which others may wait comes before them."""
        awaited = self.awaited(member)
        if awaited is None:
            return idle / IDLE_LIMIT_RATIO
        if awaited.is_early:
            return idle / IDLE_LIMIT_RATIO if idle > IDLE_LIMIT_RATIO else Suspected(_MAY_BE_AWAITED)
        return _FIRST * awaited.most / IDLE_LIMIT_RATIO

    def why_later(self, member: Member[IdleAndInput, Busiest | None]) -> Suspected | None:
        """While too few samples tell who waits for whom, a worker that waits for a straggler looks the same."""
        waits = isinstance(member.unseen, NeedsFewMoreSamples) and not self.rests_on_several(member)
        return Suspected(f"tpumon {member.unseen}") if waits else None

    def rests_on_several(self, member: Member[IdleAndInput, Busiest | None]) -> bool:
        """True of the worker for which others may wait: medians of several samples tell that."""
        awaited = self.awaited(member)
        return awaited is not None and not awaited.is_early

    def of_waiting(
        self, member: Member[IdleAndInput, Busiest | None], words: str, why: str, *, beside: str = "", remedy: str = ""
    ) -> FindingDetail:
        """A device that waits; a warning only where that cannot be for a worker that is not followed."""
        seen, unseen = member.seen, member.unseen
        if isinstance(unseen, NeedsFewMoreSamples):
            unseen = None  # it was present before
        idle, between = seen.figures.idle_ratio or 0.0, seen.figures.idle_between_programs_ratio
        idles = _idle_words(seen)
        waits = why if unseen is None else f"it waits for its host or for another worker (tpumon {unseen})"
        busiest = member.slice_stats
        if busiest is not None and (self.may_wait(member) or self.rests_on_several(member)):
            is_own = busiest.worker == seen.target.worker
            if is_own:
                idle, between = busiest.most, None
                words = f"idles least ({busiest.idle:.1%}), others may wait for it"
                idles = f"the {_device(seen)} is idle {busiest.idle:.1%} to {busiest.most:.1%} of the time"
            else:
                words = f"idle {idle:.0%}, may wait for {busiest.worker}"
            waits += (
                f"; or {'the others wait' if is_own else 'it waits'} for {listed((busiest.worker,), 1)}, which idles "
                f"least ({busiest.idle:.1%}) while steps are equally long: one of its cores may be slow"
            )
            remedy = f"{_REMEDY_OF_BUSIEST}; else {remedy or self.remedy}"
        evidence = {"idle_ratio": Evidence(value=idle, threshold=IDLE_LIMIT_RATIO)}
        if between is not None:
            evidence[BETWEEN_PROGRAMS.fields[0]] = Evidence(value=between)
        return FindingDetail(
            words=words,
            sentence=f"{{who}}, {idles}{beside}: {waits}.",
            evidence=evidence,
            figure=IDLE.key,
            remedy=remedy,
            severity="warning" if unseen is None else "info",
        )


class HostBound(_WholeWorkers):
    """No program above 20 % of the window, although it does not wait for input; or as much in callbacks to Python.

    Idle time is measured of devices, callbacks of programs that run on the host's CPU.
    """

    finding = "host-bound"
    not_for = SERVERS
    remedy = (
        "give the device more work per call: steps_per_execution (Keras), iterations_per_loop (TPUEstimator), "
        "jax.lax.scan over several steps; fetch losses and write logs every N steps only; remove callbacks and "
        "block_until_ready from the loop"
    )
    severities = ("info", "warning")
    hidden_by = frozenset({"hang", "input-bound", "straggler", "recompiling", "barrier-wait", "debug-print"})

    def severity_ratio(self, member: Member[IdleAndInput, Busiest | None]) -> float | str:
        """Relative to the limit."""
        between, share = _between_ratio(member.seen), member.memory.share
        if between is None:
            return self._of_callbacks(member.seen)
        if share is None:
            return MayBeOther("no infeed ops, no events of an input pipeline: idle may be waiting for input")
        return self.of_idle(between, member)

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

    def detail(self, member: Member[IdleAndInput, Busiest | None]) -> FindingDetail:
        """Says what it is not, or that it is callbacks."""
        if member.seen.figures.idle_ratio is None:
            return _detail_of_callbacks(member.seen.figures.callback_ratio or 0.0)
        waited = (member.memory.share or (0.0, ""))[0]
        figures = member.seen.figures  # a short trace may hold no whole run of a program
        of_trace = figures.idle_between_programs_ratio is not None or bool(figures.per_core)
        why = "the host hands out work too slowly (dispatch, Python, callbacks, logging)"
        detail = self.of_waiting(
            member,
            f"idle {member.seen.figures.idle_ratio:.0%}, not for input",
            why
            if of_trace or self.may_wait(member) or self.rests_on_several(member)
            else f"{why}, or one core is slow, which figures of whole workers do not show",
            beside=f", and waits for input only {waited:.0%}",
        )
        return detail if of_trace else replace(detail, confidence="medium")


def _detail_of_callbacks(share: float) -> FindingDetail:
    return FindingDetail(
        words=f"callbacks {share:.0%}",
        sentence=f"{{who}}, compiled programs run Python {share:.0%} of the time, in callbacks.",
        evidence={"callback_ratio": Evidence(value=share, threshold=IDLE_LIMIT_RATIO)},
        remedy="take Python out of the compiled step: no jax.pure_callback, io_callback, jax.debug.callback or "
        "jax.debug.print in it, or only every N steps; compute in JAX, or before the step",
    )


_REMEDY_WITHIN = (
    "look at the gaps within a step (tpumon --level 0, then XProf's trace viewer) for what the ops beside them wait "
    "for: the host (transfers, callbacks), or other chips"
)
_REMEDY_WITH_HOST_EVENTS = (
    "the host's events show no input pipeline: that of Keras' fit shows at --host-tracer-level 2 only, loops in "
    "Python, NumPy and JAX never do (py-spy shows them); then prefetch input, or run several steps per call"
)


class Idle(_WholeWorkers):
    """Idle above 20 % of the window, where it cannot be told whether for input or for the host, or for neither."""

    finding = "idle"
    not_for = SERVERS
    of_device = True
    remedy = (
        "trace the host once to see whether it waits for input or for Python: `tpumon --level 0 --host-tracer-level 2 "
        "--logdir DIR`, then `tpumon why --from DIR` (not with jaxlib 0.5.0 to 0.8.3 without TensorFlow, which it may "
        "hang); then prefetch input, or run several steps per call"
    )
    severities = ("info", "warning")
    hidden_by = frozenset(
        {"hang", "input-bound", "host-bound", "straggler", "recompiling", "barrier-wait", "debug-print"}
    )

    def severity_ratio(self, member: Member[IdleAndInput, Busiest | None]) -> float | str:
        """Relative to the limit; where input is known and `host-bound` has what is between programs, of the rest."""
        idle, between = member.seen.figures.idle_ratio, _between_ratio(member.seen) or 0.0
        if idle is None:
            return "idle time is not known"
        if member.memory.share is None:
            return self.of_idle(idle, member)
        return (idle - between if between > IDLE_LIMIT_RATIO else idle) / IDLE_LIMIT_RATIO

    def detail(self, member: Member[IdleAndInput, Busiest | None]) -> FindingDetail:
        """Says where it is idle, and what is not known."""
        seen, idle = member.seen, member.seen.figures.idle_ratio or 0.0
        between = seen.figures.idle_between_programs_ratio
        if between is not None and between < idle / 2:
            why = "for the rest programs run, but none of their ops"
            remedy = _REMEDY_WITHIN
        elif between is not None and member.memory.share is not None:
            why = "there it waits for its host, and for the rest programs run, but none of their ops"
            remedy = HostBound.remedy
        else:
            why = "it waits for its host, for input or for dispatch"
            remedy = "" if seen.figures.compile_ratio is None else _REMEDY_WITH_HOST_EVENTS
        return self.of_waiting(member, f"idle {idle:.0%}", why, remedy=remedy)

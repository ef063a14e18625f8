"""Kinds of jobs, by what is seen of a worker: training, a server of models, a notebook.

Some findings hold for training only: whoever serves or sits before a notebook makes pauses and changes of their own.
"""

from __future__ import annotations

import re
from collections import deque

from tpumon.model import JobKind, JobKindName, Sample, Target

_TRAINING = re.compile(r"(?:^|[^a-z])(?:pre)?train(?:_?step|_?function|_?loop|er|ing)?(?:[^a-z]|$)", re.IGNORECASE)
_INFERENCE = re.compile(
    r"(?:^|[^a-z])(?:generate|prefill|insert|decode|run_model|step_fun|execute_model|forward_batch_generation)(?:[^a-z]|$)",
    re.IGNORECASE,
)
_STEPS = 3  # samples in a row with the same step
_ALIKE_RATIO = 0.2  # their step times differ by no more

# Signs by strength: what is seen later replaces only what is weaker.
_STARTED, _KEPT, _REGULAR, _MARKERS, _INFERS, _TRAINS, _PROCESSES, _GIVEN = range(8)

_OPTION = ("--job-kind",)


class KindOfWorker:
    """The kind of job of one worker, as far as its samples and its processes show it.

    Args:
        kept: the kind that was known before tpumon was restarted.

    Attributes:
        known: the kind; None before the first sample.
    """

    def __init__(self, kept: JobKind | None = None) -> None:
        if kept is not None and kept.evidence == _OPTION:
            kept = None  # it counts while it is given
        self.known = kept
        self._strength = _KEPT if kept is not None and kept.evidence else -1
        self._steps: deque[tuple[str | None, float]] = deque(maxlen=_STEPS)

    def note(self, sample: Sample, target: Target, *, restarted: bool = False) -> JobKind:
        """Notes a sample of the worker; returns the kind.

        Args:
            sample: the sample.
            target: the worker.
            restarted: whether its job was restarted before it; then the kind is looked for anew.
        """
        if restarted:
            self.known, self._strength = None, -1
            self._steps.clear()
        strength, kind, evidence = self._seen(sample, target)
        if self.known is None or strength > self._strength:
            since_unix_s = sample.time_unix_s
            if self.known is not None and self.known.kind == kind:
                since_unix_s = self.known.since_unix_s or since_unix_s
            self.known = JobKind(kind=kind, evidence=(evidence,) if evidence else (), since_unix_s=since_unix_s)
            self._strength = strength
        return self.known

    def _seen(self, sample: Sample, target: Target) -> tuple[int, JobKindName, str]:
        """The strongest sign: its strength, the kind that it speaks for, and its words."""
        if target.job_kind is not None:
            return _GIVEN, target.job_kind, *_OPTION
        if "notebook" in target.kind_signs:
            return _PROCESSES, "interactive", "a notebook's kernel in its process tree"
        if "server" in target.kind_signs:
            return _PROCESSES, "serving", "a server of models in its process tree"
        figures = sample.figures
        step = figures.step_name
        programs = [step] if step else [function.name for function in figures.functions or ()]
        trained = next((name for name in programs if _TRAINING.search(name)), None)
        if trained is not None:  # also where a model is trained on what it generates
            return _TRAINS, "training", f"{trained} is a program of training"
        served = next((name for name in programs if _INFERENCE.search(name)), None)
        if served is not None:
            return _INFERS, "unknown", f"{served} is a program of inference"
        if figures.step_time_s is not None and figures.step_source in {"steps", "server"}:
            return _MARKERS, "training", "step markers"
        if figures.step_time_s is not None:
            self._steps.append((step, figures.step_time_s.avg))
        starts_as_job = "job" in target.kind_signs
        if self._is_regular() and (target.process is not None or starts_as_job):
            return _REGULAR, "training", "the same step again and again"
        if starts_as_job:
            return _STARTED, "training", "started as a job that ends by itself"
        return -1, "unknown", ""

    def _is_regular(self) -> bool:
        """True if the last samples had the same step."""
        if len(self._steps) < _STEPS or len({name for name, _ in self._steps}) > 1:
            return False
        times_s = [step_s for _, step_s in self._steps]
        return max(times_s) <= min(times_s) * (1 + _ALIKE_RATIO)

"""Kinds of jobs, by what is seen of a worker: training, a server of models, both in turn, a notebook.

Some findings hold for some kinds only: servers and notebooks have pauses and changes that are no fault.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tpumon.model import JobKind, JobKindName, ProgramFamily, Sample, Target
from tpumon.model.server_figures import SERVING, inferring_family_of
from tpumon.model.target import INFERRING

_TRAINING = re.compile(r"(?:^|[^a-z])(?:pre)?train(?:_?step|_?function|_?loop|er|ing)?(?:[^a-z]|$)", re.IGNORECASE)
_ENGINE = re.compile(r"^(?:execute_model\b|run_batch$|forward_batch_generation)")
_FAMILIES = 2
_STEPS = 3  # samples in a row with the same step
_ALIKE_RATIO = 0.2  # their step times differ by no more
_BUSY_RATIO, _NOT_BUSY_RATIO = 0.9, 0.7
_SPAN_S = 3600.0

Sign = Literal["given", "notebook", "requests", "server", "train", "engine", "families", "program", "markers", "steps"]
"""Signs of a kind that hold for a span of time, the strongest first."""

_EVIDENCE: Mapping[Sign, str] = {
    "given": "--job-kind",
    "notebook": "a notebook's kernel in its process tree",
    "requests": "a server's own metrics tell its requests",
    "server": "a server of models in its process tree",
    "train": "{} is a program of training",
    "engine": "{} is an engine of inference",
    "families": "programs of inference: {}",
    "program": "{} is a program of inference",
    "markers": "step markers",
    "steps": "the same step again and again",
}


@dataclass(slots=True)
class _SeenSign:
    """A sign: its words as it was seen first, and when it was seen last."""

    words: str
    last_unix_s: float


class KindOfWorker:
    """The kind of job of one worker, as far as its samples and its processes show it.

    Signs are collected over an hour in which something ran. One that is older counts until another one is seen: a job
    that waits is what it was.

    Args:
        kept: the kind that was known before tpumon was restarted.

    Attributes:
        known: the kind; None before the first sample.
    """

    def __init__(self, kept: JobKind | None = None) -> None:
        if kept is not None and _EVIDENCE["given"] in kept.evidence:
            kept = None  # it counts while it is given
        self.known = kept
        self._kept = kept if kept is not None and kept.evidence else None
        self._signs: dict[Sign, _SeenSign] = {}
        self._families: set[ProgramFamily] = set()
        self._steps: deque[tuple[str | None, float]] = deque(maxlen=_STEPS)
        self._is_busy = self._has_run = False

    def note(self, sample: Sample, target: Target, *, restarted: bool = False) -> JobKind:
        """Notes a sample of the worker; returns the kind.

        Args:
            sample: the sample.
            target: the worker.
            restarted: whether its job was restarted before it; then the kind is looked for anew.
        """
        if restarted:
            self.known = self._kept = None
            self._is_busy = self._has_run = False
            for of_the_other in (self._signs, self._families, self._steps):
                of_the_other.clear()
        self._note_signs(sample, target)
        kind, evidence = self._kind(target)
        if self.known is None or (kind, evidence) != (self.known.kind, self.known.evidence):
            same = self.known is not None and self.known.kind == kind
            since_unix_s = self.known.since_unix_s if same and self.known is not None else None
            self.known = JobKind(kind=kind, evidence=evidence, since_unix_s=since_unix_s or sample.time_unix_s)
        return self.known

    def _note_signs(self, sample: Sample, target: Target) -> None:
        figures, server, now_unix_s = sample.figures, sample.figures.server, sample.time_unix_s
        self._has_run |= _ran(sample)
        if figures.step_time_s is not None and figures.step_source not in {"steps", "server"}:
            self._steps.append((figures.step_name, figures.step_time_s.avg))
        signs = {sign: words for sign, words in self._signs_in(sample, target) if words is not None}
        if signs:
            old = [sign for sign, one in self._signs.items() if one.last_unix_s < now_unix_s - _SPAN_S]
            for sign in old:
                del self._signs[sign]
            if "families" in old or "program" in old:
                self._families.clear()
        for sign, words in signs.items():
            known = self._signs.setdefault(sign, _SeenSign(_EVIDENCE[sign].format(words), now_unix_s))
            known.last_unix_s = now_unix_s
        if "given" not in signs:  # it counts while it is given
            self._signs.pop("given", None)
        if _ran(sample) and server is not None and server.busy_ratio is not None:
            self._is_busy = server.busy_ratio >= (_NOT_BUSY_RATIO if self._is_busy else _BUSY_RATIO)

    def _signs_in(self, sample: Sample, target: Target) -> Iterator[tuple[Sign, str | None]]:
        """The signs in a sample, with what is named in their words."""
        figures, server = sample.figures, sample.figures.server
        programs = [*([figures.step_name] if figures.step_name else ()), *(each.name for each in figures.functions)]
        yield "given", target.job_kind
        yield "notebook", "" if "notebook" in target.kind_signs else None
        yield "server", "" if "server" in target.kind_signs else None
        tells = server is not None and (server.requests_running, server.requests_waiting) != (None, None)
        yield "requests", "" if tells else None
        yield "steps", "" if figures.step_time_s is not None and self._is_regular() else None
        yield "engine", next((name for name in programs if _ENGINE.search(name)), None)
        trains = next((name for name in programs if _TRAINING.search(name)), None)
        if trains is not None:  # what else it runs is of training, too: the decoder of an autoencoder
            yield "train", trains
            return
        families = {name: family for name in programs if (family := inferring_family_of(name)) is not None}
        model = next((name for name, family in families.items() if family in SERVING), None)
        if model is not None:
            self._families |= set(families.values())
            yield "program", model
            yield "families", ", ".join(sorted(self._families)) if len(self._families) >= _FAMILIES else None
        elif figures.step_time_s is not None and figures.step_source in {"steps", "server"}:
            yield "markers", ""

    def _kind(self, target: Target) -> tuple[JobKindName, tuple[str, ...]]:
        """The kind that the signs speak for, and these."""
        as_job = "job" in target.kind_signs
        if target.job_kind is not None:
            return target.job_kind, self._sign_words("given")
        if words := self._sign_words("notebook"):
            return "interactive", words
        serves, trains = self._sign_words("requests", "server"), self._sign_words("train")
        infers = self._sign_words("engine", "families")
        inference = serves + (infers or self._sign_words("program"))
        if trains:
            return ("mixed" if inference else "training"), trains + inference
        markers = self._sign_words("markers")
        if infers and markers:
            return "mixed", infers + markers
        if serves:
            return "serving", serves
        if infers:
            busy = as_job and self._is_busy
            return ("batch", (*infers, "started as a job", "always busy")) if busy else ("serving", infers)
        if inference:
            kept = self._kept
            return (kept.kind, kept.evidence) if kept and kept.kind in INFERRING else ("unknown", inference)
        if markers:
            return "training", markers
        if (steps := self._sign_words("steps")) and (target.process is not None or as_job):
            return "training", steps
        if self._kept is not None:
            return self._kept.kind, self._kept.evidence
        if as_job:
            return "training", ("started as a job that ends by itself",)
        if target.server_metrics is not None and not self._has_run:
            return "serving", ("a page of a server's metrics, and nothing has run yet",)
        return "unknown", ()

    def _sign_words(self, *signs: Sign) -> tuple[str, ...]:
        """Words of the given signs, as far as they are seen."""
        return tuple(self._signs[sign].words for sign in signs if sign in self._signs)

    def _is_regular(self) -> bool:
        """True if the last samples had the same step."""
        if len(self._steps) < _STEPS or len({name for name, _ in self._steps}) > 1:
            return False
        times_s = [step_s for _, step_s in self._steps]
        return max(times_s) <= min(times_s) * (1 + _ALIKE_RATIO)


def _ran(sample: Sample) -> bool:
    """True if the window shows anything: figures of a server cover the windows before, too."""
    return bool(sample.figures.functions) or sample.figures.step_time_s is not None

"""Findings, their evidence, and findings that could not be judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from tpumon.model.documents import Amount, Count, UnixTime, at_most

FindingId = Literal[
    "input-bound",
    "host-bound",
    "straggler",
    "slow-down",
    "hang",
    "idle",
    "recompiling",
    "collective-bound",
    "memory-bound",
    "compute-bound",
    "low-mxu",
    "outfeed-bound",
    "host-transfer-bound",
    "async-wait",
    "data-shuffle",
    "sparsecore-bound",
    "barrier-wait",
    "debug-print",
    "hbm-nearly-full",
    "hbm-growing",
    "truncated",
    "not-observed",
    "stuck",
    "host-gap",
    "compiling-while-serving",
    "kv-pressure",
    "batch-underfilled",
    "replica-imbalance",
]
"""The closed set; docs/findings.md explains each."""

IDLE_LIMIT_RATIO = 0.20
"""Idle time above this counts, and time in callbacks. XProf suggests to look from 10 % on; a few percent are usual."""

COMPILE_LIMIT_RATIO = 0.10
"""The host compiles, if it does so for more of the time than this."""

StateId = Literal["down", "restarted"]
"""States that are written like findings in verdicts."""

StatedId = Literal[FindingId, StateId]

FindingSeverity = Literal["info", "warning", "critical"]
"""Severity of a finding. info: worth knowing, nothing to act on at once."""

SEVERITY_LEVELS: Mapping[str, int] = {"ok": 0, "info": 1, "warning": 2, "critical": 3}
"""The one scale of severities; also what metrics show."""

Confidence = Literal["high", "medium", "low"]

MOST_WORKERS = 10_000
MOST_FINDINGS = len(get_args(FindingId))
"""Findings of a worker, at most: each once."""
_LONGEST = 1000  # of what a sentence or a remedy says


class Evidence(Struct, frozen=True, kw_only=True):
    """One figure that a finding rests on.

    Attributes:
        value: the figure; ratios 0-1, times in seconds.
        threshold: the limit that it exceeds, of those of the finding the one of its severity; None if it has none.
        reference: what it is compared with, for example the slice's median; None: with nothing.
    """

    value: Amount
    threshold: Amount | None = None
    reference: Amount | None = None

    def rounded(self) -> Evidence:
        """Evidence with numbers rounded to four digits."""
        return replace(self, **{of: float(f"{value:.4g}") for of, value in asdict(self).items() if value is not None})


class FindingDetail(Struct, frozen=True, kw_only=True):
    """A finding as it concerns one worker.

    Attributes:
        words: the reason in a few words, for a row in a table.
        sentence: what is the matter; `{who}` stands for the workers: "on w3", "on 3 of 8 workers".
        evidence: the figures that it rests on, by name.
        severity: how bad it is.
        confidence: how sure it is.
        figure: key of the figure to mark on the screen; None: none of them.
        remedy: what to do, if it is not what the rule always says.
    """

    words: Annotated[str, at_most(_LONGEST)] = ""
    sentence: Annotated[str, at_most(_LONGEST)] = ""
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    severity: FindingSeverity = "warning"
    confidence: Confidence = "high"
    figure: str | None = None
    remedy: str | None = None


class Cause(Struct, frozen=True, kw_only=True):
    """Reason for which one worker is marked: a finding of it, the failure of its last query, or figures that are old.

    Attributes:
        words: the reason in a few words, for display.
        finding: ID of the finding; None for a failed query, or old figures.
        severity: "info", "warning" or "critical", for this worker.
        since_unix_s: since when this worker has it; None if unknown.
        since_or_earlier: whether its first samples showed it already, so that it may have begun before them.
        figure: the figure that exceeds its limit, by the key that `--sort` takes; None if there is none.
        excess: how far it exceeds its limit, as a fraction of that limit.
    """

    words: str
    finding: FindingId | None = None
    severity: FindingSeverity = "warning"
    since_unix_s: UnixTime | None = None
    since_or_earlier: bool = False
    figure: str | None = None
    excess: Amount = 0.0


class Finding(Struct, frozen=True, kw_only=True):
    """A finding of some workers of one slice.

    Attributes:
        finding: which of the closed set; or a state.
        severity: how bad it is for the worst of the workers.
        confidence: how sure it is.
        workers: names of the workers that have it, the worst first.
        more_workers: how many more have it, if not all are named.
        job: their job; None: none is known.
        slice: their slice; None: none is known.
        since_unix_s: since when any of them has it.
        since_or_earlier: whether the first samples showed it already, so that it may have begun before them.
        evidence: figures of the worst worker, by name.
        sentence: what is the matter.
        remedy: what to do.
        url: where it is explained.
    """

    finding: StatedId
    severity: FindingSeverity
    confidence: Confidence = "medium"
    workers: Annotated[tuple[str, ...], at_most(MOST_WORKERS)] = ()
    more_workers: Count = 0
    job: str | None = None
    slice: str | None = None
    since_unix_s: UnixTime | None = None
    since_or_earlier: bool = False
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    sentence: Annotated[str, at_most(_LONGEST)] = ""
    remedy: Annotated[str, at_most(_LONGEST)] = ""
    url: str = ""

    def naming(self, most: int) -> Finding:
        """The finding with the worst `most` of its workers; the others are counted."""
        more = max(len(self.workers) - most, 0)
        return replace(self, workers=self.workers[:most], more_workers=self.more_workers + more)


class NotJudged(Struct, frozen=True, kw_only=True):
    """A finding that cannot be judged, so that its absence is no all-clear.

    Attributes:
        finding: which of the closed set.
        reason: why, in a few words.
        takes: the samples that it takes, where too few are the reason; None: they are not, or it is not known.
        workers: how many workers it cannot be judged of.
        is_suspected: whether samples speak for it.
    """

    finding: FindingId
    reason: str
    takes: Count | None = None
    workers: Count = 0
    is_suspected: bool = False

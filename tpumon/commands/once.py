"""`tpumon once`: all workers in one table, judged, the worst first; then it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tpumon.assessment import Assessment, Verdict
from tpumon.commands.collecting import collect, collect_recorded
from tpumon.enough import unjudged
from tpumon.errors import NoTargetError
from tpumon.feed import FeedSettings, Recorded
from tpumon.figures import COMPARED
from tpumon.fleet import Fleet
from tpumon.history import state_of
from tpumon.model import SCHEMA_VERSION, Mark, Sample
from tpumon.model.codec import to_plain
from tpumon.model.frozen import frozen
from tpumon.system.console import show
from tpumon.text import one_line
from tpumon.view.drawing.cells import FORMATS, age, clock
from tpumon.view.drawing.style import LOOKS


@frozen
class OnceSettings:
    """What to judge, and how to print it.

    Attributes:
        feed: where samples come from.
        samples: how many of each worker to wait for.
        output: what stdout gets.
    """

    feed: FeedSettings
    samples: int
    output: Literal["text", "json"] = "text"


def run(settings: OnceSettings) -> int:
    """Takes the samples that a judgement needs and prints one table or object.

    Returns:
        0; 1 if a worker is down or critical; 3 if none answered.

    Raises:
        NoTargetError: there is no worker.
    """
    origin = settings.feed.origin
    now_unix_s: float | None = None
    if isinstance(origin, Recorded):
        fleet, now_unix_s = collect_recorded(settings.feed, origin.where)
    else:
        fleet = collect(settings.feed, settings.samples)
    now_unix_s = now_unix_s or time.time()
    assessment = fleet.assess(now_unix_s)
    unsure = unjudged(fleet, assessment)
    rows = [_Row.of(fleet, worker, assessment, unsure, now_unix_s) for worker in _worst_first(assessment)]
    if settings.output == "json":
        show(json.dumps(_object(rows, bool(unsure), now_unix_s), allow_nan=False))
    else:
        show("\n".join(_table(rows, now_unix_s)))
        if unsure:
            needed = fleet.thresholds.sustained
            show(f"\ntoo few samples to judge {len(unsure)} of {len(rows)} workers: {needed} are needed")
    if not any(row.answered for row in rows):
        return NoTargetError.exit_status
    return 1 if any(row.kind in {"down", "critical"} for row in rows) else 0


def _worst_first(assessment: Assessment) -> list[str]:
    verdicts = assessment.verdicts
    return sorted(verdicts, key=lambda worker: (verdicts[worker].rank, -verdicts[worker].excess))


@frozen
class _Row:
    """One worker, as it is printed.

    Attributes:
        kind: its severity while it is live, otherwise its state.
        sample: the current one; None: there is no current figure.
    """

    worker: str
    verdict: Verdict
    kind: Mark
    sample: Sample | None
    empty: Sample
    answered: bool

    @classmethod
    def of(cls, fleet: Fleet, worker: str, assessment: Assessment, unsure: frozenset[str], now_unix_s: float) -> _Row:
        """The row of a worker that is followed."""
        verdict = assessment.verdicts[worker]
        history = fleet.histories.get(worker)
        assert history is not None
        target = history.target
        return cls(
            worker=worker,
            verdict=verdict,
            kind="unknown" if worker in unsure else verdict.mark,
            sample=history.current(now_unix_s),
            empty=Sample(
                worker=worker,
                address=target.address,
                job=target.job,
                slice=target.slice,
                time_unix_s=now_unix_s,
                window_s=None,
                took_s=0,
            ),
            answered=history.samples > 0 or state_of(history.last) not in {"waiting", "down", "stale"},
        )

    @property
    def severity(self) -> str:
        """That of its verdict; unknown if it has too few samples."""
        return self.kind if self.verdict.state == "live" else self.verdict.severity

    def to_json(self) -> dict[str, Any]:
        """The worker in `--output json`: figures as in a Sample object, null where there is no current one."""
        found = [cause for cause in self.verdict.causes if cause.finding is not None]
        figures = (self.sample or self.empty).to_json()
        if self.sample is None:
            figures["time_unix_s"] = None
        return {
            "worker": self.worker,
            "state": self.verdict.state,
            "severity": self.severity,
            "since_unix_s": self.verdict.since_unix_s,
            "causes": [cause.words for cause in self.verdict.causes],
            **{name: value for name, value in figures.items() if name not in {"schema", "worker", "findings"}},
            "findings": [to_plain(cause) for cause in found],
        }


def _object(rows: Sequence[_Row], too_few: bool, now_unix_s: float) -> Mapping[str, Any]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.kind] = counts.get(row.kind, 0) + 1
    return {
        "schema": SCHEMA_VERSION,
        "time_unix_s": now_unix_s,
        "workers": [row.to_json() for row in rows],
        "fleet": counts,
        "too_few_samples": too_few,
    }


def _table(rows: Sequence[_Row], now_unix_s: float) -> list[str]:
    """One line per worker below a line of titles; a column that no worker has is left out."""
    shown = [
        figure
        for figure in COMPARED.values()
        if figure.always_shown
        or any(row.sample is not None and figure.value(row.sample.figures) is not None for row in rows)
    ]
    lines = [[" ", "WORKER", "STATE", "SINCE", *(figure.title for figure in shown), "WHY"]]
    for row in rows:
        look = LOOKS[row.kind]
        since = row.verdict.since_unix_s
        cells = [
            FORMATS[figure.unit].cell(None if row.sample is None else figure.value(row.sample.figures))
            for figure in shown
        ]
        why = one_line("; ".join(cause.words for cause in row.verdict.causes), limit=200)
        told = "-" if since is None else f"{clock(since, now_unix_s)} ({age(now_unix_s - since)})"
        lines.append([look.mark, one_line(row.worker, limit=60), look.word, told, *cells, why])
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    left = {0, 1, 2, 3, len(widths) - 1}
    return [
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]

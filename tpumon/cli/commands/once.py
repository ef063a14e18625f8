"""`tpumon once`: all workers in one table, judged, the worst first; then it ends."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct, defstruct
from msgspec.structs import asdict

from tpumon.analysis import WorkerStatus
from tpumon.analysis.fleet_verdict import FailOn, FleetVerdict, VerdictId, verdict_on
from tpumon.analysis.sufficiency import unjudged, unsure_of
from tpumon.cli.enough_samples import Needs, collected, moment_of_recording, told_when
from tpumon.errors import NOT_SEEN
from tpumon.model import Cause, Sample, Severity, State, Status
from tpumon.model.documents import UnixTime, encoded, fields_of
from tpumon.model.figure_spec import FigureSpec
from tpumon.model.figure_table import applicable_figures, of_job
from tpumon.model.sample import SampleDocument
from tpumon.outputs.drawing.cells import FORMATS, age, clock
from tpumon.outputs.drawing.names import short_processes
from tpumon.outputs.drawing.style import BADGES, badge_of
from tpumon.pipeline import FeedSettings
from tpumon.system.console import show
from tpumon.untrusted_text import ascii_line, one_line


def run(
    *, feed: FeedSettings, needs: Needs, output: Literal["text", "json"] = "text", fail_on: FailOn = "critical"
) -> int:
    """Takes the samples that a judgement needs and prints one table or object.

    Returns:
        0; 1 if a worker is as bad as `fail_on`; 3 if none answered.

    Raises:
        NoTargetError: there is no worker.
    """
    with collected(feed, needs) as status:
        needed = feed.output_settings.thresholds.sustained
        few, unsure = unjudged(status, needed), unsure_of(status, needed)
        answer = verdict_on(status, few, keeps=feed.state_dir is not None, recorded=feed.source.is_over)
        answer = told_when(answer, feed, needs, status)
        rows = [
            _TableRow(worker, "unknown" if worker.name in unsure else worker.verdict.status)
            for worker in status.worst_first()
        ]
        if output == "json":
            show(encoded(_document(rows, answer, bool(few))))
        else:
            moment = moment_of_recording(feed.source, answer.time_unix_s)
            show(f"{answer.title}: {answer.sentence}\n" + (moment and f"{moment}\n"))
            room = shutil.get_terminal_size((0, 0)).columns  # 0: it is no terminal
            show("\n".join(_table(rows, status.time_unix_s, room or sys.maxsize)))
            if few:
                show(f"\ntoo few samples to judge {len(few)} of {len(rows)} workers: {needed} are needed")
        return answer.exit_status(fail_on)


_GAP = "  "
_MOST_REASONS = 5
_MOST_WHY = 500  # characters


class _TableRow(NamedTuple):
    """One worker, as it is printed.

    Attributes:
        worker: its status.
        kind: its severity while it is live, otherwise its state; unknown if it has too few samples.
    """

    worker: WorkerStatus
    kind: Status

    def document(self, now_unix_s: float) -> Struct:
        """The worker in `--output json`: figures as in a Sample object, null where there is no current one."""
        verdict, target, sample = self.worker.verdict, self.worker.target, self.worker.sample
        without = Sample(
            worker=self.worker.name,
            address=target.address,
            job=target.job,
            slice=target.slice,
            process=target.process,
            time_unix_s=now_unix_s,
            window_s=None,
            took_s=0,
        )
        figures = asdict((sample or without).document())
        if sample is None:
            figures["time_unix_s"] = None
        return OnceWorker(
            **{name: value for name, value in figures.items() if name not in _OTHERWISE},
            worker=self.worker.name,
            state=verdict.state,
            severity=self.kind if self.kind == "unknown" else verdict.severity,
            since_unix_s=verdict.since_unix_s,
            since_or_earlier=verdict.since_or_earlier,
            causes=tuple(cause.words for cause in verdict.causes),
            findings=tuple(cause for cause in verdict.causes if cause.finding is not None),
        )


_OTHERWISE = {"schema", "worker", "findings"}
OnceWorker = defstruct(
    "Worker",
    [
        ("worker", str),
        ("state", State),
        ("severity", Severity),
        ("since_unix_s", UnixTime | None),
        ("since_or_earlier", bool),
        ("causes", tuple[str, ...]),
        *fields_of(SampleDocument, {*_OTHERWISE, "time_unix_s"}),
        ("time_unix_s", UnixTime | None, None),
        ("findings", tuple[Cause, ...], ()),
    ],
    module=__name__,
    frozen=True,
    kw_only=True,
)
"""A worker: what is known of it, and the fields of its sample."""


class OnceDocument(Struct, frozen=True, kw_only=True):
    """The output of `tpumon once --output json`."""

    schema: Literal[1] = 1
    time_unix_s: UnixTime
    verdict: VerdictId
    sentence: str
    workers: tuple[OnceWorker, ...]  # type: ignore[valid-type]
    fleet: Mapping[Status, int]
    too_few_samples: bool


def _document(rows: Sequence[_TableRow], answer: FleetVerdict, too_few: bool) -> OnceDocument:
    return OnceDocument(
        time_unix_s=answer.time_unix_s,
        verdict=answer.verdict,
        sentence=answer.sentence,
        workers=tuple(row.document(answer.time_unix_s) for row in rows),
        fleet=Counter(row.kind for row in rows),
        too_few_samples=too_few,
    )


def _table(rows: Sequence[_TableRow], now_unix_s: float, room: int = sys.maxsize) -> list[str]:
    """One line per worker below a line of titles; a column that no worker has is left out.

    So are the last figures, then processes, for which a terminal has no room, which is said. WHY may wrap.
    """
    samples = [of_job(row.worker.sample) for row in rows if row.worker.sample is not None]
    shown = [
        figure
        for figure in applicable_figures(samples)
        if figure.always_shown or any(figure.value(sample.figures) is not None for sample in samples)
    ]
    processes = short_processes(row.worker for row in rows)
    process = ["PROCESS"] if processes else []
    lines = [[" ", "WORKER", *process, "STATE", "SINCE", *(figure.title for figure in shown), "WHY"]]
    for row in rows:
        badge = BADGES["unknown"] if row.kind == "unknown" else badge_of(row.worker)
        verdict = row.worker.verdict
        cells = [FORMATS[figure.unit].cell(row.worker.figures[figure.key]) for figure in shown]
        why = ascii_line("; ".join(_cause_words(row.worker, cause) for cause in verdict.reasons), _MOST_WHY)
        since = verdict.since_unix_s
        began = clock(since, now_unix_s, or_earlier=verdict.since_or_earlier)
        shown_since = "-" if since is None else f"{began} ({age(now_unix_s - since)})"
        process = [one_line(processes[row.worker.name], limit=40)] if processes else []
        name = one_line(row.worker.name, limit=60)
        lines.append([badge.mark, name, *process, badge.word, shown_since, *cells, why])
    widths = {place: max(len(line[place]) for line in lines) for place in range(len(lines[0]))}
    first, last = 4 + len(process), len(widths) - 1
    always = [place for place, figure in enumerate(shown, first) if figure.always_shown]
    giving_way = [*always, *range(2, 2 + len(process)), *(place for place in range(first, last) if place not in always)]
    left_out: list[str] = []
    while giving_way and sum(widths.values()) - widths[last] + len(_GAP) * (len(widths) - 1) + len("WHY") > room:
        del widths[place := giving_way.pop()]
        left_out.insert(0, lines[0][place])
    table = [
        _GAP.join(
            line[place].rjust(width) if first <= place < last else line[place].ljust(width)
            for place, width in widths.items()
        ).rstrip()
        for line in lines
    ]
    no_room = [f"   not shown, as there is no room: {', '.join(left_out)}"] if left_out else []
    return [*table, *_why_absent(shown, samples), *no_room]


def _cause_words(worker: WorkerStatus, cause: Cause) -> str:
    """Words of a cause; a reason why nothing is seen is cut short, because the verdict has it in full."""
    is_why_not_seen = cause.finding is None and worker.verdict.state == "no-activity" and not worker.is_seen
    return NOT_SEEN if is_why_not_seen else cause.words


def _why_absent(figures: Sequence[FigureSpec], samples: Sequence[Sample]) -> list[str]:
    """A line for each reason for which some of these figures are absent, the first few."""
    titles: dict[str, dict[str, None]] = {}  # by reason, each once
    for figure in figures:
        for sample in samples:
            why = figure.why_absent(sample.figures)
            if why is not None and figure.applies_to(sample) and figure.value(sample.figures) is None:
                titles.setdefault(ascii_line(why, _MOST_WHY), {})[figure.title] = None
    return [f"   {', '.join(each)} n/a: {why}" for why, each in list(titles.items())[:_MOST_REASONS]]

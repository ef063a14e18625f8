"""Findings: the worst one in a line, all that concern a worker, and each with what it rests on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from tpumon.analysis import WorkerStatus
from tpumon.analysis.state_findings import down_by_reason
from tpumon.model import Finding, NotJudged
from tpumon.outputs.drawing.cells import clock, evidence_words, last_words
from tpumon.outputs.drawing.line import Line, Lines, cut, plain, tame, wrapped
from tpumon.outputs.drawing.style import BADGES, BOLD, DIM
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.parts.scene import Scene
from tpumon.untrusted_text import listed

_WHO = re.compile(r"On ((?:all )?\d+(?: of \d+)? workers)(?: \(figures of [^,]*\))?, ")
_ASIDE = re.compile(r" \([^()]*\)")
_FIGURES = re.compile(r"[\d.,]+")
_NAME = 20
_MOST_NAMED = 8
_INDENT = 4


def marking(scene: Scene) -> list[Finding]:
    """The findings that mark workers, the worst first."""
    return [finding for finding in scene.status.findings if finding.severity != "info"]


def concerns(finding: Finding, row: WorkerStatus) -> bool:
    """True if a worker has the finding."""
    if row.name in finding.workers:
        return True
    target = row.history.target
    return finding.more_workers > 0 and any(
        cause.finding == finding.finding
        for cause in row.verdict.causes
        if (target.job, target.slice) == (finding.job, finding.slice)
    )


def worst_line(frame: Frame) -> Lines:
    """One line about the worst finding: workers, begin, and as much of the sentence as fits."""
    marked = marking(frame.scene)
    if not marked:
        return []
    worst, badge = marked[0], BADGES[marked[0].severity]
    who, sentence = _who(frame, worst)
    texts = [sentence.rstrip("."), _ASIDE.sub("", sentence).rstrip("."), *_words_of_worst(frame, worst)]
    since = "" if worst.since_unix_s is None else f" since {_since(frame, worst)}"
    others = len(marked) - 1 + len(down_by_reason(frame.scene.status))
    more = f" (+{others}, see w)" if others else ""
    shortest = min(texts, key=cell_len)
    for head, tail in ((since, more), (since, ""), ("", more), ("", "")):  # what is the matter comes before these
        line = Line(frame.width).add(f" {badge.mark} {who}{head}: ", badge.style)
        room = line.room - len(tail)
        if cell_len(shortest) <= room:
            break
    text = next((text for text in texts if cell_len(text) <= room), shortest)
    return [line.add(cut(text, max(room, 0), frame.glyphs.ellipsis), badge.style).add(tail).segments()]


def _who(frame: Frame, finding: Finding) -> tuple[str, str]:
    """The workers that have a finding, in words, and its sentence without them."""
    sentence = tame(finding.sentence, ascii_only=frame.glyphs.ascii)
    count = len(finding.workers) + finding.more_workers
    if count == 1:
        name = tame(finding.workers[0], ascii_only=frame.glyphs.ascii)
        return frame.scene.labels.at(_NAME).get(finding.workers[0], name), sentence.removeprefix(f"On {name}, ")
    who = _WHO.match(sentence)
    return (who[1], sentence[who.end() :]) if who else (f"{count} workers", sentence)


def _words_of_worst(frame: Frame, finding: Finding) -> Iterator[str]:
    """The words of the finding's worst worker; they name it, unless those of the others differ in figures only."""
    words = [_words_of(frame, worker, finding) for worker in finding.workers]
    if words and words[0]:
        is_of_all = len({_FIGURES.sub("", one) for one in words}) == 1
        name = tame(finding.workers[0], ascii_only=frame.glyphs.ascii)
        label = frame.scene.labels.at(_NAME).get(finding.workers[0], name)
        shown = tame(words[0], ascii_only=frame.glyphs.ascii)
        yield shown if is_of_all else f"{label}: {shown}"


def _words_of(frame: Frame, worker: str, finding: Finding) -> str:
    """The words of one worker for a finding; empty: it has none."""
    row = frame.scene.row(worker)
    causes = () if row is None else row.verdict.causes
    return next((one.words for one in causes if one.finding == finding.finding), "")


def cause_lines(frame: Frame, row: WorkerStatus) -> Lines:
    """Lines about the findings of a worker, with the begin of each; also findings that do not mark the worker."""
    lines: Lines = []
    for cause in row.verdict.causes:
        if cause.finding is not None:
            badge, line = BADGES[cause.severity], Line(frame.width).fill(2)
            line.add(f"{badge.mark} {cause.finding}", badge.style)
            if cause.since_unix_s is not None:
                began = clock(cause.since_unix_s, frame.now_unix_s, or_earlier=cause.since_or_earlier)
                line.add(f" since {began}")
            words = tame(cause.words, ascii_only=frame.glyphs.ascii)
            lines.append(line.add(cut(f": {words}", line.room, frame.glyphs.ellipsis)).segments())
    return [plain(" Findings (w: why)", frame.width, BOLD), *lines] if lines else []


def _since(frame: Frame, finding: Finding) -> str:
    return clock(finding.since_unix_s, frame.now_unix_s, or_earlier=finding.since_or_earlier)


def _last(frame: Frame, finding: Finding, since_unix_s: float) -> str:
    return last_words(
        lambda time_unix_s: clock(time_unix_s, frame.now_unix_s),
        since_unix_s,
        frame.scene.status.last_since_unix_s(finding),
    )


def finding_lines(frame: Frame, finding: Finding) -> Lines:
    """A title, and below it the sentence, the workers, the evidence and the remedy."""
    lines = [*_title_lines(frame, finding), *_text_lines(frame, finding.sentence)]
    if len(finding.workers) + finding.more_workers > 1:
        last = "" if (since := finding.since_unix_s) is None else _last(frame, finding, since)
        lines += _pair(frame, "workers", listed(finding.workers, _MOST_NAMED, finding.more_workers) + last)
    if finding.job is not None:
        lines += _pair(frame, "job", finding.job)
    if finding.slice is not None:
        lines += _pair(frame, "slice", finding.slice)
    if finding.evidence:
        lines += _pair(frame, "rests on", evidence_words(finding.evidence))
    return lines + (_pair(frame, "what to do", finding.remedy) if finding.remedy else [])


def _title_lines(frame: Frame, finding: Finding) -> Lines:
    """Name, severity, begin and confidence of a finding; what does not fit whole is on the next line."""
    badge, dot = BADGES[finding.severity], frame.glyphs.dot
    pieces = [(finding.severity, None), (f"{finding.confidence} confidence", DIM)]
    if finding.since_unix_s is not None:
        pieces.insert(1, (f"since {_since(frame, finding)}", None))
    line = Line(frame.width).add(f" {badge.mark} ", badge.style)
    line.add(cut(finding.finding, line.room, frame.glyphs.ellipsis), badge.style or BOLD)
    lines = [line]
    for text, style in pieces:
        if cell_len(dot + text) <= lines[-1].room:
            lines[-1].add(dot + text, style)
        else:
            line = Line(frame.width).fill(_INDENT)
            lines.append(line.add(cut(text, line.room, frame.glyphs.ellipsis), style))
    return [line.segments() for line in lines]


def not_judged_lines(frame: Frame, missing: Sequence[NotJudged], *, of_all: bool) -> Lines:
    """Findings that cannot be judged of all workers or of one, with reasons: their absence is no all-clear."""
    lines: Lines = []
    workers = len(frame.scene.rows)
    for one in missing:
        of = f" ({one.workers} of {workers} workers)" if of_all and workers > 1 else ""
        lines += _pair(frame, one.finding, one.reason + of)
    return lines


def _text_lines(frame: Frame, text: str) -> Lines:
    text = tame(text, ascii_only=frame.glyphs.ascii)
    return [
        Line(frame.width).fill(_INDENT).add(part).segments() for part in wrapped(text, max(frame.width - _INDENT, 1))
    ]


def _pair(frame: Frame, name: str, text: str) -> Lines:
    """A name, and behind it the text, indented."""
    text = tame(f"{name}: {text}", ascii_only=frame.glyphs.ascii)
    lines: Lines = []
    for place, part in enumerate(wrapped(text, max(frame.width - _INDENT, 1), indent=2)):
        title = f"{name}:" if place == 0 and part.startswith(f"{name}:") else ""
        line = Line(frame.width).fill(_INDENT).add(title, DIM).add(part.removeprefix(title))
        lines.append(line.segments())
    return lines

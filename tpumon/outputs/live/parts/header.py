"""Header and footer. State, interval, SIMULATED and a time are shown at every size: that of the last sample.

Of a recording it is the moment that is shown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from tpumon.analysis import WorkerStatus
from tpumon.analysis.history import State
from tpumon.model import Severity
from tpumon.model.chips import spoken_name
from tpumon.model.progress import TRACED_S
from tpumon.outputs.drawing.cells import NOT_KNOWN, age, clock, short_time
from tpumon.outputs.drawing.line import Line, Lines, cut, tame
from tpumon.outputs.drawing.style import BADGES, HEADER, HEADER_WORD, NOT_SEEN_BADGE, Glyphs, badge_of, state_badge
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.parts.rows import lasting
from tpumon.outputs.live.parts.scene import Scene, exporter_failed
from tpumon.outputs.live.parts.scene import methods as methods_of
from tpumon.outputs.live.parts.waiting import countdown, doing_of

_STATES: tuple[State, ...] = ("down", "no-activity", "stale", "busy", "continuous", "paused", "waiting")
_PROBLEMS: tuple[Severity | State, ...] = (
    "down",
    "critical",
    "no-activity",
    "stale",
    "warning",
    "busy",
    "continuous",
    "paused",
    "unknown",
    "waiting",
)
_FIND_AGAIN_S = 10.0  # while there is no worker: the sampler's and the remote exporter's pace
_ASK_AGAIN_S = 1.0
_GAP = "  "
HINT_GAP = len(_GAP)
"""Cells between two hints of the footer."""

_METHOD_TITLES = {"source": "", "mxu": "MXU:", "step": "steps:", "busy": "busy:"}
_USUAL = frozenset({"server", "counter", "steps", "libtpu"})


class HeaderPiece(NamedTuple):
    """Words of the header that stay on one line; `brief` ones are shown if those do not fit."""

    text: str
    style: Style = HEADER
    brief: str = ""


_Pieces = list[HeaderPiece]


def header(frame: Frame, row: WorkerStatus | None, *extra: HeaderPiece) -> Lines:
    """One line; more if what is never left out does not fit into one.

    Args:
        frame: what is shown.
        row: the worker that the screen is about; None: all workers.
        extra: further pieces that are never left out.
    """
    width = frame.width
    left, right = _must(frame, row, extra)
    needed = sum(cell_len(piece.text) + len(_GAP) for piece in (*left, *right))
    if needed > width:
        pieces = [right[-2], *left, *right[:-2], right[-1]]
        short = [piece._replace(text=piece.text.replace("every ", "@")) for piece in pieces]
        return min(_packed(pieces, width), _packed(short, width), key=len)
    room = width - needed
    for piece in _may(frame, row):
        for text in (piece.text, piece.brief):
            cells = cell_len(text) + len(_GAP)
            if text and cells <= room:
                left.append(piece._replace(text=text))
                room -= cells
                break
    line = Line(width).add(" ", HEADER)
    left.sort(key=lambda piece: piece.text != "tpumon")  # the title comes first if there is room for it
    for place, piece in enumerate(left):
        line.add(_GAP if place else "", HEADER).add(piece.text, piece.style)
    line.add(" " * (room + len(_GAP)), HEADER)
    for place, piece in enumerate(right):
        line.add(_GAP if place else "", HEADER).add(piece.text, piece.style)
    return [line.add(" " * line.room, HEADER).segments()]


def _packed(pieces: Sequence[HeaderPiece], width: int) -> Lines:
    lines = [Line(width)]
    for piece in pieces:
        gap = 1 if lines[-1].room < width else 0
        if gap and cell_len(piece.text) + gap > lines[-1].room:
            lines.append(Line(width))
            gap = 0
        lines[-1].fill(gap, HEADER).add(piece.text, piece.style)
    return [line.add(" " * line.room, HEADER).segments() for line in lines]


def _must(
    frame: Frame, row: WorkerStatus | None, extra: Sequence[HeaderPiece]
) -> tuple[list[HeaderPiece], list[HeaderPiece]]:
    """The pieces that are never left out. At the right, the state is the last but one and the time is the last."""
    scene, clock_unix_s = frame.scene, frame.clock_unix_s
    looked_for_s = _FIND_AGAIN_S if frame.from_url is None else _ASK_AGAIN_S
    left = [HeaderPiece(_interval(frame, row) if scene.rows else f"every {short_time(looked_for_s)}")]
    right = [*extra]
    if scene.simulated:
        right.append(HeaderPiece("SIMULATED", HEADER_WORD))
    recorded = HeaderPiece(frame.recorded, HEADER_WORD)
    if frame.controls.frozen:
        now = frame.controls.latest
        word = state_word(now, clock_unix_s, None if row is None else now.row(row.name))
        if not word.text.startswith("LIVE"):
            right.append(HeaderPiece(f"now {word.text}", word.style))
        right += [recorded] if frame.recorded else []
        right.append(HeaderPiece("FROZEN", HEADER_WORD))
        return left, [*right, HeaderPiece(clock(scene.time_unix_s, clock_unix_s), HEADER_WORD)]
    last_unix_s = scene.last_unix_s if row is None else scene.began_unix_s.get(row.name)
    word = state_word(scene, clock_unix_s, row)
    if frame.recorded and word.text.startswith("LIVE"):
        word = word._replace(text=frame.recorded + word.text.removeprefix("LIVE"))
    elif frame.recorded:
        right.append(recorded)
    if (unheard := len(scene.status.exporters_unheard)) and scene.rows:
        words = "1 EXPORTER DOWN" if unheard == 1 else f"{unheard} EXPORTERS DOWN"
        right.append(HeaderPiece(words, BADGES["down"].header))
    shown = f"at {clock(clock_unix_s, clock_unix_s)}" if frame.recorded else f"last {clock(last_unix_s, clock_unix_s)}"
    return left, [*right, word, HeaderPiece(shown, HEADER_WORD)]


def _may(frame: Frame, row: WorkerStatus | None) -> list[HeaderPiece]:
    """Pieces that are shown if there is room, the most important first."""
    scene, glyphs = frame.scene, frame.glyphs
    pieces: _Pieces = []
    url = tame(frame.from_url or "", ascii_only=glyphs.ascii)
    source = [HeaderPiece(cut(f"from {url}", 60, glyphs.ellipsis))] if url else []
    if next_sample := countdown(frame, row):
        pieces.append(HeaderPiece(next_sample))
    failing = any(map(exporter_failed, scene.rows))
    if failing:
        pieces += source
    if (traced_ratio := most_traced(frame)) is not None:
        pieces.append(HeaderPiece(f"traced {100 * traced_ratio:.1f}%"))
    if row is None and len(scene.rows) > 1:
        counts = Counter(map(badge_of, scene.rows))
        pieces += [
            HeaderPiece(
                f"{badge.mark} {counts[badge]} {badge.word}", badge.header, brief=f"{badge.mark}{counts[badge]}"
            )
            for badge in (*(BADGES[kind] for kind in _PROBLEMS), NOT_SEEN_BADGE)
            if counts[badge]
        ]
    if methods := _methods(scene, row):
        pieces.append(HeaderPiece(methods))
    if scene.rows and row is None:
        pieces.append(HeaderPiece("1 worker" if len(scene.rows) == 1 else f"{len(scene.rows)} workers"))
    pieces.append(HeaderPiece("tpumon", HEADER_WORD))
    if row is None and (types := scene.device_types):
        more = f" +{len(types) - 1}" if len(types) > 1 else ""
        full, brief = (
            cut(tame(name, ascii_only=glyphs.ascii), 30, glyphs.ellipsis) + more
            for name in (spoken_name(types[0]), types[0])
        )
        pieces.append(HeaderPiece(full, brief=brief))
    return pieces if failing else pieces + source


def _methods(scene: Scene, row: WorkerStatus | None) -> str:
    """Sources and methods: `trace MXU:flops steps:modules`; the usual methods are left out."""
    words = []
    for kind, counts in scene.methods.items():
        if row is not None and row.sample is not None:
            own = methods_of(row.sample)[kind]
            methods = [own] if own is not None else []
        else:
            methods = [method for method, _ in counts.most_common()]
        if kind == "source" or not _USUAL.issuperset(methods):
            words += [_METHOD_TITLES[kind] + "+".join(methods)] if methods else []
    return " ".join(words)


def _interval(frame: Frame, row: WorkerStatus | None) -> str:
    """The interval of a worker, or the shortest and the longest one of all."""
    own_s = None if row is None else _kept_s(frame, row)
    all_s = (_kept_s(frame, each) for each in frame.scene.rows) if own_s is None else (own_s,)
    known = sorted(kept_s for kept_s in all_s if kept_s is not None)
    if not known:
        return f"every {NOT_KNOWN}"
    low, high = short_time(known[0]), short_time(known[-1])
    return f"every {low}" if low == high else f"every {low}-{high}"


def _kept_s(frame: Frame, row: WorkerStatus) -> float | None:
    doing = doing_of(frame, row)
    next_unix_s = None if doing is None else doing.until_unix_s if doing.waits else doing.begun_unix_s
    return row.history.kept_interval_s(frame.scene.time_unix_s, next_unix_s)


def state_word(scene: Scene, now_unix_s: float, row: WorkerStatus | None) -> HeaderPiece:
    """LIVE, STALE and its age, and so on, of one worker or of all: LIVE as long as any worker is."""
    rows = scene.rows if row is None else [row]
    if not rows:
        return HeaderPiece("WAITING", BADGES["waiting"].header)
    live = sum(each.verdict.state == "live" for each in rows)
    share = f" {live}/{len(rows)}" if live < len(rows) else ""
    if live:
        return HeaderPiece(f"LIVE{share}", HEADER_WORD)
    if all(map(exporter_failed, rows)):
        return HeaderPiece(f"EXPORTER DOWN{_lasting(rows, now_unix_s)}", BADGES["down"].header)
    worst = next(state for state in _STATES if any(each.verdict.state == state for each in rows))
    like = [each for each in rows if each.verdict.state == worst]
    first = min(like, key=lambda each: (not each.is_seen, each.verdict.rank))
    badge, share = badge_of(first), f" {len(like)}/{len(rows)}" if len(like) < len(rows) else ""
    word = state_badge(first).word.upper() + share
    if worst == "stale" and row is None and scene.last_unix_s is not None:
        return HeaderPiece(f"{word} {age(now_unix_s - scene.last_unix_s)}", badge.header)
    return HeaderPiece(word + ("" if worst == "waiting" else _lasting(like, now_unix_s)), badge.header)


def _lasting(rows: Sequence[WorkerStatus], now_unix_s: float) -> str:
    """Time for which the first of these workers has been in its state."""
    return f" {lasting(min(rows, key=lambda row: row.verdict.since_unix_s or math.inf), now_unix_s)}".rstrip()


def footer(left: str, right: str, width: int, glyphs: Glyphs, style: Style | None = None) -> list[Segment]:
    """Keys or a message at the left; at the right, which part is shown. The right side is never cut."""
    room = max(width - cell_len(right) - 2, 0)
    line = Line(width).add(" " + cut(left, room, glyphs.ellipsis) if room > 1 else "", style)
    return line.right(right).segments() if right else line.segments()


def hints(words: Sequence[str], room: int) -> str:
    """The hints that fit, starting with the first."""
    text = ""
    for word in words:
        longer = f"{text}{_GAP}{word}" if text else word
        if cell_len(longer) > room:
            break
        text = longer
    return text


class TracedShare(NamedTuple):
    """The share of the last minutes for which a job was traced; `words` say of which, and by whom."""

    ratio: float
    words: str


def traced_share(frame: Frame, row: WorkerStatus) -> TracedShare | None:
    """The share of a worker's job; None: it was not traced."""
    if frame.progress is not None and not frame.recorded and not frame.controls.frozen:
        now_unix_s, traced = frame.clock_unix_s, frame.progress.traced(row.history.target.address)
        ratio = None if traced is None else traced.ratio(now_unix_s)
        if traced is not None and ratio is not None:
            of_s = traced.of_s(now_unix_s)
            last = "10 min" if of_s == TRACED_S else short_time(of_s)
            return TracedShare(ratio, f"of the last {last} by all tpumons of this host")
    own = row.history.traced_ratio(frame.scene.time_unix_s)
    return None if own is None else TracedShare(own, "of the last 10 min")


def most_traced(frame: Frame) -> float | None:
    """The share of the job that is traced most; None: none is."""
    shares = [traced_share(frame, row) for row in frame.scene.rows]
    return max((share.ratio for share in shares if share is not None), default=None)

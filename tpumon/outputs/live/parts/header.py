"""Header and footer. State, interval, time of the last sample and SIMULATED are shown at every size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from tpumon.analysis.history import State
from tpumon.model import Severity
from tpumon.model.chips import spoken_name
from tpumon.outputs.live.drawing.cells import NOT_KNOWN, age, clock, short_time
from tpumon.outputs.live.drawing.line import Line, Lines, cut, tame
from tpumon.outputs.live.drawing.style import HEADER, HEADER_WORD, LOOKS, Glyphs
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.parts.scene import Row, Scene
from tpumon.outputs.live.parts.scene import methods as methods_of

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

_METHOD_TITLES = {"source": "", "mxu": "MXU:", "step": "steps:"}
_USUAL = frozenset({"server", "counter", "steps"})


class Piece(NamedTuple):
    """Words of the header that stay on one line; `brief` ones are shown if those do not fit."""

    text: str
    style: Style = HEADER
    brief: str = ""


class Heading(Struct, frozen=True, kw_only=True):
    """What the header shows besides the scene.

    Attributes:
        now_unix_s: wall-clock time.
        row: the worker that the screen is about; None: all workers.
        frozen_unix_s: when the picture was frozen; None: it is not frozen.
        now: the present scene, while the picture is frozen.
        from_url: the exporter that samples come from; None: the workers themselves.
        recorded: of a recording, how it is played; stands in place of LIVE.
        extra: further pieces that are never left out.
    """

    now_unix_s: float
    row: Row | None = None
    frozen_unix_s: float | None = None
    now: Scene | None = None
    from_url: str | None = None
    recorded: str = ""
    extra: Sequence[Piece] = ()


def header(frame: Frame, heading: Heading) -> Lines:
    """One line; more if what is never left out does not fit into one."""
    scene, width = frame.scene, frame.width
    left, right = _must(scene, heading)
    needed = sum(cell_len(piece.text) + len(_GAP) for piece in (*left, *right))
    if needed > width:
        pieces = [right[-2], *left, *right[:-2], right[-1]]
        short = [piece._replace(text=piece.text.replace("every ", "@")) for piece in pieces]
        return min(_packed(pieces, width), _packed(short, width), key=len)
    room = width - needed
    for piece in _may(scene, heading, frame.glyphs):
        for text in (piece.text, piece.brief):
            cells = cell_len(text) + len(_GAP)
            if text and cells <= room:
                left.append(piece._replace(text=text))
                room -= cells
                break
    line = Line(width).add(" ", HEADER)
    for place, piece in enumerate(_ordered(left)):
        line.add(_GAP if place else "", HEADER).add(piece.text, piece.style)
    line.add(" " * (room + len(_GAP)), HEADER)
    for place, piece in enumerate(right):
        line.add(_GAP if place else "", HEADER).add(piece.text, piece.style)
    return [line.add(" " * line.room, HEADER).segments()]


def _packed(pieces: Sequence[Piece], width: int) -> Lines:
    lines = [Line(width)]
    for piece in pieces:
        gap = 1 if lines[-1].room < width else 0
        if gap and cell_len(piece.text) + gap > lines[-1].room:
            lines.append(Line(width))
            gap = 0
        lines[-1].fill(gap, HEADER).add(piece.text, piece.style)
    return [line.add(" " * line.room, HEADER).segments() for line in lines]


def _must(scene: Scene, heading: Heading) -> tuple[list[Piece], list[Piece]]:
    """The pieces that are never left out. At the right, the state is the last but one and the time is the last."""
    left = [Piece(_interval(scene, heading.row) if scene.rows else _looked_for(heading))]
    right = [*heading.extra]
    if scene.simulated:
        right.append(Piece("SIMULATED", HEADER_WORD))
    if heading.frozen_unix_s is not None:
        now = heading.now or scene
        row = now.row(heading.row.name) if heading.row is not None else None
        word = state_word(now, heading.now_unix_s, row)
        if not word.text.startswith("LIVE"):
            right.append(Piece(f"now {word.text}", word.style))
        if heading.recorded:
            right.append(Piece(heading.recorded, HEADER_WORD))
        right.append(Piece("FROZEN", HEADER_WORD))
        return left, [*right, Piece(clock(heading.frozen_unix_s, heading.now_unix_s), HEADER_WORD)]
    last_unix_s = scene.last_unix_s if heading.row is None else heading.row.last_unix_s
    word = state_word(scene, heading.now_unix_s, heading.row)
    if heading.recorded and word.text.startswith("LIVE"):
        word = word._replace(text=heading.recorded + word.text.removeprefix("LIVE"))
    elif heading.recorded:
        right.append(Piece(heading.recorded, HEADER_WORD))
    return left, [
        *right,
        word,
        Piece(f"last {clock(last_unix_s, heading.now_unix_s)}", HEADER_WORD),
    ]


def _ordered(left: Sequence[Piece]) -> list[Piece]:
    """The title comes first if there is room for it, then the interval."""
    titles = [piece for piece in left if piece.text == "tpumon"]
    return titles + [piece for piece in left if piece.text != "tpumon"]


def _may(scene: Scene, heading: Heading, glyphs: Glyphs) -> list[Piece]:
    """Pieces that are shown if there is room, the most important first."""
    pieces = []
    url = "" if heading.from_url is None else tame(heading.from_url, ascii_only=glyphs.ascii)
    source = [Piece(cut(f"from {url}", 60, glyphs.ellipsis))] if url else []
    failing = bool(source) and any(row.exporter_failed for row in scene.rows)
    if failing:
        pieces += source
    if scene.traced_ratio is not None:
        pieces.append(Piece(f"traced {100 * scene.traced_ratio:.1f}%"))
    elif scene.traced_s:
        pieces.append(Piece(f"traced {scene.traced_s:.1f}s"))
    if heading.row is None and len(scene.rows) > 1:
        pieces += [
            Piece(f"{look.mark} {count} {look.word}", look.header, brief=f"{look.mark}{count}")
            for look, count in ((LOOKS[kind], scene.counts.get(kind, 0)) for kind in _PROBLEMS)
            if count
        ]
    if methods := _methods(scene, heading.row):
        pieces.append(Piece(methods))
    if scene.rows and heading.row is None:
        pieces.append(Piece("1 worker" if len(scene.rows) == 1 else f"{len(scene.rows)} workers"))
    pieces.append(Piece("tpumon", HEADER_WORD))
    if heading.row is None and scene.device_types:
        more = f" +{len(scene.device_types) - 1}" if len(scene.device_types) > 1 else ""
        full, brief = (
            cut(tame(name, ascii_only=glyphs.ascii), 30, glyphs.ellipsis) + more
            for name in (spoken_name(scene.device_types[0]), scene.device_types[0])
        )
        pieces.append(Piece(full, brief=brief))
    return pieces if failing else pieces + source


def _methods(scene: Scene, row: Row | None) -> str:
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


def _looked_for(heading: Heading) -> str:
    return f"every {short_time(_FIND_AGAIN_S if heading.from_url is None else _ASK_AGAIN_S)}"


def _interval(scene: Scene, row: Row | None) -> str:
    own_s = row.history.last.interval_s if row is not None and row.history.last is not None else None
    intervals_s = scene.intervals_s if own_s is None else (own_s, own_s)
    if intervals_s is None:
        return f"every {NOT_KNOWN}"
    low, high = (short_time(value_s) for value_s in intervals_s)
    return f"every {low}" if low == high else f"every {low}-{high}"


def state_word(scene: Scene, now_unix_s: float, row: Row | None = None) -> Piece:
    """LIVE, STALE and its age, and so on, of one worker or of all: LIVE as long as any worker is."""
    rows = [row] if row is not None else scene.rows
    if not rows:
        return Piece("WAITING", LOOKS["waiting"].header)
    live = sum(one.verdict.state == "live" for one in rows)
    share = "" if len(rows) == 1 else f" {live}/{len(rows)}"
    if live:
        return Piece(f"LIVE{share if live < len(rows) else ''}", HEADER_WORD)
    if all(one.exporter_failed for one in rows):
        lost_unix_s = min((one.since_unix_s for one in rows if one.since_unix_s is not None), default=now_unix_s)
        return Piece(f"EXPORTER DOWN {age(now_unix_s - lost_unix_s)}", LOOKS["down"].header)
    worst = next(state for state in _STATES if any(one.verdict.state == state for one in rows))
    like = [one for one in rows if one.verdict.state == worst]
    word = LOOKS[worst].word.upper() + (f" {len(like)}/{len(rows)}" if len(like) < len(rows) else "")
    if worst == "stale" and row is None:
        since_unix_s = scene.last_unix_s
    else:
        since_unix_s = min((one.since_unix_s for one in like if one.since_unix_s is not None), default=None)
    aged = f" {age(now_unix_s - since_unix_s)}" if since_unix_s is not None and worst != "waiting" else ""
    return Piece(word + aged, LOOKS[worst].header)


def footer(left: str, right: str, width: int, glyphs: Glyphs, style: Style | None = None) -> list[Segment]:
    """Keys or a message at the left; at the right, which part is shown. The right side is never cut."""
    room = max(width - cell_len(right) - 2, 0)
    line = Line(width).add(" " + cut(left, room, glyphs.ellipsis) if room > 1 else "", style)
    return line.right(right).segments() if right else line.segments()


def hints(words: Sequence[str], room: int) -> str:
    """As many hints as fit, starting with the first."""
    text = ""
    for word in words:
        longer = f"{text}{_GAP}{word}" if text else word
        if cell_len(longer) > room:
            break
        text = longer
    return text

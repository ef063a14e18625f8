"""Colors, marks and glyphs. Every state has a mark as well as a color; the colors are the terminal's own sixteen."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from rich.style import Style

from tpumon.analysis import WorkerStatus
from tpumon.model import Status

BOLD = Style(bold=True)
DIM = Style(dim=True)
SORTED = Style(bold=True, underline=True)
GRAPH = Style(color="cyan")
WARN = Style(color="yellow", bold=True)
CRITICAL = Style(color="red", bold=True)
UNKNOWN = Style(color="magenta", bold=True)

HEADER = Style(reverse=True)
HEADER_WORD = Style(reverse=True, bold=True)


class Badge(Struct, frozen=True, kw_only=True):
    """Mark, word and style of a state or severity.

    Attributes:
        mark: one ASCII character.
        word: its name in counts and rows.
        style: None: like other text.
    """

    mark: str
    word: str
    style: Style | None = None

    @property
    def header(self) -> Style:
        return HEADER_WORD if self.style is None else HEADER_WORD + Style(color=self.style.color)


# Signs are severities of workers that are live; letters are states of those that are not.
BADGES: Mapping[Status, Badge] = {
    "ok": Badge(mark=" ", word="ok"),
    "live": Badge(mark=" ", word="live"),
    "critical": Badge(mark="X", word="critical", style=CRITICAL),
    "warning": Badge(mark="!", word="warning", style=WARN),
    "info": Badge(mark=" ", word="info"),
    "down": Badge(mark="D", word="down", style=CRITICAL),
    "no-activity": Badge(mark="N", word="no activity", style=WARN),
    "stale": Badge(mark="S", word="stale", style=UNKNOWN),
    "unknown": Badge(mark="?", word="unknown", style=UNKNOWN),
    "waiting": Badge(mark="W", word="waiting", style=UNKNOWN),
    "busy": Badge(mark="B", word="busy", style=WARN),
    "continuous": Badge(mark="C", word="continuous", style=WARN),
    "paused": Badge(mark="P", word="sampling paused", style=WARN),
}


NOT_SEEN_BADGE = Badge(mark="?", word="not seen", style=UNKNOWN)
"""That of a worker that answers without showing whether anything runs."""


def badge_of(worker: WorkerStatus) -> Badge:
    """The badge of a worker: that of its mark."""
    return BADGES[worker.verdict.mark] if worker.is_seen else NOT_SEEN_BADGE


def state_badge(worker: WorkerStatus) -> Badge:
    return BADGES[worker.verdict.state] if worker.is_seen else NOT_SEEN_BADGE


class Glyphs(Struct, frozen=True, kw_only=True):
    """The characters of graphs and ornaments.

    Attributes:
        ascii: whether all of them are ASCII.
        levels: a column's fill from empty to full; the first means no figure, the second also means zero.
        parts: a bar's last cell, from empty to full.
        to_median, to_greatest: a column's cells between the least value and the median, and above the median.
        track: the rest of a bar.
        sorted: before the title of the sorted column: in its usual order, and reversed.
    """

    ascii: bool
    levels: str
    parts: str
    to_median: str
    to_greatest: str
    track: str
    cursor: str
    ellipsis: str
    dot: str
    dash: str
    axis: str
    tick: str
    arrows: str
    sorted: str
    rule: str


UNICODE = Glyphs(
    ascii=False,
    levels=" ▁▂▃▄▅▆▇█",
    parts=" ╸━",
    to_median="▓",
    to_greatest="░",
    track="─",
    cursor="▸",
    ellipsis="…",
    dot=" · ",
    dash="–",
    axis="│",
    tick="┤",
    arrows="↑↓",
    sorted="↓↑",
    rule="─",
)
ASCII = Glyphs(
    ascii=True,
    levels=" .:-=+*#",
    parts=" #",
    to_median="%",
    to_greatest="'",
    track=".",
    cursor=">",
    ellipsis="~",
    dot=" | ",
    dash="-",
    axis="|",
    tick="|",
    arrows="jk",
    sorted="v^",
    rule="-",
)

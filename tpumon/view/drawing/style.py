"""Colors, marks and glyphs. Every state has a mark as well as a color; the colors are the terminal's own sixteen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.style import Style

from tpumon.fleet import Severity, Verdict
from tpumon.history import State

BOLD = Style(bold=True)
DIM = Style(dim=True)
SORTED = Style(bold=True, underline=True)
GRAPH = Style(color="cyan")
WARN = Style(color="yellow", bold=True)
CRITICAL = Style(color="red", bold=True)
UNKNOWN = Style(color="magenta", bold=True)

HEADER = Style(reverse=True)
HEADER_WORD = Style(reverse=True, bold=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a state or severity is shown.

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
        """The style on the reversed header."""
        return HEADER_WORD if self.style is None else HEADER_WORD + Style(color=self.style.color)


LOOKS: Mapping[Severity | State, Look] = {
    "ok": Look(mark=" ", word="ok"),
    "live": Look(mark=" ", word="live"),
    "critical": Look(mark="X", word="critical", style=CRITICAL),
    "warn": Look(mark="!", word="warn", style=WARN),
    "down": Look(mark="X", word="down", style=CRITICAL),
    "no-activity": Look(mark="0", word="no activity", style=WARN),
    "stale": Look(mark="?", word="stale", style=UNKNOWN),
    "unknown": Look(mark="?", word="unknown", style=UNKNOWN),
    "waiting": Look(mark="W", word="waiting", style=UNKNOWN),
    "busy": Look(mark="B", word="busy", style=WARN),
    "continuous": Look(mark="C", word="continuous", style=WARN),
    "paused": Look(mark="P", word="sampling paused", style=WARN),
}


def kind_of(verdict: Verdict) -> Severity | State:
    """What a worker counts as: its severity while it is live, otherwise its state."""
    return verdict.severity if verdict.state == "live" else verdict.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """The characters of graphs and ornaments.

    Attributes:
        ascii: whether all of them are ASCII.
        levels: a column's fill from empty to full; the first means no figure, the second also means zero.
        parts: a bar's last cell, from empty to full.
        track: the rest of a bar.
    """

    ascii: bool
    levels: str
    parts: str
    track: str
    cursor: str
    ellipsis: str
    dot: str
    dash: str
    axis: str
    tick: str
    arrows: str
    rule: str


UNICODE = Glyphs(
    ascii=False,
    levels=" ▁▂▃▄▅▆▇█",
    parts=" ╸━",
    track="─",
    cursor="▸",
    ellipsis="…",
    dot=" · ",
    dash="–",
    axis="│",
    tick="┤",
    arrows="↑↓",
    rule="─",
)
ASCII = Glyphs(
    ascii=True,
    levels=" .:-=+*#",
    parts=" #",
    track=".",
    cursor=">",
    ellipsis="~",
    dot=", ",
    dash="-",
    axis="|",
    tick="|",
    arrows="jk",
    rule="-",
)

"""What a screen is drawn from: one frozen value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from tpumon.analysis.findings import Thresholds
from tpumon.outputs.live.drawing.style import Glyphs
from tpumon.outputs.live.parts.notes import Message
from tpumon.outputs.live.parts.op_lines import BY_TIME
from tpumon.outputs.live.parts.scene import Row, Scene


class KeyWords(NamedTuple):
    """A row of the help screen.

    Attributes:
        names: the keys, as they are written on a keyboard.
        words: what they do.
        hint: what the footer says; empty: the key itself knows.
    """

    names: str
    words: str
    hint: str = ""


class KeySection(NamedTuple):
    """The keys that are listed under one title on the help screen."""

    title: str
    keys: Sequence[KeyWords]


class Frame(Struct, frozen=True, kw_only=True):
    """Everything that a screen is drawn from.

    Attributes:
        scene: the fleet at the moment that is shown.
        rows: its workers in the chosen order, without those that the filter hides.
        width: cells in a line.
        height: lines that the screen may use.
        level: 1 or 2: how much is shown.
        glyphs: characters for graphs and ornaments.
        now_unix_s: wall-clock time; while the picture is frozen, the time it shows.
        thresholds: when a figure is marked.
        sources: titles of the sources of figures, by name.
        messages: recent messages, the newest last.
        keys: every key, for the help screen.
        sort: what the rows are sorted by.
        reverse: whether that order is reversed.
        filter: text that the shown workers match; empty: all of them.
        kind: only workers of this kind are shown, one of `NOT_OK`, a severity or a state; empty: all of them.
        selected: name of the worker at the cursor.
        opened: name of the worker whose page is open.
        top: place of the first row in the last picture.
        ops_by: what operations are sorted by, `BY_TIME` or `BY_CATEGORY`.
        span_s: how much time graphs show; None: as much as is known, up to an hour.
        end_unix_s: when graphs end; None: now.
    """

    scene: Scene
    rows: Sequence[Row]
    width: int
    height: int
    level: int
    glyphs: Glyphs
    now_unix_s: float
    thresholds: Thresholds = field(default_factory=Thresholds)
    sources: Mapping[str, str] = field(default_factory=dict)
    messages: Sequence[Message] = ()
    keys: Sequence[KeySection] = ()
    sort: str = ""
    reverse: bool = False
    filter: str = ""
    kind: str = ""
    selected: str | None = None
    opened: str | None = None
    top: int = 0
    ops_by: str = BY_TIME
    span_s: float | None = None
    end_unix_s: float | None = None

    @property
    def seen(self) -> frozenset[str]:
        """Keys of the figures that any worker has had."""
        return self.scene.seen

    @property
    def opened_row(self) -> Row | None:
        """The worker whose page is open, if it is still there."""
        return self.scene.row(self.opened)

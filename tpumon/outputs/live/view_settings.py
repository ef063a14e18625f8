"""Settings of the live view; loads nothing that draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from tpumon.analysis.findings import Thresholds
from tpumon.model.figure_table import SORT_KEYS


class KeyWords(Struct, frozen=True):
    """A row of the help screen.

    Attributes:
        names: the keys, as they are written on a keyboard.
        words: what they do.
        hint: what the footer says; empty: the key itself knows.
    """

    names: str
    words: str
    hint: str = ""


class KeySection(Struct, frozen=True):
    """Keys that are listed under one title on the help screen."""

    title: str
    keys: Sequence[KeyWords]


class DisplaySettings(Struct, frozen=True, kw_only=True):
    """Settings of the live view.

    Attributes:
        level: 1 or 2: how much is shown.
        sort: one of `tpumon.model.figure_table.SORT_KEYS`.
        reverse: True if that order is reversed.
        filter: show only workers that fit this text.
        ascii: use nothing but ASCII.
        thresholds: when a figure is marked.
        from_url: the exporter that samples come from; None: the workers themselves.
        sources: titles of the sources of figures, by name; others go by their name.
        more_keys: keys that something else takes, for the help screen and the footer.
    """

    level: int = 2
    sort: str = SORT_KEYS[0]
    reverse: bool = False
    filter: str = ""
    ascii: bool = False
    thresholds: Thresholds = field(default_factory=Thresholds)
    from_url: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    more_keys: Sequence[KeySection] = ()

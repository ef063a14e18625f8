"""Settings of the live view; loads nothing that draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from tpumon.analysis.findings import Thresholds
from tpumon.model.figure_table import SORT_KEYS

if TYPE_CHECKING:
    from tpumon.analysis import WorkerStatus

_LEAST_LETTERS = 3


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


def fits(text: str, worker: WorkerStatus) -> bool:
    """True if a worker's name, address or slice contains this text, or its state or a finding of it begins so.

    Case does not matter. Of states and findings at least three letters count: most names have one or two of theirs.
    """
    wanted, target, verdict = text.lower(), worker.target, worker.verdict
    if any(wanted in (name or "").lower() for name in (target.worker, target.address, target.slice)):
        return True
    words = (verdict.state, verdict.severity, *(cause.finding or "" for cause in verdict.causes))
    return len(wanted) >= _LEAST_LETTERS and any(name.startswith(wanted.replace(" ", "-")) for name in words)

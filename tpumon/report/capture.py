"""What a report is of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from tpumon.model import Finding
from tpumon.untrusted_text import one_line

if TYPE_CHECKING:
    from tpumon.xspace.profile.profile import Profile
    from tpumon.xspace.trace_figures import TraceFigures


class Host(Struct, frozen=True, kw_only=True):
    """One host of a capture.

    Attributes:
        name: unique in the capture.
        profile: its trace.
    """

    name: str
    profile: Profile


class Capture(Struct, frozen=True, kw_only=True):
    """One profile: the traces of one or several hosts that were taken together.

    Attributes:
        hosts: at least one.
        figures: of all hosts together.
        findings: what is wrong, the worst first, as `tpumon why` judges it.
    """

    hosts: tuple[Host, ...]
    figures: TraceFigures
    findings: tuple[Finding, ...] = ()


class Choice(Struct, frozen=True, kw_only=True):
    """Which ops to show.

    Attributes:
        top: how many rows a table of ops has at most.
        program: only programs whose name or number contains this.
        words: only ops whose name, category, provenance or source contains this, in capital letters or small ones.
    """

    top: int = 20
    program: str | None = None
    words: str | None = None

    @property
    def title(self) -> str:
        """What was chosen, in words; "" for everything."""
        parts = [f"program {one_line(self.program)}"] if self.program else []
        return ", ".join([*parts, *([f"ops with {one_line(self.words)!r}"] if self.words else [])])

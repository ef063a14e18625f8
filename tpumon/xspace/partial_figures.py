"""Some of the figures, with the reasons for absent ones, and the ratios that figures are made of."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from tpumon.model import Figures, FigureWarning
from tpumon.xspace.columns.columns import PS_PER_S

WINDOW_WITHOUT_STEPS = "no steps in the window"


class PartialFigures(Struct, frozen=True, eq=False):
    """Some of the figures of one or several hosts.

    Attributes:
        figures: those that were computed; all others are None.
        absent: why one of them could not be computed, by field name.
        warnings: what a reader of these figures should know.
    """

    figures: Figures = field(default_factory=Figures)
    absent: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[FigureWarning, ...] = ()


def of_peak(amount: float, time_ps: float, peak_per_s: float | None) -> float | None:
    """An amount over what the peak rate would have done in that time."""
    return None if peak_per_s is None else ratio(amount * PS_PER_S, time_ps * peak_per_s)


def ratio(amount: float, whole: float) -> float | None:
    """A ratio, at most 1; None of nothing."""
    return min(float(amount) / float(whole), 1.0) if whole > 0 else None

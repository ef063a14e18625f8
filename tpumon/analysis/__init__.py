"""Analysis: judges each sample once, and says what follows from it for every output."""

from tpumon.analysis.analysis import MOST_HISTORY_BYTES, Analysis
from tpumon.analysis.status import FigureStats, FleetStatus, Update, Verdict, WorkerStatus

__all__ = [
    "MOST_HISTORY_BYTES",
    "Analysis",
    "FigureStats",
    "FleetStatus",
    "Update",
    "Verdict",
    "WorkerStatus",
]

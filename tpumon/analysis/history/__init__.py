"""History of workers: states, samples, figures over time, changes."""

from tpumon.analysis.history.changes import Changes
from tpumon.analysis.history.series import Point, RollupSeries
from tpumon.analysis.history.states import state_of
from tpumon.analysis.history.timeline import (
    GAPS,
    SEVERITIES,
    WELL,
    Moment,
    ReportedStatus,
    StatusTimeline,
    change_between,
    seconds_between,
)
from tpumon.analysis.history.worker_history import (
    FIRST_STEP_BUCKET,
    NO_FIGURES,
    STEP_BUCKETS_S,
    STEP_SCHEMA,
    Histories,
    WorkerHistory,
)
from tpumon.model import State

__all__ = [
    "FIRST_STEP_BUCKET",
    "GAPS",
    "NO_FIGURES",
    "SEVERITIES",
    "STEP_BUCKETS_S",
    "STEP_SCHEMA",
    "WELL",
    "Changes",
    "Histories",
    "Moment",
    "Point",
    "ReportedStatus",
    "RollupSeries",
    "State",
    "StatusTimeline",
    "WorkerHistory",
    "change_between",
    "seconds_between",
    "state_of",
]

"""What is remembered of workers: states, samples, figures over time, changes."""

from tpumon.history.course import WELL, Course, Moment
from tpumon.history.events import Changes
from tpumon.history.series import Point, RollupSeries
from tpumon.history.states import state_of
from tpumon.history.worker import NO_FIGURES, STEP_BUCKETS_S, Histories, WorkerHistory
from tpumon.model import State

__all__ = [
    "NO_FIGURES",
    "STEP_BUCKETS_S",
    "WELL",
    "Changes",
    "Course",
    "Histories",
    "Moment",
    "Point",
    "RollupSeries",
    "State",
    "WorkerHistory",
    "state_of",
]

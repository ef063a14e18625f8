"""The values that all parts of tpumon exchange: frozen, without I/O, protobuf or a clock.

Names end in their unit: times in seconds, ratios 0-1, sizes in bytes. An absent value is None, never 0.
"""

from tpumon.model.address import Address
from tpumon.model.bounds import bounded
from tpumon.model.caution import SIMULATED_MARK, Caution, CautionCode
from tpumon.model.figures import (
    MOST_OPS,
    CoreFigures,
    DeviceFigures,
    Distribution,
    Figures,
    FunctionFigures,
    MxuMethod,
    OpCategoryFigures,
    OpFigures,
    Percentiles,
    RuntimeFigures,
    Spread,
    StepSource,
    StepTimes,
)
from tpumon.model.finding import (
    SEVERITY_LEVELS,
    Cause,
    Confidence,
    Evidence,
    Finding,
    FindingDetail,
    FindingId,
    FindingSeverity,
    NotJudged,
    StateId,
)
from tpumon.model.kept import KeptActivity, KeptFinding, KeptProgram, KeptState, KeptWorker
from tpumon.model.runtime_names import RUNTIME_COUNTS, RUNTIME_LATENCIES
from tpumon.model.sample import SCHEMA_VERSION, Failure, Sample
from tpumon.model.source_event import SourceEvent
from tpumon.model.state import Change, ChangeKind, Handover, Severity, State, Status, StatusSnapshot
from tpumon.model.target import (
    LONGEST_WINDOW_S,
    Framework,
    JobSigns,
    ListedTarget,
    Pod,
    Process,
    Query,
    Target,
    Workers,
)

__all__ = [
    "LONGEST_WINDOW_S",
    "MOST_OPS",
    "RUNTIME_COUNTS",
    "RUNTIME_LATENCIES",
    "SCHEMA_VERSION",
    "SEVERITY_LEVELS",
    "SIMULATED_MARK",
    "Address",
    "Cause",
    "Caution",
    "CautionCode",
    "Change",
    "ChangeKind",
    "Confidence",
    "CoreFigures",
    "DeviceFigures",
    "Distribution",
    "Evidence",
    "Failure",
    "Figures",
    "Finding",
    "FindingDetail",
    "FindingId",
    "FindingSeverity",
    "Framework",
    "FunctionFigures",
    "Handover",
    "JobSigns",
    "KeptActivity",
    "KeptFinding",
    "KeptProgram",
    "KeptState",
    "KeptWorker",
    "ListedTarget",
    "MxuMethod",
    "NotJudged",
    "OpCategoryFigures",
    "OpFigures",
    "Percentiles",
    "Pod",
    "Process",
    "Query",
    "RuntimeFigures",
    "Sample",
    "Severity",
    "SourceEvent",
    "Spread",
    "State",
    "StateId",
    "Status",
    "StatusSnapshot",
    "StepSource",
    "StepTimes",
    "Target",
    "Workers",
    "bounded",
]

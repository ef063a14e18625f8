"""Base of profiler sources: ways to get a worker's figures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, field

from tpumon.collection.sources.doctor_reports import Examination, RpcAnswer
from tpumon.collection.sources.rpc import MAX_TRACE_MB
from tpumon.collection.sources.traces.slots import TraceSlots
from tpumon.model import JobSigns, ProcessState, Query
from tpumon.model.progress import Progress

if TYPE_CHECKING:
    from tpumon.collection.sources.rpc import Client
    from tpumon.model import Sample, Target
    from tpumon.system.logdir import LogDir

_GLANCE = Query(level=1, window_s=0.001)


class SourceOptions(Struct, frozen=True, kw_only=True):
    """Settings of sources.

    Attributes:
        host_level: host tracer level 0-3 of sampled traces; None: as high as is useful and safe.
        logdir: where servers that cannot return a trace may write it; None: nowhere, or a private directory if the
            server is on this host.
        runtime_metrics: also read the runtime metric service.
        gpu: trace GPUs, too.
        signs_at: what can be seen of the job that listens at an address of this host; may take a second.
        state_of: the state of a process of this host.
        context_switches_of: how often it has left a processor; None: not known.
        cpu_s_of: how long it has computed; None: not known.
        max_trace_mb: the largest trace to accept, in MB.
        slots: bound how many traces are taken at a time; shared by all workers.
        progress: told what is done about each worker.
    """

    host_level: int | None = None
    logdir: LogDir | None = None
    runtime_metrics: bool = False
    gpu: bool = False
    signs_at: Callable[[str], JobSigns | None] = lambda _address: None
    state_of: Callable[[int], ProcessState] = lambda _pid: "runs"
    context_switches_of: Callable[[int], int | None] = lambda _pid: None
    cpu_s_of: Callable[[int], float | None] = lambda _pid: None
    max_trace_mb: int = MAX_TRACE_MB
    slots: TraceSlots = field(default_factory=TraceSlots)
    progress: Progress = field(default_factory=Progress)


class ProfilerSource(ABC):
    """One way to get one worker's figures; remembers what it needs about that worker.

    A new one is a file here and a line in `tpumon.collection.sources.PROFILERS`.

    Attributes:
        name: as in `Sample.source` and `Failure.source`.
        title: what the live view calls it, such as "short traces"; empty: its name.
        usual_interval_s: from one query's start to the next unless the user says; 0: back to back.
        rpc: what `doctor` calls it.
        is_silent: whether its next trace is a short one, which is to tell if a device that fell silent runs again.
        unanswered_s: when the last query began a trace of the host that may hang the job, in seconds since this machine
            was started, if that has no answer; 0: it did not, or it has.
        costs_job: whether it slows the job down, if only for a moment; it is then left out of a paused `doctor`.
        gives: the figures that it gives and their price, for `doctor`.
        missing: what `doctor` says of a worker that does not offer it.
    """

    name: ClassVar[str]
    title: ClassVar[str] = ""
    usual_interval_s: ClassVar[float]
    rpc: ClassVar[str]
    is_silent: bool = False
    unanswered_s: float = 0.0
    costs_job: ClassVar[bool] = False
    gives: ClassVar[str] = ""
    missing: ClassVar[str] = "not offered"

    @abstractmethod
    async def fetch(self, query: Query) -> Sample:
        """Runs one query; every call in it has a deadline.

        Raises:
            SourceError: the query failed; `unimplemented`: this worker does not offer the source, try the next one.
        """

    @property
    def current_traced_s(self) -> float:
        """Seconds for which the query under way, or the one that was just cancelled, has traced the job."""
        return 0.0

    def likely_s(self, query: Query) -> float:  # noqa: ARG002 - of others
        """Seconds for which a query is likely to trace the job."""
        return 0.0

    def window_s(self, query: Query) -> float:  # noqa: ARG002 - of others
        """Length of the trace that a query takes; 0: it takes none."""
        return 0.0

    def note_silence(self, query: Query) -> bool:  # noqa: ARG002 - of others
        """Notes that nothing runs, as others say, too; returns `is_silent`."""
        return False

    def activity_check_s(self, query: Query) -> float:  # noqa: ARG002 - of others
        """Seconds for which `anything_runs` is likely to trace the job; 0: it tells nothing, or a query is as short."""
        return 0.0

    async def anything_runs(self) -> bool:
        """Tells by a call that is shorter than a query if anything runs, where `activity_check_s` is not 0.

        Raises:
            SourceError: as `fetch`.
        """
        return True

    async def probe(self) -> None:
        """Finds out if the server answers, by the call that costs its job least. Here: a query of 1 ms.

        Raises:
            SourceError: it does not, or not as it should.
        """
        await self.fetch(_GLANCE)

    async def examine(self) -> Examination:
        """Finds out for `doctor` whether this source works, by harmless calls. Here: a query of 1 ms.

        Raises:
            SourceError: as `fetch`.
        """
        sample = await self.fetch(_GLANCE)
        of = f" of {sample.device_type}" if sample.device_type else ""
        answer = RpcAnswer(rpc=self.rpc, state="ok", words=f"returns the figures{of}")
        return Examination(answers=(answer,), simulated=sample.simulated, gives=self.gives)


ProfilerFactory = Callable[["Client", "Target", SourceOptions], ProfilerSource]
"""Makes the source of one worker; makes no call yet."""

"""What a source is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tpumon.errors import Reason
    from tpumon.logdir import LogDir
    from tpumon.model import Query, Sample, Target
    from tpumon.sources.rpc import Client

FINAL_REASONS: frozenset[Reason] = frozenset({"unimplemented", "not-a-profiler", "refused", "too-large"})
"""Reasons that asking again in a moment does not change."""

_TRACES_IN_FLIGHT = 24  # 2 % of 1,000 jobs, and each may hold tens of megabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a user decides about how figures are got.

    Attributes:
        host_level: host tracer level 0-3 of sampled traces; None: as high as is useful and safe.
        logdir: where servers that cannot return a trace may write it; None: nowhere, or a private directory where the
            server is on this host.
        runtime_metrics: whether the runtime metric service is asked as well.
        traces_in_flight: how many traces may be taken, held and read at the same time.
    """

    host_level: int | None = None
    logdir: LogDir | None = None
    runtime_metrics: bool = False
    traces_in_flight: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_TRACES_IN_FLIGHT))


class Source(Protocol):
    """One way to learn one worker's figures; remembers of that worker what it needs.

    A new one is a file here and a line in `tpumon.sources.SOURCES`.
    """

    @property
    def name(self) -> str:
        """As in `Sample.source` and `Failure.source`."""

    @property
    def usual_interval_s(self) -> float:
        """From one query's start to the next where the user says nothing; 0: back to back."""

    async def fetch(self, query: Query) -> Sample:
        """One query, every call in it with a deadline.

        Raises:
            SourceError: with reason `unimplemented` where this worker does not offer the source at all; the next
                one is then tried.
        """


SourceFactory = Callable[["Client", "Target", SourceOptions], Source]
"""Makes the source of one worker; makes no call yet."""

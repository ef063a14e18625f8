"""What a source is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tpumon.errors import Reason
    from tpumon.model import Query, Sample, Target
    from tpumon.sources.rpc import Client

FINAL_REASONS: frozenset[Reason] = frozenset({"unimplemented", "not-a-profiler", "refused", "too-large"})
"""Reasons that asking again in a moment does not change."""


class Source(Protocol):
    """One way to learn a worker's figures. A new one is a file here and a line in `tpumon.sources.SOURCES`."""

    @property
    def name(self) -> str:
        """As in `Sample.source` and `Failure.source`."""

    async def fetch(self, client: Client, target: Target, query: Query) -> Sample:
        """One query of one worker, every call in it with a deadline.

        Raises:
            SourceError: with reason `unimplemented` where this worker does not offer the source at all; the next
                one is then tried.
        """

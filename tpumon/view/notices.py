"""Lines about workers that do not answer: one when it begins, one when its kind changes, one when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpumon.model import Sample

_ADVICE = {
    "unimplemented": (
        "it has no Monitor RPC (UNIMPLEMENTED), as on every TPU VM; figures from short traces are not built yet, "
        "`tpumon --level 0 --logdir DIR` takes a profile"
    ),
}


@dataclass(slots=True)
class _Trouble:
    reason: str
    queries: int


class Notices:
    """Turns the samples of a run into lines for stderr, few enough to be read."""

    def __init__(self) -> None:
        self._troubles: dict[str, _Trouble] = {}
        self.answered: set[str] = set()
        """Workers that answered at least once."""

    def update(self, sample: Sample) -> str | None:
        """The line to print about this sample, if any."""
        trouble = self._troubles.get(sample.worker)
        if sample.answered:
            self.answered.add(sample.worker)
            if trouble is None:
                return None
            del self._troubles[sample.worker]
            return f"{sample.worker}: answers again after {_queries(trouble.queries)} without an answer"
        failure = sample.errors[-1]
        if trouble is not None and trouble.reason == failure.reason:
            trouble.queries += 1
            return None
        self._troubles[sample.worker] = _Trouble(failure.reason, 1 if trouble is None else trouble.queries + 1)
        said = _ADVICE.get(failure.reason)
        what = f"{sample.address}: {said}" if said else failure.message
        name = "" if what.startswith(sample.worker) else f"{sample.worker}: "
        return f"{name}{what} [{failure.reason}]"


def _queries(count: int) -> str:
    return "1 query" if count == 1 else f"{count} queries"

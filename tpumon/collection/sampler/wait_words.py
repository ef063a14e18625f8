"""Words for what a worker waits for, and for how long; and for figures that are absent meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tpumon.collection.sampler.duty_account import DutyAccount
from tpumon.collection.sampler.host_traces import waits_since
from tpumon.errors import MEANING, NOT_SEEN
from tpumon.model import Failure
from tpumon.model.figure_table import IDLE, INFEED, MXU, STEP
from tpumon.model.progress import Progress

_OF_WHAT_RUNS = tuple(figure.fields[0] for figure in (MXU, IDLE, STEP, INFEED))


def why_absent(failure: Failure, level: int) -> Mapping[str, str]:
    """Returns reasons for figures that are absent although the worker answered: nothing ran, or that is not seen."""
    if MEANING[failure.reason].state != "no-activity":
        return {}
    why = NOT_SEEN if failure.shows_nothing else "nothing ran"
    return dict.fromkeys(_OF_WHAT_RUNS if level > 1 else _OF_WHAT_RUNS[:1], why)


class WaitWords:
    """Tells of one worker when it is asked next, and of a command when it will have all of its samples.

    Args:
        progress: told so.
        address: of the worker.
        account: of its server.
        samples: that a command waits for; 0: there is none.
        wanted_s: gets the interval from one query to the next that is wanted.
    """

    def __init__(
        self, progress: Progress, address: str, account: DutyAccount, samples: int, wanted_s: Callable[[], float]
    ) -> None:
        self._progress = progress
        self._address = address
        self._account = account
        self._left = samples
        self._wanted_s = wanted_s

    def note_query(self) -> None:
        """Notes that a query begins: all until the next one is of that."""
        self._left -= 1

    def asks(self) -> None:
        """Its query is made now."""
        self._progress.note_traced(self._address, self._account.traced())
        self._progress.does(self._address, "it is asked", "asking")

    def next(self, left_s: float, cost_s: float, *, is_held: bool) -> None:
        """The next query comes in so many seconds; as long as the worker is held, it asks nothing."""
        self._progress.note_traced(self._address, self._account.traced())
        is_late = self._left > 0 and self._account.ready_s(cost_s) > asyncio.get_running_loop().time()
        why, all_s = (self._why, self._all_s(left_s, cost_s, self._left)) if is_late else ("", None)
        self._progress.waits(self._address, "asked again", left_s, why, all_s, is_held=is_held)

    def turn(self, left_s: float, cost_s: float) -> None:
        """Its query waits for so many seconds until the job may be traced."""
        self._progress.note_traced(self._address, self._account.traced())
        self._progress.waits(self._address, "traced", left_s, self._why, self._all_s(left_s, cost_s, 1 + self._left))

    def _all_s(self, left_s: float, cost_s: float, queries: int) -> float | None:
        """Seconds until so many queries were made, the first of them in `left_s`.

        None: it is one, or no trace has shown yet what one costs.
        """
        if self._account.likely_s is None or queries <= 1:
            return None
        allowed_s = self._account.turn_s(cost_s, queries) - asyncio.get_running_loop().time()
        return max(allowed_s, left_s + (queries - 1) * self._wanted_s())

    @property
    def _why(self) -> str:
        two = "it was restarted, and traced for the share of time of both its processes"
        alone = two if self._account.is_of_two else "it was traced for its share of time"
        return f"{self._account.others or alone} (--max-duty)"

    def tracing(self, since_s: float) -> None:
        """A trace of the host that began then has no answer."""
        self._progress.does(self._address, waits_since(since_s), "tracing", detail="host-trace-waits")

    @property
    def why_not_traced(self) -> Mapping[str, str]:
        """Reasons for which an answer has no figures of a trace."""
        why = "it is traced again when its share of time allows (--max-duty)"
        if self._account.is_of_two:
            why = "it was restarted shortly before: traced again when both processes' share allows (--max-duty)"
        return dict.fromkeys(_OF_WHAT_RUNS, why)

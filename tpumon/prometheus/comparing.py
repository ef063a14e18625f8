"""Asks Prometheus for what stragglers are found by, and since when they are."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence

from tpumon.findings import Thresholds
from tpumon.model import Sample
from tpumon.model.frozen import frozen
from tpumon.prometheus.across import MOST_DATED, Compared, Stragglers, before, since_of, waits_of
from tpumon.prometheus.asking import Start
from tpumon.prometheus.past import SPANS
from tpumon.prometheus.queries import COLLECTIVE, SUCCESS, TOOK, Queries
from tpumon.prometheus.rebuild import Picture
from tpumon.prometheus.wire import Answer, PrometheusServer, Series
from tpumon.prometheus.workers import Key, Known
from tpumon.system.threads import in_thread

_ROUNDS = 6
ROUND_S = 60.0
"""By how many times before now, and how far apart, workers are compared at first."""


@frozen(kw_only=False)
class Comparing:
    """Compares workers at one time.

    Attributes:
        server: where to ask.
        queries: what to ask.
        identity: labels that tell workers apart.
        now_unix_s: the time by the server's clock.
        limits: limits that users can set.
    """

    server: PrometheusServer
    queries: Queries
    identity: Sequence[str]
    now_unix_s: float
    limits: Thresholds

    async def before(self) -> Answer:
        """What workers were compared by before now.

        Raises:
            TroubleError: no answer.
        """
        begin_unix_s, end_unix_s = self.now_unix_s - _ROUNDS * ROUND_S, self.now_unix_s - ROUND_S / 2
        return await self.server.query_range(self.queries.compared, begin_unix_s, end_unix_s, ROUND_S)

    async def begun(self, known: Mapping[Key, Known], compared: Awaitable[Answer], start: Start) -> Begun:
        """Compares the workers by what was before, and asks at once since when those are that it finds.

        Raises:
            TroubleError: no answer.
        """
        answer = await compared
        # In a thread: it takes a while, in which other queries are to be sent.
        stragglers = await in_thread(lambda: self._judged_before(answer.series, known), timeout_s=None)
        likely = stragglers.found()[:MOST_DATED]
        return Begun(stragglers, likely, start(self._waits(likely, *SPANS[0])) if likely else None)

    def _judged_before(self, series: Sequence[Series], known: Mapping[Key, Known]) -> Stragglers:
        stragglers = Stragglers(self.limits)
        for one in before(series, known, self.identity):
            stragglers.judge(one, self.now_unix_s)
        return stragglers

    async def compare(
        self,
        stragglers: Stragglers,
        begun: Begun | None,
        samples: Mapping[Key, Sample],
        known: Mapping[Key, Known],
        picture: Picture,
    ) -> None:
        """Compares the workers by their present samples, and asks since when those are stragglers that are found.

        Args:
            stragglers: what is known of those before.
            begun: what came before the first present samples; None: these are not the first.
            samples: the present ones.
            known: the workers.
            picture: what is told of them.

        Raises:
            TroubleError: no answer.
        """
        are_known = set() if begun is not None else set(stragglers.found())
        compared: dict[Key, Compared] = {}
        for key, sample in samples.items():
            if sample.answered:
                numbers = picture.told[key].numbers
                taken_unix_s = numbers.get(SUCCESS, self.now_unix_s) - numbers[TOOK]
                compared[key] = Compared(known[key].target, sample, taken_unix_s, numbers.get(COLLECTIVE))
        stragglers.judge(compared, self.now_unix_s)
        new = [key for key in stragglers.found() if key not in are_known][:MOST_DATED]
        waits = begun.waits if begun is not None and set(new) <= set(begun.likely) else None
        for length_s, step_s in SPANS if new else ():
            begin_unix_s = self.now_unix_s - length_s
            answer = await (waits or self._waits(new, length_s, step_s))
            waits = None
            since = since_of(answer.series, new, self.identity, step_s, self.limits)
            stragglers.date(since)
            new = [key for key in new if since.get(key, self.now_unix_s) < begin_unix_s + 2 * step_s]
            if not new:
                break

    async def _waits(self, keys: Sequence[Key], length_s: float, step_s: float) -> Answer:
        expression = self.queries.waits_less(waits_of(keys, self.identity))
        return await self.server.query_range(expression, self.now_unix_s - length_s, self.now_unix_s, step_s)


@frozen(kw_only=False)
class Begun:
    """What is known before the present samples are compared.

    Attributes:
        stragglers: as far as they are judged.
        likely: who seems to be one, and of whom is asked since when.
        waits: the answer for the last hour; None: nobody seems to be one.
    """

    stragglers: Stragglers
    likely: Sequence[Key]
    waits: Awaitable[Answer] | None

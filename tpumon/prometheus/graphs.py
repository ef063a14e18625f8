"""What graphs begin with: figures of the last hour, from two range queries whatever the number of workers.

Of a large fleet, those are only of its worst workers; another one's are asked for when it is looked at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence

from tpumon.figures import COMPARED
from tpumon.history import Tiers
from tpumon.model import Sample
from tpumon.prometheus.across import waits_of
from tpumon.prometheus.queries import Queries, name_of
from tpumon.prometheus.wire import PrometheusServer, Series
from tpumon.prometheus.workers import Key, key_of

MOST_GRAPHED = 100
"""Of how many workers figures are asked: the worst of a larger fleet, more than rows on a screen."""

_SPAN_S, _STEP_S = 3600.0, 60.0


async def averages_of(server: PrometheusServer, queries: Queries, workers: int, now_unix_s: float) -> Sequence[Series]:
    """The figures of the last hour as averages over all workers, of whom there are so many.

    Raises:
        TroubleError: no answer.
    """
    # HBM is a quotient of each device: for a large fleet it would take as long as all the rest.
    return await _last_hour(server, queries.averages(hbm=workers <= MOST_GRAPHED), now_unix_s)


async def graphs_of(
    server: PrometheusServer,
    queries: Queries,
    identity: Sequence[str],
    samples: Mapping[Key, Sample],
    now_unix_s: float,
    averages: Awaitable[Sequence[Series]],
) -> dict[str, bytes]:
    """The packed history of workers by name, and by an empty name that of the averages over all workers.

    Args:
        server: where to ask.
        queries: what to ask.
        identity: labels that tell workers apart.
        samples: the present ones, judged.
        now_unix_s: the time by the server's clock.
        averages: as `averages_of` returns them.

    Raises:
        TroubleError: no answer.
    """
    graphed = {key: samples[key].worker for key in _worst_first(samples)[:MOST_GRAPHED]}
    matchers = "" if len(graphed) == len(samples) else waits_of(list(graphed), identity)
    history = _by_worker(await _last_hour(server, queries.graphed(matchers), now_unix_s), graphed, identity)
    of_all = await averages
    return {**history, "": _packed(of_all)} if of_all else history


async def graph_of(
    server: PrometheusServer, queries: Queries, identity: Sequence[str], key: Key, worker: str, now_unix_s: float
) -> dict[str, bytes]:
    """The packed history of one worker, by its name, if there is any.

    Raises:
        TroubleError: no answer.
    """
    series = await _last_hour(server, queries.graphed(waits_of([key], identity)), now_unix_s)
    return _by_worker(series, {key: worker}, identity)


async def _last_hour(server: PrometheusServer, expression: str, now_unix_s: float) -> Sequence[Series]:
    begin_unix_s, end_unix_s = now_unix_s - _SPAN_S, now_unix_s - _STEP_S  # the present samples come after that
    return (await server.query_range(expression, begin_unix_s, end_unix_s, _STEP_S)).series


def _by_worker(series: Iterable[Series], names: Mapping[Key, str], identity: Sequence[str]) -> dict[str, bytes]:
    of_workers: dict[Key, list[Series]] = {}
    for one in series:
        key = key_of(one.labels, identity)
        if key in names:
            of_workers.setdefault(key, []).append(one)
    return {names[key]: _packed(its) for key, its in of_workers.items()}


def _worst_first(samples: Mapping[Key, Sample]) -> list[Key]:
    ranks = {"critical": 1, "warning": 2, "info": 3}

    def rank(key: Key) -> int:
        sample = samples[key]
        return 0 if sample.failure is not None else ranks[sample.findings[0].severity] if sample.findings else 3

    return sorted(samples, key=rank)


def _packed(series: Iterable[Series]) -> bytes:
    """The figures of one worker, or of all; a time of which nothing is known has no point."""
    values: dict[float, dict[str, float]] = {}
    for one in series:
        for time_unix_s, value in one.points:
            values.setdefault(time_unix_s, {})[name_of(one.labels)] = value
    tiers = Tiers(tuple(COMPARED))
    for time_unix_s in sorted(values):
        tiers.add(time_unix_s, "live", map(values[time_unix_s].get, COMPARED))
    return tiers.packed()

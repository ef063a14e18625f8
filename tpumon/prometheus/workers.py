"""Who the workers are: names that are unique, whatever clusters and namespaces they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tpumon.model import Target, Workers
from tpumon.model.frozen import frozen
from tpumon.prometheus.queries import TARGET_INFO, WORKER_INFO
from tpumon.prometheus.table import Table
from tpumon.prometheus.wire import Series

PLACES = ("cluster", "namespace", "job", "pod", "instance")
"""Labels of Prometheus that tell workers of equal names apart, the most telling first."""

MOST_WORKERS = 10_000

_OF_SLICE = ("cluster", "namespace")  # tell slices of equal names apart; others do if they tell workers apart

Key = tuple[str, ...]
"""The values of a worker's identity labels."""


@frozen
class Known:
    """One worker.

    Attributes:
        target: its name, address and slice.
        info: labels of its present sample (`tpu_worker_info`); None: there is none.
    """

    target: Target
    info: Mapping[str, str] | None = None


def identity_of(series: Sequence[Series], before: Sequence[str]) -> tuple[str, ...]:
    """The labels that tell all workers apart: those that did before, and as few more as are needed."""
    rows = [one.labels for one in series if one.labels.get("__name__") == TARGET_INFO]
    chosen = ["worker", *before[1:]]
    places = [name for name in PLACES if name not in chosen]
    distinct = _count(rows, chosen)
    for name in places:
        if distinct == len(rows):
            break
        if (more := _count(rows, [*chosen, name])) > distinct:
            chosen.append(name)
            distinct = more
    return tuple(chosen)


def _count(rows: Iterable[Mapping[str, str]], names: Sequence[str]) -> int:
    return len({key_of(row, names) for row in rows})


def key_of(labels: Mapping[str, str], identity: Sequence[str]) -> Key:
    """What tells a series' worker apart."""
    if len(identity) == 1:  # usual, and asked for every series
        return (labels.get(identity[0], ""),)
    return tuple([labels.get(name, "") for name in identity])


def keys_of(table: Table, identity: Sequence[str]) -> Iterable[Key]:
    """What tells the workers of all series apart."""
    return zip(*(table.column(name) for name in identity), strict=True)


def known_of(series: Sequence[Series], identity: Sequence[str], independent: Iterable[Key]) -> dict[Key, Known]:
    """The workers, 10,000 at most, in the order of their names."""
    infos: dict[Key, Mapping[str, str]] = {}
    targets: dict[Key, Mapping[str, str]] = {}
    for one in series:
        kind = {TARGET_INFO: targets, WORKER_INFO: infos}.get(one.labels.get("__name__", ""))
        if kind is not None and one.labels.get("worker"):
            kind.setdefault(key_of(one.labels, identity), one.labels)
    alone = set(independent)
    instances = Counter(labels.get("instance", "") for labels in targets.values())
    scope = tuple(name for name in PLACES[:3] if name in _OF_SLICE or name in identity)
    shared = _shared_slices(targets.values(), scope)
    names = {key: _name(key) for key in targets}
    known: dict[Key, Known] = {}
    for key in sorted(targets, key=names.__getitem__)[:MOST_WORKERS]:
        labels, name = targets[key], names[key]
        instance = labels.get("instance", "")
        known[key] = Known(
            target=Target(
                worker=name,
                address=instance if instances[instance] == 1 and instance else name,
                slice=_slice(labels, shared, scope),
                independent=key in alone,
            ),
            info=infos.get(key),
        )
    return known


def workers_of(known: Iterable[Known], waiting: str) -> Workers:
    """The workers to follow; `waiting` says why there are none."""
    targets: dict[str, Target] = {}
    for one in known:
        targets.setdefault(one.target.worker, one.target)
    return Workers(targets=tuple(targets.values()), waiting=None if targets else waiting)


def _name(key: Key) -> str:
    worker, *places = key
    return "/".join([*(place for place in places if place), worker])


def _shared_slices(rows: Iterable[Mapping[str, str]], scope: Sequence[str]) -> frozenset[str]:
    """Names of slices that stand for several."""
    places: dict[str, set[Key]] = {}
    for labels in rows:
        places.setdefault(labels.get("slice", ""), set()).add(key_of(labels, scope))
    return frozenset(name for name, seen in places.items() if len(seen) > 1)


def _slice(labels: Mapping[str, str], shared: frozenset[str], scope: Sequence[str]) -> str | None:
    name = labels.get("slice", "")
    if name not in shared:
        return name or None
    return "/".join(part for part in (*key_of(labels, scope), name) if part) or None

"""What a core spends its time on, by kinds that add up to all of it."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache


class TimeKind(IntEnum):
    """What kind of time an op's own time is; small letters are the keys of `Figures.op_time_ratios`."""

    COMPUTE = 0
    COLLECTIVE = 1
    INFEED = 2
    OUTFEED = 3
    HOST_TRANSFER = 4
    ASYNC_WAIT = 5
    DATA_SHUFFLE = 6
    SPARSECORE = 7


_WHOLE = {
    "infeed": TimeKind.INFEED,
    "outfeed": TimeKind.OUTFEED,
    # What a core does between the ops within one is waiting for the other core of its chip; XProf: IsCollective.
    "megacore fusion": TimeKind.COLLECTIVE,
    **dict.fromkeys(("host send", "host send-done", "host recv", "host recv-done"), TimeKind.HOST_TRANSFER),
    **dict.fromkeys(("send", "send-done", "recv", "recv-done"), TimeKind.COLLECTIVE),
    # XProf: IsDataShuffle, and what the compiler calls "data formatting" where it does not.
    **dict.fromkeys(
        (
            *("broadcast", "concatenate", "data formatting", "dynamic-slice", "dynamic-update-slice", "gather", "pad"),
            *("reverse", "scatter", "select", "select-and-scatter", "shuffle", "slice", "sort"),
            *("copy", "reshape", "transpose"),
        ),
        TimeKind.DATA_SHUFFLE,
    ),
}
_COLLECTIVE = re.compile(r"all-(?:reduce|gather|to-all)|reduce-scatter|collective")
_PARTNER = re.compile(r"(?:send|recv)\b")
_ASYNC = re.compile(r"async-\w+|.*-(?:start|update|done)")
_ON_SPARSE_CORE = re.compile(r"sparse_?core", re.IGNORECASE)


def time_kind(category: object, name: str, text: str) -> TimeKind:
    """The kind of an op's own time.

    An op that runs beside others (async-start, copy-done) is a collective if it is named after one. A wait whose HLO
    names the SparseCore is a wait for it.

    Args:
        category: its hlo_category, if the trace tells it.
        name: for example all-gather-done.3.
        text: its HLO.
    """
    if not isinstance(category, str):
        return TimeKind.COMPUTE
    known = _of_category(category)
    if known is not None:
        return known
    if _COLLECTIVE.search(name) or _PARTNER.match(name):
        return TimeKind.COLLECTIVE
    if not category.endswith("-done"):
        return TimeKind.COMPUTE
    return TimeKind.SPARSECORE if _ON_SPARSE_CORE.search(text) else TimeKind.ASYNC_WAIT


@lru_cache(maxsize=256)
def _of_category(category: str) -> TimeKind | None:
    """The kind of all ops of a category; None if that depends on the op."""
    if category in _WHOLE:
        return _WHOLE[category]
    if category.startswith("sparsecore"):
        return TimeKind.SPARSECORE
    if _COLLECTIVE.search(category):
        return TimeKind.COLLECTIVE
    return None if _ASYNC.fullmatch(category) else TimeKind.COMPUTE

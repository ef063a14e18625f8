"""The knowledge that a running exporter hands on to its readers, as a part of its `/samples` page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from tpumon.model import Cause, Change, Finding, Handover, NotJudged, Standing
from tpumon.model.codec import from_plain, to_plain, whole_number

_MOST_WORKERS = 10_000
_MOST_CHANGES = 10_000
_LATEST_UNIX_S = 1e11  # the year 5138
_MOST_NAMED = 20  # each sample says which findings its worker has

_Value = TypeVar("_Value")
_FoundT = TypeVar("_FoundT", Cause, Finding)


def page_of(handover: Handover) -> dict[str, Any]:
    """The fields of the page that hold a handover; `read_handover` reverses it."""
    return {
        "changed": handover.number,
        "standings": [to_plain(standing) for standing in handover.standings],
        "changes": [to_plain(change) for change in handover.changes],
        **(
            {}
            if handover.findings is None
            else {"findings": [to_plain(one.naming(_MOST_NAMED)) for one in handover.findings]}
        ),
        "not_judged": [to_plain(one) for one in handover.not_judged],
        **({"history": handover.history} if handover.complete else {}),
    }


def read_handover(page: Mapping[str, Any], shift_s: float) -> Handover | None:
    """The handover in a page; None if it has none. Whatever is malformed is left out.

    Args:
        page: the whole page.
        shift_s: to be added to the exporter's times to get those of this machine's clock.
    """
    number = whole_number(page.get("changed"))
    if number is None:
        return None
    history = page.get("history")
    return Handover(
        complete=isinstance(history, dict),
        number=number,
        standings=tuple(_shifted(standing, shift_s) for standing in _read(Standing, page.get("standings"))),
        changes=tuple(
            replace(change, time_unix_s=time_unix_s)
            for change in _read(Change, page.get("changes"))
            if (time_unix_s := _time(change.time_unix_s, shift_s)) is not None
        ),
        shift_s=shift_s,
        history=dict(list(history.items())[:_MOST_WORKERS]) if isinstance(history, dict) else {},
        findings=tuple(dated(_read(Finding, page["findings"]), shift_s)) if "findings" in page else None,
        not_judged=tuple(_read(NotJudged, page.get("not_judged"))),
    )


def dated(found: Iterable[_FoundT], shift_s: float) -> Iterator[_FoundT]:
    """Findings whose times are by another clock, by this machine's: `shift_s` later."""
    for one in found:
        since_unix_s = _time(one.since_unix_s, shift_s)
        yield one if since_unix_s == one.since_unix_s else replace(one, since_unix_s=since_unix_s)


def _time(time_unix_s: float | None, shift_s: float) -> float | None:
    """A time by this machine's clock; None if it is none that calendars have."""
    if time_unix_s is None or not 0 <= time_unix_s + shift_s < _LATEST_UNIX_S:
        return None
    return time_unix_s + shift_s


def _read(kind: type[_Value], raw: object) -> Iterator[_Value]:
    for item in raw[:_MOST_CHANGES] if isinstance(raw, list) else ():
        value = from_plain(kind, item)
        if value is not None:
            yield value


def _shifted(standing: Standing, shift_s: float) -> Standing:
    return replace(
        standing,
        mark_since_unix_s=_time(standing.mark_since_unix_s, shift_s),
        ok_since_unix_s=_time(standing.ok_since_unix_s, shift_s),
        critical_since_unix_s=_time(standing.critical_since_unix_s, shift_s),
        findings=None if standing.findings is None else tuple(dated(standing.findings, shift_s)),
    )

"""Snapshots of running exporters as a part of their `/samples` pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar, get_args

from msgspec.json import decode
from msgspec.structs import replace

from tpumon.analysis.history import RollupSeries
from tpumon.model import Cause, ExporterSnapshot, Finding, StateId, StatusSnapshot
from tpumon.model.documents import LATEST_UNIX_S, encoded_part
from tpumon.model.figure_table import COMPARED
from tpumon.model.page import Page

_MOST_NAMED = 20  # each sample says which findings its worker has

_FindingT = TypeVar("_FindingT", Cause, Finding)


def page_of(snapshot: ExporterSnapshot) -> dict[str, Any]:
    """The fields of a `Page` that hold a snapshot; `read_snapshot` reverses it."""
    findings, history = snapshot.findings, snapshot.history
    return {
        "changed": snapshot.number,
        "statuses": snapshot.statuses,
        "changes": snapshot.changes,
        "findings": None if findings is None else tuple(one.naming(_MOST_NAMED) for one in findings),
        "not_judged": snapshot.not_judged,
        "history": {name: encoded_part(each) for name, each in history.items()} if snapshot.complete else None,
    }


def read_snapshot(page: Page, shift_s: float) -> ExporterSnapshot | None:
    """The snapshot in a page; None if it has none.

    Args:
        page: the whole page.
        shift_s: to be added to the exporter's times to get those of this machine's clock.
    """
    if page.changed is None:
        return None
    return ExporterSnapshot(
        complete=page.history is not None,
        number=page.changed,
        statuses=tuple(_shifted(snapshot, shift_s) for snapshot in page.statuses),
        changes=tuple(
            replace(change, time_unix_s=time_unix_s)
            for change in page.changes
            if (time_unix_s := _time(change.time_unix_s, shift_s)) is not None
        ),
        shift_s=shift_s,
        history={name: decode(each) for name, each in (page.history or {}).items()},
        findings=None if page.findings is None else tuple(dated(filter(_is_judged, page.findings), shift_s)),
        not_judged=page.not_judged,
    )


def _is_judged(finding: Finding) -> bool:
    """False for a finding made of a state: each tpumon makes such findings itself."""
    return finding.finding not in get_args(StateId)


def dated(findings: Iterable[_FindingT], shift_s: float) -> Iterator[_FindingT]:
    """Findings with times moved by `shift_s`, from another machine's clock to this machine's."""
    for one in findings:
        since_unix_s = _time(one.since_unix_s, shift_s)
        yield one if since_unix_s == one.since_unix_s else replace(one, since_unix_s=since_unix_s)


def _time(time_unix_s: float | None, shift_s: float) -> float | None:
    """A time by this machine's clock; None if it is none that calendars have."""
    if time_unix_s is None or not 0 <= time_unix_s + shift_s < LATEST_UNIX_S:
        return None
    return time_unix_s + shift_s


def _shifted(snapshot: StatusSnapshot, shift_s: float) -> StatusSnapshot:
    return replace(
        snapshot,
        status_since_unix_s=_time(snapshot.status_since_unix_s, shift_s),
        ok_since_unix_s=_time(snapshot.ok_since_unix_s, shift_s),
        critical_since_unix_s=_time(snapshot.critical_since_unix_s, shift_s),
        findings=None if snapshot.findings is None else tuple(dated(snapshot.findings, shift_s)),
    )


def histories_of(snapshot: ExporterSnapshot) -> Iterator[tuple[str, RollupSeries]]:
    """Yields the histories in a snapshot by worker, without damaged ones and other versions."""
    for worker, plain in snapshot.history.items():
        with suppress(ValueError):
            yield worker, RollupSeries.from_plain(plain, tuple(COMPARED), shift_s=snapshot.shift_s)

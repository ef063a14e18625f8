"""Changes of a slice: equal changes of several of its workers at about the same time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tpumon.model import Change, Target
from tpumon.untrusted_text import listed

TOGETHER_S = 60.0
"""Seconds within which the same change of several workers is one."""

QUICK_S = 15.0
"""Seconds within which a job that went away was restarted quickly: that is the change."""

_AT_ONCE_S = 5.0  # by so much, samples of workers of one slice differ anyway
_NAMED = 3
_ALIKE = frozenset({"no-activity", "paused"})
_NUMBERS = re.compile(r"[\d.,]+")


def together(changes: Iterable[Change], targets: Mapping[str, Target]) -> list[Sequence[Change]]:
    """Groups equal changes of several workers of a slice at about the same time.

    Args:
        changes: in whatever order.
        targets: the workers by name; of others it is not known what slice they belong to.

    Returns:
        Groups of changes of one slice, or single changes, by the time of the first change. A worker that had another
        change first, such as a restart, is not in the group of those that had none.
    """
    groups: list[_Group] = []
    last: dict[tuple[object, ...], _Group] = {}
    latest: dict[str, _Group] = {}
    for change in _without_quick_restarts(sorted(changes, key=lambda each: each.time_unix_s)):
        target = targets.get(change.worker)
        if target is None or target.independent:
            groups.append(_Group([change]))
            continue
        # It is the same whatever its worker counted as before; a restart also whatever it counts as since, and a hang
        # whether its worker has stopped or waits for the one that has.
        words = "" if change.state in _ALIKE else _NUMBERS.sub("", change.words)
        kind = () if change.what == "restart" else (change.status, words)
        key = target.job, target.slice, change.what, *kind
        group, former = last.get(key), latest.get(change.worker)
        if group is None or not group.includes(change, former):
            group = last[key] = _Group([], former)
            groups.append(group)
        group.changes.append(change)
        latest[change.worker] = group
    return [tuple(group.changes) for group in groups]


def goes_away(change: Change) -> bool:
    """True if a worker does not answer any more, so that a restart may follow."""
    return change.what == "state" and change.state == "down"


def _without_quick_restarts(changes: Sequence[Change]) -> list[Change]:
    """The changes, by time, without those that a quick restart explains: its worker was away, and is as before."""
    away, left_out = {each.worker for each in changes if goes_away(each)}, set[tuple[str, int]]()
    for restart in (each for each in changes if each.what == "restart" and each.worker in away):
        mine = sorted((each for each in changes if each.worker == restart.worker), key=lambda each: each.number)
        place = mine.index(restart)
        down = mine[place - 1] if place else restart
        if goes_away(down) and abs(restart.time_unix_s - down.time_unix_s) <= QUICK_S:
            as_before = (each for each in mine[place + 1 : place + 2] if each.status == down.before)
            left_out |= {(each.worker, each.number) for each in (down, *as_before)}
    return [change for change in changes if (change.worker, change.number) not in left_out]


class _Group(NamedTuple):
    """Equal changes of workers of a slice.

    Attributes:
        changes: by time.
        former: those that the first of the workers had before, with others or alone; None: it had none.
    """

    changes: list[Change]
    former: _Group | None = None

    def includes(self, change: Change, former: _Group | None) -> bool:
        """True if an equal change is one of these.

        Args:
            change: no earlier than these.
            former: the changes that its worker had before, with others or alone.
        """
        at_unix_s, first_unix_s = change.time_unix_s, self.changes[0].time_unix_s
        if at_unix_s - first_unix_s > TOGETHER_S or any(one.worker == change.worker for one in self.changes):
            return False
        if former is None or former is self.former:
            return True
        is_soon = at_unix_s - self.changes[-1].time_unix_s <= _AT_ONCE_S
        apart_unix_s = next(one.time_unix_s for one in former.changes if one.worker == change.worker)
        return apart_unix_s < (first_unix_s if is_soon else at_unix_s - TOGETHER_S)


def as_one(group: Sequence[Change], targets: Mapping[str, Target]) -> Change:
    """The first of changes that were put together, as that of all of them: its worker names them."""
    first = group[0]
    if len(group) == 1:
        return first
    if any(one.before != first.before for one in group):
        first = replace(first, before=None)
    # Who has stopped tells more than who waits for it.
    first = replace(first, words=next((one.words for one in group if one.words.startswith(one.worker)), first.words))
    target = targets[first.worker]
    members = sum((one.job, one.slice) == (target.job, target.slice) for one in targets.values())
    if len(group) < members:
        changed = {one.worker for one in group}
        return replace(first, worker=listed((name for name in targets if name in changed), _NAMED))
    return replace(first, worker=f"all {members} workers" + (f" of {target.slice}" if target.slice else ""))

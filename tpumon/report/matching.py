"""Which ops of two captures are the same, although a new compilation names and numbers them anew."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from tpumon.report.work import Ledger
    from tpumon.xspace.profile.op_times import Op

_NAMES = re.compile(r"%[\w.\-]+")
_NUMBERED = re.compile(
    r"(?:channel_id|scheduling_name|scheduling_group_id)=[^,)]*|metadata=\{[^}]*\}|backend_config=.*"
)
_SHAPE_LENGTH = 600  # characters; long lists of operands are cut, at the same place on both sides


class Pair(Struct, frozen=True, kw_only=True):
    """Ops of both captures that are the same; one side has none where they are new or gone.

    Attributes:
        function: the program's name without its number.
        before, after: the ops; several where only their sum can be compared.
    """

    function: str
    before: tuple[Op, ...]
    after: tuple[Op, ...]

    @property
    def name(self) -> str:
        """That of the longest op, of the later capture where it has any."""
        ops = self.after or self.before
        more = f" and {len(ops) - 1} more" if len(ops) > 1 else ""
        return max(ops, key=lambda op: op.self_time_s).name + more

    @property
    def category(self) -> str:
        """Of all of them."""
        return (self.after or self.before)[0].category


def shape_of(op: Op) -> str:
    """An op's HLO text without names and numbers that a compilation gives: its opcode, its shapes, its kind."""
    text = _NUMBERED.sub("", _NAMES.sub("", op.expression))
    return " ".join(text.split())[:_SHAPE_LENGTH]


class _Named(Struct, frozen=True):
    """An op with what it is compared by."""

    op: Op
    function: str
    shape: str


def _by_name(each: _Named) -> Hashable:
    return (each.op.program_id, each.op.name, each.op.category, each.shape)


def _by_path(each: _Named) -> Hashable:
    return (each.function, each.op.category, each.op.provenance, each.shape)


def _by_shape(each: _Named) -> Hashable:
    return (each.function, each.op.category, each.shape)


def match(before: Ledger, after: Ledger) -> tuple[Pair, ...]:
    """Pairs the ops of two captures.

    Names mean something within one compiled program only: there the same name and shape are the same op. What is left
    goes by function, category, path in the framework and shape, at last without the path. Ops that share these are
    compared together, as many as there are on both sides, those whose times are closest.
    """
    earlier, later = _named(before), _named(after)
    pairs: list[Pair] = []
    for key_of in (_by_name, _by_path, _by_shape):
        old, new = _grouped(earlier, key_of), _grouped(later, key_of)
        earlier = [each for key, held in old.items() if key not in new for each in held]
        later = [each for key, held in new.items() if key not in old for each in held]
        for key in (key for key in new if key in old):
            count = min(len(old[key]), len(new[key]))
            same = [_closest(side[key], other[key], count) for side, other in ((old, new), (new, old))]
            before_ops, after_ops = (tuple(each.op for each in chosen) for chosen in same)
            pairs.append(Pair(function=new[key][0].function, before=before_ops, after=after_ops))
            for side, chosen, rest in ((old[key], same[0], earlier), (new[key], same[1], later)):
                kept = {id(each) for each in chosen}
                rest += [each for each in side if id(each) not in kept]
    pairs += [Pair(function=each.function, before=(each.op,), after=()) for each in earlier]
    pairs += [Pair(function=each.function, before=(), after=(each.op,)) for each in later]
    return tuple(pairs)


def _closest(ops: Sequence[_Named], others: Sequence[_Named], count: int) -> list[_Named]:
    """As many of the ops whose mean times are closest to those of the others, which are no more than they."""
    if len(ops) <= count:
        return list(ops)
    left = sorted(ops, key=_mean_s)
    times_s = [_mean_s(each) for each in left]
    chosen = []
    for other in sorted(others, key=_mean_s):
        wanted_s = _mean_s(other)
        at = bisect(times_s, wanted_s)
        if at == len(left) or (at and wanted_s - times_s[at - 1] <= times_s[at] - wanted_s):
            at -= 1
        times_s.pop(at)
        chosen.append(left.pop(at))
    return chosen


def _mean_s(each: _Named) -> float:
    return each.op.self_time_s / each.op.occurrences if each.op.occurrences else 0.0


def _named(book: Ledger) -> list[_Named]:
    return [_Named(op, book.function(op), shape_of(op)) for op in book.ops if op.shown]


def _grouped(ops: Iterable[_Named], key_of: Callable[[_Named], Hashable]) -> dict[Hashable, list[_Named]]:
    groups: dict[Hashable, list[_Named]] = {}
    for each in ops:
        groups.setdefault(key_of(each), []).append(each)
    return groups

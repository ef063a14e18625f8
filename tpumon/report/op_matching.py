"""Pairs of ops of two captures that are the same, although a new compilation gives them other names and numbers."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Hashable, Iterable, Sequence

from msgspec import Struct

from tpumon.report.op_totals import OpTotals, grouped
from tpumon.xspace.profile.op_times import Op

_NAMES = re.compile(r"%[\w.\-]+")
_NUMBERED = re.compile(
    r"(?:channel_id|scheduling_name|scheduling_group_id)=[^,)]*|metadata=\{[^}]*\}|backend_config=.*"
)
_SHAPE_LENGTH = 600  # characters; long lists of operands are cut, at the same place on both sides


class OpPair(Struct, frozen=True, kw_only=True):
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
        """The name of the longest op, of the later capture where it has any."""
        ops = self.after or self.before
        more = f" and {len(ops) - 1} more" if len(ops) > 1 else ""
        return max(ops, key=lambda op: op.self_time_s).name + more

    @property
    def category(self) -> str:
        """The category of all of them."""
        return (self.after or self.before)[0].category


def shape_of(op: Op) -> str:
    """An op's HLO text without names and numbers that a compilation gives: its opcode, its shapes, its kind."""
    text = _NUMBERED.sub("", _NAMES.sub("", op.expression))
    return " ".join(text.split())[:_SHAPE_LENGTH]


class _OpWithShape(Struct, frozen=True):
    op: Op
    function: str
    shape: str


_KEYS: tuple[Callable[[_OpWithShape], Hashable], ...] = (
    lambda each: (each.op.program_id, each.op.name, each.op.category, each.shape),
    lambda each: (each.function, each.op.category, each.op.provenance, each.shape),
    lambda each: (each.function, each.op.category, each.shape),
)


def match(before: OpTotals, after: OpTotals) -> list[OpPair]:
    """Pairs the ops of two captures.

    Names mean something within one compiled program only: there the same name and shape are the same op. The others
    are matched by function, category, path in the framework and shape, and then without the path. Of ops that share
    these, as many as there are on both sides are compared together: those whose times are closest.
    """
    earlier, later = _with_shapes(before), _with_shapes(after)
    pairs: list[OpPair] = []
    for key_of in _KEYS:
        old, new = grouped(earlier, key_of), grouped(later, key_of)
        earlier = [each for key, group in old.items() if key not in new for each in group]
        later = [each for key, group in new.items() if key not in old for each in group]
        for key in (key for key in new if key in old):
            count = min(len(old[key]), len(new[key]))
            old_ops, old_rest = _closest(old[key], new[key], count)
            new_ops, new_rest = _closest(new[key], old[key], count)
            pairs.append(OpPair(function=new[key][0].function, before=_ops(old_ops), after=_ops(new_ops)))
            earlier += old_rest
            later += new_rest
    pairs += [OpPair(function=each.function, before=(each.op,), after=()) for each in earlier]
    pairs += [OpPair(function=each.function, before=(), after=(each.op,)) for each in later]
    return pairs


def _closest(
    ops: Sequence[_OpWithShape], others: Sequence[_OpWithShape], count: int
) -> tuple[Sequence[_OpWithShape], Sequence[_OpWithShape]]:
    """The `count` ops whose mean times are nearest to those of the others, and the rest."""
    if len(ops) <= count:
        return ops, ()
    rest = sorted(ops, key=_mean_s)
    nearest = []
    for wanted_s in sorted(map(_mean_s, others)):
        at = bisect(rest, wanted_s, key=_mean_s)
        if at == len(rest) or (at and wanted_s - _mean_s(rest[at - 1]) <= _mean_s(rest[at]) - wanted_s):
            at -= 1
        nearest.append(rest.pop(at))
    return nearest, rest


def _mean_s(each: _OpWithShape) -> float:
    return each.op.self_time_s / each.op.occurrences if each.op.occurrences else 0.0


def _ops(chosen: Iterable[_OpWithShape]) -> tuple[Op, ...]:
    return tuple(each.op for each in chosen)


def _with_shapes(totals: OpTotals) -> list[_OpWithShape]:
    return [_OpWithShape(op, totals.function(op), shape_of(op)) for op in totals.ops if op.shown]

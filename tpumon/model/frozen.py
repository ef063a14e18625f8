"""How values are declared that do not change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TypeVar, dataclass_transform, overload

_Kind = TypeVar("_Kind")


@overload
def struct(kind: type[_Kind], /) -> type[_Kind]: ...


@overload
def struct(*, kw_only: bool) -> Callable[[type[_Kind]], type[_Kind]]: ...


@dataclass_transform(eq_default=False, kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def struct(
    kind: type[_Kind] | None = None, /, *, kw_only: bool = True
) -> type[_Kind] | Callable[[type[_Kind]], type[_Kind]]:
    """A frozen dataclass with slots whose declaration costs little; it is equal to itself only.

    The decoder declares dozens, which with `dataclass(frozen=True)` was a tenth of the time that a small trace took,
    nearly all of it for methods that are not called: arrays cannot be compared anyway. That nobody assigns to a field,
    mypy makes sure.

    Args:
        kind: the class.
        kw_only: whether its fields are given by name only.
    """
    declare: Callable[[type[_Kind]], type[_Kind]] = dataclass(slots=True, kw_only=kw_only, eq=False, repr=False)
    return declare if kind is None else declare(kind)


@overload
def frozen(kind: type[_Kind], /) -> type[_Kind]: ...


@overload
def frozen(*, kw_only: bool) -> Callable[[type[_Kind]], type[_Kind]]: ...


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def frozen(
    kind: type[_Kind] | None = None, /, *, kw_only: bool = True
) -> type[_Kind] | Callable[[type[_Kind]], type[_Kind]]:
    """A `struct` whose values are equal if their fields are.

    For each class, `dataclass(frozen=True)` writes and compiles six methods more, which every start of tpumon pays
    for. Here three of them are the same for all classes, none of which may define its own, and making a value takes
    half the time. That nobody assigns to a field, mypy makes sure.

    Args:
        kind: the class.
        kw_only: whether its fields are given by name only.
    """
    return (lambda each: _declared(each, kw_only=kw_only)) if kind is None else _declared(kind, kw_only=kw_only)


def _declared(kind: type[_Kind], *, kw_only: bool) -> type[_Kind]:
    made = struct(kw_only=kw_only)(kind)
    compared = attrgetter(*(each.name for each in fields(made) if each.compare))  # type: ignore[arg-type]

    def equal(self: _Kind, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: _Kind) -> int:
        return hash(compared(self))

    made.__eq__, made.__hash__, made.__repr__ = equal, hashed, _shown  # type: ignore[assignment,method-assign]
    return made


def _shown(self: object) -> str:
    shown = (each.name for each in fields(self) if each.repr)  # type: ignore[arg-type]
    said = (f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({', '.join(said)})"

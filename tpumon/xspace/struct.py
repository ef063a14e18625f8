"""How the decoder's values are declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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

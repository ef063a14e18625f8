"""JSON documents: how they are written, and the one place that reads documents of other processes.

A document of another shape is refused as a whole: a required field is missing, or one has a wrong type or a number that
cannot be. Unknown fields are ignored. In what is left, each text becomes one safe line, and texts, lists and maps are
cut to a limit: that of the field (`at_most`), or the usual one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Hashable, Iterator, Mapping
from functools import cache, partial
from itertools import islice
from threading import Lock
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

from msgspec import NODEFAULT, Meta, Raw, Struct, StructMeta, field, to_builtins
from msgspec.json import Decoder, decode, encode
from msgspec.structs import fields, replace

from tpumon.untrusted_text import one_line

LATEST_UNIX_S = 1e11  # the year 5138: later times are nobody's, and calendars end
LARGEST = 1 << 60  # no figure of ours is larger
_MOST_ITEMS = 100
_MOST_CHARACTERS = 200
_reading_types = Lock()

UnixTime = Annotated[float, Meta(ge=0, lt=LATEST_UNIX_S)]
"""Seconds since the epoch."""

Amount = Annotated[float, Meta(ge=0, lt=LARGEST)]
"""A number of any unit, not negative."""

Count = Annotated[int, Meta(ge=0, lt=LARGEST)]
"""A whole number, not negative."""

_Value = TypeVar("_Value")
_Bound = Callable[[Any], Any]


def at_most(limit: int) -> Meta:
    """Annotates a field with its own limit: items of a list or map, characters of a text."""
    return Meta(extra={"limit": limit})


def encoded(value: Any) -> str:
    """A value as one line of JSON; numbers that are not finite are null."""
    return bytes(encoded_part(value)).decode()


def encoded_part(value: Any) -> Raw:
    """JSON of a value, as a part of another document."""
    try:
        return Raw(encode(value))
    except UnicodeEncodeError:  # a lone surrogate, as from a command line that was not UTF-8
        plain = to_builtins(value, enc_hook=decode)  # parts that are JSON already
        text = json.dumps(plain, ensure_ascii=False).encode(errors="replace")
        return Raw(encode(json.loads(text, parse_constant=lambda _: None)))


def decoded(kind: type[_Value], document: bytes | str | Raw) -> _Value:
    """Reads a document of others.

    Raises:
        ValueError: it has another shape, or is no JSON; one line says where.
    """
    try:
        value: _Value = _decoder(cast("Hashable", kind)).decode(document)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    bound = _bounding_of(cast("Hashable", kind))
    return value if bound is None else cast("_Value", bound(value))


def fields_of(kind: type[Struct], leave_out: Container[str] = ()) -> Iterator[tuple[str, Any, Any]]:
    """Names, types and defaults of a value's fields, for `msgspec.defstruct` to make a flat document of several."""
    for item in fields(kind):
        has_factory = item.default_factory is not NODEFAULT
        if item.name not in leave_out:
            yield item.name, item.type, field(default_factory=item.default_factory) if has_factory else item.default


@cache
def _decoder(kind: Any) -> Decoder[Any]:
    with _reading_types:  # msgspec 0.22 uses what another thread has only half read of a type, and crashes
        return Decoder(kind)


@cache
def _bounding_of(kind: Any) -> _Bound | None:
    """The same for all values of a type of values."""
    bounds = [(item.name, bound) for item in fields(kind) if (bound := _bounding(item.type)) is not None]

    def bound_fields(value: Any) -> Any:
        return replace(value, **{name: bound(item) for name, bound in bounds if (item := getattr(value, name))})

    return bound_fields if bounds else None


def _bounding(hint: Any, limit: int | None = None) -> _Bound | None:
    """Makes what is in a field safe; None: there is nothing to do for its type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        extras = [item.extra for item in hint.__metadata__ if isinstance(item, Meta) and item.extra]
        return _bounding(arguments[0], extras[0]["limit"] if extras else None)
    if origin in {Union, UnionType}:
        bounds = (_bounding(argument, limit) for argument in arguments)
        return next((bound for bound in bounds if bound is not None), None)
    if hint is str:
        return partial(one_line, limit=limit or _MOST_CHARACTERS)
    if origin is tuple:
        return partial(_bound_tuple, _bounding(arguments[0]), limit or _MOST_ITEMS)
    if origin is Mapping:
        return partial(_bound_mapping, _bounding(arguments[1]), limit or _MOST_ITEMS)
    return _bounding_of(hint) if isinstance(hint, StructMeta) else None


def _bound_tuple(bound: _Bound | None, limit: int, items: tuple[Any, ...]) -> tuple[Any, ...]:
    return items[:limit] if bound is None else tuple(map(bound, items[:limit]))


def _bound_mapping(bound: _Bound | None, limit: int, items: Mapping[str, Any]) -> Mapping[str, Any]:
    kept = islice(items.items(), limit)
    return {one_line(name): item if bound is None else bound(item) for name, item in kept}

"""JSON documents: how they are written, and the one place where those of others are read.

A document of another shape is refused as a whole: a required field is missing, or one has a wrong type or a number that
cannot be. Unknown fields are ignored. In what is left, each text becomes one safe line, and texts, lists and maps are
cut to a limit: that of the field (`at_most`), or the usual one.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Annotated, Any, TypeVar, cast

from msgspec import NODEFAULT, Meta, Raw, Struct, field
from msgspec.json import Decoder, encode
from msgspec.structs import fields, replace

from tpumon.untrusted_text import one_line

_LATEST_UNIX_S = 1e11  # the year 5138: later times are nobody's, and calendars end
_LARGEST = 1 << 60  # no figure of ours is larger
_MOST_ITEMS = 100
_MOST_CHARACTERS = 200

UnixTime = Annotated[float, Meta(ge=0, lt=_LATEST_UNIX_S)]
"""Seconds since the epoch."""

Amount = Annotated[float, Meta(ge=0, lt=_LARGEST)]
"""A number of any unit, not negative."""

Count = Annotated[int, Meta(ge=0, lt=_LARGEST)]
"""A whole number, not negative."""

_Value = TypeVar("_Value")


def at_most(limit: int) -> Meta:
    """Annotates a field with its own limit: items of a list or map, characters of a text."""
    return Meta(extra={"limit": limit})


def encoded(value: object) -> str:
    """A value as one line of JSON; numbers that are not finite are null."""
    return encode(value).decode()


def decoded(kind: type[_Value], document: bytes | str | Raw) -> _Value:
    """Reads a document of others.

    Raises:
        ValueError: it has another shape, or is no JSON; one line says where.
    """
    try:
        decoder: Decoder[_Value] = _decoder(cast("Hashable", kind))
        return cast("_Value", _bounded(decoder.decode(document), None))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def fields_of(kind: type[Struct], leave_out: Container[str] = ()) -> Iterator[tuple[str, Any, Any]]:
    """Names, types and defaults of a value's fields, for `msgspec.defstruct` to make a flat document of several."""
    for item in fields(kind):
        has_factory = item.default_factory is not NODEFAULT
        if item.name not in leave_out:
            yield item.name, item.type, field(default_factory=item.default_factory) if has_factory else item.default


@cache
def _decoder(kind: Any) -> Decoder[Any]:
    return Decoder(kind)


def _bounded(value: Any, limit: int | None) -> Any:
    if isinstance(value, str):
        return one_line(value, limit=limit or _MOST_CHARACTERS)
    if isinstance(value, tuple):
        return tuple(_bounded(item, None) for item in value[: limit or _MOST_ITEMS])
    if isinstance(value, Mapping):
        items = islice(value.items(), limit or _MOST_ITEMS)
        return {one_line(name): _bounded(item, None) for name, item in items}
    if isinstance(value, Struct):
        limits = _limits(type(value))
        return replace(value, **{name: _bounded(getattr(value, name), limit) for name, limit in limits.items()})
    return value


@cache
def _limits(kind: type[Struct]) -> Mapping[str, int | None]:
    """The fields of a value, and the limit of each; None: the usual one."""
    return {item.name: _limit_of(item.type) for item in fields(kind)}


def _limit_of(hint: Any) -> int | None:
    metas = (item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Meta))
    return next((meta.extra["limit"] for meta in metas if meta.extra), None)

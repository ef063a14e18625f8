"""Converts frozen dataclasses to plain JSON and back, by their fields.

JSON may come from another version or another program. A field of the wrong type counts as absent, numbers must be
finite and not negative, texts become one safe line, and lists and maps are cut to a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from tpumon.untrusted_text import one_line

_LARGEST = 1 << 60  # no figure of ours is larger
_MOST_ITEMS = 100

_Value = TypeVar("_Value")
Decode = Callable[[object], Any]
"""Decodes plain JSON to a value; None if it is not of the expected type."""


def not_in_json() -> Mapping[str, Any]:
    """Metadata of a field that is not part of the JSON."""
    return {"json": False}


def flat() -> Mapping[str, Any]:
    """Metadata of a dataclass field whose own fields are merged into the JSON object of its owner."""
    return {"flat": True}


def limited(most: int) -> Mapping[str, Any]:
    """Metadata of a list or a text with its own maximum length."""
    return {"most": most}


def fallback(value: object) -> Mapping[str, Any]:
    """Metadata of a required field that gets this value if the JSON has none."""
    return {"fallback": value}


def to_plain(value: Any) -> Any:
    """The value as JSON has it: dataclasses and mappings as objects, tuples as lists."""
    kind = type(value)
    if kind in _SCALARS or value is None:
        return value
    if kind is tuple:
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: to_plain(item) for name, item in value.items()}
    plain: dict[str, Any] = {}
    for name, is_flat in _layout(cast("Hashable", kind)):
        item = getattr(value, name)
        if item is not None and type(item) not in _SCALARS:
            item = to_plain(item)
        if is_flat:
            plain.update(item)
        else:
            plain[name] = item
    return plain


def from_plain(kind: type[_Value], raw: object) -> _Value | None:
    """Reverses `to_plain`; None if a required field is missing or of the wrong type."""
    decoded: _Value | None = _of_dataclass(cast("Hashable", kind))(raw)
    return decoded


@cache
def _layout(kind: type) -> tuple[tuple[str, bool], ...]:
    return tuple((item.name, "flat" in marks(item)) for item in fields(kind) if marks(item).get("json", True))


@cache
def _of_dataclass(kind: type[Any]) -> Decode:
    hints = get_type_hints(kind)
    layout = [
        (item.name, "flat" in marks(item), _decoder(hints[item.name], marks(item).get("most")), item)
        for item in fields(kind)
        if marks(item).get("json", True)
    ]
    optional = {name for name, hint in hints.items() if NoneType in get_args(hint)}

    def decode(raw: object) -> Any:
        if not isinstance(raw, dict):
            return None
        given = {}
        for name, is_flat, decode_field, item in layout:
            value = decode_field(raw if is_flat else raw.get(name))
            if value is None and name not in optional:
                if _has_default(item):
                    continue
                value = marks(item).get("fallback")
                if value is None:
                    return None
            given[name] = value
        return kind(**given)

    return decode


def marks(item: FieldInfo) -> Mapping[str, Any]:
    """What the functions above say of a field."""
    kind = item.type
    return {**kind.__metadata__[0]} if get_origin(kind) is Annotated else {}


def _has_default(item: FieldInfo) -> bool:
    return item.default is not NODEFAULT or item.default_factory is not NODEFAULT


def _decoder(hint: Any, most: int | None = None) -> Decode:
    origin, arguments = get_origin(hint), get_args(hint)
    most_items = _MOST_ITEMS if most is None else most
    if origin in {Union, UnionType}:
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return _decoder(inner, most)
    if origin is Literal:
        return lambda raw: raw if isinstance(raw, str) and raw in arguments else None
    if origin is tuple:
        return _of_list(_decoder(arguments[0]), most_items)
    if origin is Mapping:
        return _of_mapping(_decoder(arguments[1]), most_items)
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _of_dataclass(hint)
    if hint is str and most is not None:
        return lambda raw: one_line(raw, limit=most) if isinstance(raw, str) else None
    return _SCALARS[hint]


def _of_list(decode: Decode, most: int) -> Decode:
    def decode_list(raw: object) -> Any:
        if not isinstance(raw, list):
            return None
        return tuple(value for item in raw[:most] if (value := decode(item)) is not None)

    return decode_list


def _of_mapping(decode: Decode, most: int) -> Decode:
    def decode_mapping(raw: object) -> Any:
        if not isinstance(raw, dict):
            return None
        items = list(raw.items())[:most]
        return {one_line(str(name)): value for name, item in items if (value := decode(item)) is not None}

    return decode_mapping


def number(raw: object) -> float | None:
    """Decodes a finite number >= 0; None for anything else."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return None
    return raw if 0 <= raw < _LARGEST and math.isfinite(raw) else None


def whole_number(raw: object) -> int | None:
    """Decodes a number and drops its fraction; None for anything else."""
    value = number(raw)
    return None if value is None else int(value)


def text(raw: object) -> str | None:
    """Decodes a text as one safe line; None for anything else."""
    return one_line(raw) if isinstance(raw, str) else None


def _truth(raw: object) -> bool | None:
    return raw if isinstance(raw, bool) else None


_SCALARS: Mapping[Any, Decode] = {float: number, int: whole_number, str: text, bool: _truth}

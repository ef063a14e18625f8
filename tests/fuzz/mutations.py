"""Mutations of protobuf messages by their fields: those of bytes alone seldom get past the first length."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

_NUMBERS = (0, 1, 2, 7, 127, 128, 1000, 10**6, 10**12, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 53) + 1, 1 << 62)
_DOUBLES = (0.0, -0.0, 1.0, -1.0, 0.5, 100.0, 1e-320, 1e15, 1e300, 1.7e308, float("inf"), float("-inf"), float("nan"))
_TEXTS = ("", "\x1b[31m", "\u202e", "XLA Ops", "XLA Modules", "Steps", "/device:TPU:0", "/device:GPU:0",
          "/host:CPU", "#Chip TPU Non-Core HBM#", "infeed", "all-reduce", "while", "convolution fusion", "flops",
          "model_flops", "bytes_accessed", "hlo_category", "program_id", "group_id", "step_num", "_pt", "_ct", "_c",
          "device-id", "core_type", "9" * 300)  # fmt: skip
_MOST_PARTS = 3000
_BOUNDS = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}


def mutated(
    kind: type[Message], by_bytes: Callable[[bytes, int], bytes], data: bytes, max_size: int, seed: int
) -> bytes:
    """The data, changed in one to eight fields; every third time, and where it is no such message, in its bytes."""
    dice = random.Random(seed)
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return by_bytes(data, max_size)
    if dice.random() < 1 / 3 or not data:
        return by_bytes(data, max_size)
    for _ in range(dice.randint(1, 8)):
        parts = list(_parts(message))
        _mutate(dice.choice(parts), parts, dice)
    changed = message.SerializeToString()
    return changed if len(changed) <= max_size else data


def _parts(message: Message) -> Iterator[Message]:
    """The message and all within, up to a limit."""
    waiting = [message]
    for _ in range(_MOST_PARTS):
        if not waiting:
            return
        part = waiting.pop()
        yield part
        for field, value in part.ListFields():
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                if field.message_type.fields_by_name["value"].message_type is not None:
                    waiting += value.values()
            else:
                waiting += value if field.is_repeated else [value]


def _mutate(part: Message, parts: list[Message], dice: random.Random) -> None:
    """Sets, removes, repeats or takes over one field of a part."""
    field = dice.choice(part.DESCRIPTOR.fields)
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _mutate_map(getattr(part, name), field, dice)
    elif dice.random() < 0.15:
        part.ClearField(name)
    elif field.is_repeated:
        _mutate_list(getattr(part, name), field, parts, dice)
    elif field.message_type is not None:
        getattr(part, name).CopyFrom(_another(field, parts, dice))
    else:
        setattr(part, name, _value(field, getattr(part, name), dice))


def _mutate_map(values: Any, field: FieldDescriptor, dice: random.Random) -> None:
    entry = field.message_type.fields_by_name
    key = dice.choice(list(values)) if values and dice.random() < 0.7 else _value(entry["key"], 0, dice)
    if entry["value"].message_type is None:
        values[key] = _value(entry["value"], values[key], dice)
    elif values and dice.random() < 0.3:
        del values[dice.choice(list(values))]
    elif values:
        values[key].CopyFrom(_copy(values[dice.choice(list(values))]))
    else:
        values[key].SetInParent()


def _mutate_list(items: Any, field: FieldDescriptor, parts: list[Message], dice: random.Random) -> None:
    if field.message_type is None:
        items.append(_value(field, 0, dice))
    elif items and dice.random() < 0.3:
        del items[dice.randrange(len(items))]
    elif items and dice.random() < 0.5:
        first, second = dice.choice(items), dice.choice(items)
        kept = _copy(first)
        first.CopyFrom(_copy(second))
        second.CopyFrom(kept)
    elif len(items) < 200:
        for _ in range(dice.choice((1, 1, 1, 20))):
            items.add().CopyFrom(_another(field, parts, dice))


def _another(field: FieldDescriptor, parts: list[Message], dice: random.Random) -> Message:
    """A message for this field: a copy of one from elsewhere, or an empty one."""
    same = [one for one in parts if one.DESCRIPTOR is field.message_type]
    return _copy(dice.choice(same)) if same else GetMessageClass(field.message_type)()


def _copy(message: Message) -> Message:
    """A copy of its own: the original may lie within what it is copied to."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _value(field: FieldDescriptor, before: Any, dice: random.Random) -> Any:
    kind = field.cpp_type
    if kind in _BOUNDS:
        low, high = _BOUNDS[kind]
        number = before if isinstance(before, int) else 0
        wish = dice.choice(
            (dice.choice(_NUMBERS), -dice.choice(_NUMBERS), number + dice.choice((-1, 1, 1000)), number * 2, low, high)
        )
        return min(max(wish, low), high)
    if kind in {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}:
        return dice.choice(_DOUBLES)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return dice.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return dice.choice(field.enum_type.values).number
    text = dice.choice(_TEXTS)
    return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text

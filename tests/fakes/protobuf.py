"""The protobuf wire format by hand: what the profiler service's messages look like as bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(number: int) -> bytes:
    """A non-negative number, seven bits to a byte, the low ones first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: float | str | bytes) -> bytes:
    """One field of a message; a zero is left out, as proto3 does for a scalar."""
    if isinstance(value, float):
        return varint(number << 3 | FIXED64) + struct.pack("<d", value) if value != 0 else b""
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value) if value else b""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def decode(data: bytes) -> dict[int, list[int | float | bytes]]:
    """The fields of a message by number, each with its values in order of appearance."""
    fields: dict[int, list[int | float | bytes]] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value: int | float | bytes
        match key & 7:
            case 0:
                value, at = _varint(data, at)
            case 1:
                value, at = struct.unpack_from("<d", data, at)[0], at + 8
            case 2:
                size, at = _varint(data, at)
                if at + size > len(data):
                    raise ValueError(f"field {key >> 3} ends after the message")
                value, at = data[at : at + size], at + size
            case 5:
                value, at = struct.unpack_from("<f", data, at)[0], at + 4
            case kind:
                raise ValueError(f"wire type {kind} of field {key >> 3}")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def plane(name: str, lines: Iterable[tuple[str, Sequence[tuple[str, int, int]]]] = ()) -> bytes:
    """An XPlane; an event is its name, start and duration in picoseconds."""
    ids: dict[str, int] = {}
    body = b""
    for line_id, (line_name, events) in enumerate(lines, 1):
        line = field(1, line_id) + field(2, line_name) + field(3, 1_700_000_000_000_000_000)
        for event_name, start, duration in events:
            metadata_id = ids.setdefault(event_name, len(ids) + 1)
            line += field(4, field(1, metadata_id) + field(2, start) + field(3, duration))
        body += field(3, line)
    for event_name, metadata_id in ids.items():
        body += field(4, field(1, metadata_id) + field(2, field(1, metadata_id) + field(2, event_name)))
    return field(2, name) + body


def xspace(*planes: bytes, hostname: str = "t1v-n-0-w-0") -> bytes:
    """An XSpace of these planes, written so that decoding and encoding it again changes its bytes."""
    unusual = b"\x08\x81\x00"  # XPlane.id = 1 in two bytes where one would do
    return b"".join(field(1, body + unusual) for body in planes) + field(4, hostname)

"""Planes of a trace that figures do not need, found by name and read only when a section asks for them."""

from __future__ import annotations

from tpumon.xspace.planes.plane import Plane, read_outline
from tpumon.xspace.wire.fields import fields
from tpumon.xspace.wire.stored import Stored

METADATA, ENVIRONMENT = "/host:metadata", "Task Environment"

_PLANES = 1  # field number of XSpace
_NAME, _LINES = 2, 3  # of XPlane
_MOST_PLANES = 1000


def find_plane(stored: Stored, name: str) -> Plane | None:
    """The first plane of a name; None if there is none.

    Raises:
        SourceError: `malformed`.
    """
    wanted, seen = name.encode(), 0
    for number, _, begin, end, _ in fields(stored):
        if number != _PLANES or seen >= _MOST_PLANES:
            continue
        seen += 1
        if _name(stored, begin, end) == wanted:
            return Plane(read_outline(stored, begin, end), 0)
    return None


def _name(stored: Stored, begin: int, end: int) -> bytes:
    """A plane's name, which stands before its lines; nothing where it does not."""
    for number, _, first, last, _ in fields(stored, begin, end):
        if number == _NAME:
            return bytes(stored[first : min(last, first + 200)])
        if number >= _LINES:
            break
    return b""

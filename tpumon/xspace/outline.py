"""Outline of a trace whose events are not opened: enough to tell a profile from an empty or broken one."""

from __future__ import annotations

import re

from msgspec import Struct

from tpumon.errors import SourceError
from tpumon.model import SIMULATED_MARK
from tpumon.proto.xplane_pb2 import LineOutline
from tpumon.untrusted_text import one_line
from tpumon.xspace.wire import fields, parsed

_DEVICE_PLANE = re.compile(r"/device:(TPU|GPU):\d+")
_PLANE, _ERROR, _WARNING = 1, 2, 3  # fields of XSpace
_PLANE_NAME, _PLANE_LINE = 2, 3  # of XPlane
_MOST_PARTS = 10_000
_MOST_REMARKS = 20


class Outline(Struct, frozen=True, kw_only=True, eq=False):
    """Contents of a trace, without its figures.

    Attributes:
        device_planes: names of the planes of TPU and GPU devices.
        event_count: events on all lines of all planes; 0 if they were not to be counted.
        warnings: the profiler's own errors and warnings, one line each.
        simulated: whether tpumon's simulator made the trace.
    """

    device_planes: tuple[str, ...]
    event_count: int
    warnings: tuple[str, ...]
    simulated: bool


def outline(xspace: bytes | memoryview, *, count_events: bool = True) -> Outline:
    """Reads a serialized XSpace down to its events, which stay unopened.

    Args:
        xspace: the trace.
        count_events: whether to count the events; finding them takes time in a large trace.

    Raises:
        SourceError: `malformed`, the bytes are not an XSpace, or one of more than 10,000 planes and lines.
    """
    remarks: list[str] = []
    device_planes: list[str] = []
    events = parts = 0
    view = memoryview(xspace)
    for number, _, begin, end, _ in fields(view):
        parts += 1
        if number == _PLANE:
            name, lines = _plane(view[begin:end], _MOST_PARTS - parts)
            parts += len(lines)
            if _DEVICE_PLANE.match(name):
                device_planes.append(one_line(name))
            if count_events:
                events += sum(_event_count(line) for line in lines)
        elif number in {_ERROR, _WARNING} and len(remarks) < _MOST_REMARKS:
            remarks.append(one_line(_decoded(view[begin:end])))
        _check(parts)
    return Outline(
        device_planes=tuple(device_planes),
        event_count=events,
        warnings=tuple(remark for remark in remarks if SIMULATED_MARK not in remark),
        simulated=any(SIMULATED_MARK in remark for remark in remarks),
    )


def _plane(raw: memoryview, most_lines: int) -> tuple[str, list[memoryview]]:
    name, lines = "", []
    for number, _, begin, end, _ in fields(raw):
        if number == _PLANE_NAME:
            name = _decoded(raw[begin:end])
        elif number == _PLANE_LINE:
            lines.append(raw[begin:end])
            if len(lines) > most_lines:
                _check(_MOST_PARTS + 1)
    return name, lines


def _check(parts: int) -> None:
    if parts > _MOST_PARTS:
        raise SourceError("malformed", f"the trace has more than {_MOST_PARTS} planes and lines")


def _decoded(raw: memoryview) -> str:
    return bytes(raw[:1000]).decode(errors="replace")


def _event_count(line: memoryview) -> int:
    return len(parsed(LineOutline, bytes(line)).events)

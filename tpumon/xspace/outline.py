"""What a trace holds, without opening its events: enough to tell a profile from an empty or broken one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from tpumon.errors import SourceError
from tpumon.model import SIMULATED_MARK
from tpumon.text import one_line
from tpumon.wire.xplane_pb2 import TraceOutline

_DEVICE_PLANE = re.compile(r"/device:(TPU|GPU):\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """Attributes:
    device_planes: names of the planes of TPU and GPU devices.
    event_count: events on all lines of all planes.
    warnings: the profiler's own errors and warnings, one line each.
    simulated: whether tpumon's simulator made the trace.
    """

    device_planes: tuple[str, ...]
    event_count: int
    warnings: tuple[str, ...]
    simulated: bool


def outline(xspace: bytes) -> Outline:
    """Reads a serialized XSpace down to its events, which stay unopened.

    Raises:
        SourceError: `malformed`, the bytes are not an XSpace.
    """
    trace = TraceOutline()
    try:
        trace.ParseFromString(xspace)
    except DecodeError as error:
        raise SourceError("malformed", f"not a trace: {len(xspace)} bytes that do not parse as an XSpace") from error
    counts = [(plane.name, sum(len(line.events) for line in plane.lines)) for plane in trace.planes]
    remarks = [one_line(text) for text in (*trace.errors, *trace.warnings)]
    return Outline(
        device_planes=tuple(name for name, _ in counts if _DEVICE_PLANE.match(name)),
        event_count=sum(count for _, count in counts),
        warnings=tuple(remark for remark in remarks if SIMULATED_MARK not in remark),
        simulated=any(SIMULATED_MARK in remark for remark in remarks),
    )

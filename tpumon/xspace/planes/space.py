"""A trace, its planes sorted by what they are."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from tpumon.errors import SourceError
from tpumon.proto.xplane_pb2 import TraceOutline
from tpumon.untrusted_text import one_line
from tpumon.xspace.columns.timeline import LATEST_NS, PS_PER_NS
from tpumon.xspace.planes.plane import HOST_THREADS, MOST_LINES, TPU_PREFIX, Outline, Plane, read_outline
from tpumon.xspace.wire.fields import fields
from tpumon.xspace.wire.parsed import parsed
from tpumon.xspace.wire.stored import Stored

_ENVIRONMENT = "Task Environment"
_GPU = re.compile(r"/device:GPU:(\d{1,9})")


class Space(Struct, frozen=True, kw_only=True, eq=False):
    """A trace, its events not read yet.

    Attributes:
        tensor_cores: planes of TensorCores.
        sparse_cores: planes of SparseCores.
        tpu_planes: all planes of TPUs, in the trace's order; XProf takes the peaks from the first.
        gpus: planes of GPUs.
        host: the plane of the host's threads.
        start_unix_s: when the window began, by the host's clock; None where the trace does not say.
        stop_ps: when it ended, on the trace's own clock; None where the trace does not say.
        hostnames: as the trace says.
        remarks: the profiler's own errors and warnings, one line each, each once.
        capped: what there was too much of, so that some of it is left out; one line each.
    """

    tensor_cores: tuple[Plane, ...]
    sparse_cores: tuple[Plane, ...]
    tpu_planes: tuple[Plane, ...]
    gpus: tuple[Plane, ...]
    host: Plane | None
    start_unix_s: float | None
    stop_ps: int | None
    hostnames: tuple[str, ...]
    remarks: tuple[str, ...]
    capped: tuple[str, ...]


_MOST_REMARKS = 20
_MOST_PLANES, _MOST_CORES = 1000, 64  # a host has 16 cores at most
_PLANES = 1  # field number of XSpace
_LATEST_START_NS = 1 << 62


def read_space(stored: Stored) -> Space:
    """Sorts the planes of a serialized XSpace.

    Raises:
        SourceError: `malformed`, the bytes are not an XSpace; `empty-trace`, no line has an event; `too-large`, a plane
            has too many ids.
    """
    head, spans = [], []
    for number, begin, value_begin, end, _ in fields(stored):
        if number == _PLANES:
            spans.append((value_begin, end))
        else:
            head.append(stored[begin:end])
    trace = parsed(TraceOutline, b"".join(head))
    capped = _too_many(spans, _MOST_PLANES, "planes")
    parts: list[Outline] = []
    for begin, end in spans[:_MOST_PLANES]:
        parts.append(read_outline(stored, begin, end))
        capped += _too_many(parts[-1].lines, MOST_LINES, "lines in one plane")
    stamps = [line.timestamp_ns for part in parts for line in part.lines if line.has_events]
    if not stamps:
        raise SourceError("empty-trace", "the trace holds no event; was the program idle, or the profiler stopped?")
    # Times may count from 1970, which in picoseconds is more than 64 bits hold.
    base_ns = 0 if max(stamps) < LATEST_NS else min(stamps, key=lambda stamp: (stamp <= 0, stamp))
    planes = [Plane(part, base_ns) for part in parts]
    tpu_planes = tuple(plane for plane in planes if plane.name.startswith(TPU_PREFIX))
    cores = [plane for plane in tpu_planes if plane.tensor_core is not None]
    capped += _too_many(cores, _MOST_CORES, "cores")
    remarks = [one_line(text) for text in dict.fromkeys((*trace.errors, *trace.warnings))]
    return Space(
        tensor_cores=tuple(cores[:_MOST_CORES]),
        sparse_cores=tuple(plane for plane in tpu_planes if plane.is_sparse_core),
        tpu_planes=tpu_planes,
        gpus=tuple(plane for plane in planes if _GPU.fullmatch(plane.name)),
        host=next((plane for plane in planes if plane.name == HOST_THREADS), None),
        start_unix_s=_start_unix_s(planes),
        stop_ps=_stop_ps(planes, base_ns),
        hostnames=tuple(one_line(name) for name in trace.hostnames),
        remarks=tuple(remarks[:_MOST_REMARKS]),
        capped=tuple(dict.fromkeys(capped)),
    )


def _too_many(parts: Sequence[object], most: int, what: str) -> list[str]:
    """The line to say if some of these are left out."""
    return [f"the trace has more than {most} {what}: the others are left out"] if len(parts) > most else []


def _start_unix_s(planes: Sequence[Plane]) -> float | None:
    start_ns = _environment_ns(planes, "profile_start_time")
    return None if start_ns is None else start_ns / 1e9


def _stop_ps(planes: Sequence[Plane], base_ns: int) -> int | None:
    """Times count from 1970 or from the start of the window."""
    stop_ns = _environment_ns(planes, "profile_stop_time")
    from_ns = base_ns or _environment_ns(planes, "profile_start_time")
    if stop_ns is None or from_ns is None or not 0 < stop_ns - from_ns < LATEST_NS:
        return None
    return (stop_ns - from_ns) * PS_PER_NS


def _environment_ns(planes: Sequence[Plane], stat: str) -> int | None:
    environment = next((plane for plane in planes if plane.name == _ENVIRONMENT), None)
    time_ns = environment.stats.get(stat) if environment else None
    return time_ns if isinstance(time_ns, int) and 0 < time_ns < _LATEST_START_NS else None

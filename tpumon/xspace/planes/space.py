"""A trace, its planes sorted by what they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from tpumon.errors import SourceError
from tpumon.proto.xplane_pb2 import TraceOutline
from tpumon.untrusted_text import one_line
from tpumon.xspace.columns.columns import LATEST_NS, PS_PER_NS
from tpumon.xspace.planes.plane import ENVIRONMENT, HOST_THREADS, METADATA, MOST_LINES, TPU_PREFIX, Plane, Value
from tpumon.xspace.wire import Stored, fields, parsed

_GPU = re.compile(r"/device:GPU:(\d{1,9})")


class PlaneIndex(Struct, frozen=True, kw_only=True, eq=False):
    """A trace, its events not read yet.

    Attributes:
        tensor_cores: planes of TensorCores.
        sparse_cores: planes of SparseCores.
        tpu_planes: all planes of TPUs, in the trace's order; XProf takes the peaks from the first.
        gpus: planes of GPUs.
        host: the plane of the host's threads.
        metadata: the plane that holds the HLO of programs.
        environment: stats of the plane that says when the trace was taken, and how.
        start_unix_s: when the window began, by the host's clock; None where the trace does not say.
        stop_unix_s, stop_ps: when it ended, by the host's clock and on the trace's own; None likewise.
        hostnames: as the trace says.
        remarks: the profiler's own errors and warnings, one line each, each once.
        capped: what there was too much of, so that some of it is left out; one line each.
    """

    tensor_cores: tuple[Plane, ...]
    sparse_cores: tuple[Plane, ...]
    tpu_planes: tuple[Plane, ...]
    gpus: tuple[Plane, ...]
    host: Plane | None
    metadata: Plane | None
    environment: Mapping[str, Value]
    start_unix_s: float | None
    stop_unix_s: float | None
    stop_ps: int | None
    hostnames: tuple[str, ...]
    remarks: tuple[str, ...]
    capped: tuple[str, ...]


_MOST_REMARKS = 20
_MOST_PLANES, _MOST_CORES = 1000, 64  # a host has 16 cores at most
_PLANES = 1  # field number of XSpace
_LATEST_START_NS = 1 << 62
_LEFT_OUT = "the trace has more than {} {}: the others are left out"


def read_space(stored: Stored) -> PlaneIndex:
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
    outline = parsed(TraceOutline, b"".join(head))
    capped = _too_many(spans, _MOST_PLANES, "planes")
    planes = [Plane(stored, *span) for span in spans[:_MOST_PLANES]]
    if any(plane.has_more_lines for plane in planes):
        capped += [_LEFT_OUT.format(MOST_LINES, "lines in one plane")]
    stamps = [line.timestamp_ns for plane in planes for line in plane.all_lines if line.has_events]
    if not stamps:
        raise SourceError("empty-trace", "the trace holds no event; was the program idle, or the profiler stopped?")
    # Times may count from 1970, which in picoseconds is more than 64 bits hold.
    base_ns = 0 if max(stamps) < LATEST_NS else min(stamps, key=lambda stamp: (stamp <= 0, stamp))
    for plane in planes:
        plane.base_ns = base_ns
    named = {plane.name: plane for plane in reversed(planes)}
    environment = named[ENVIRONMENT].stats if ENVIRONMENT in named else {}
    start_ns, stop_ns = (time_ns(environment, f"profile_{end}_time") for end in ("start", "stop"))
    tpu_planes = tuple(plane for plane in planes if plane.name.startswith(TPU_PREFIX))
    cores = [plane for plane in tpu_planes if plane.tensor_core is not None]
    capped += _too_many(cores, _MOST_CORES, "cores")
    remarks = [one_line(text) for text in dict.fromkeys((*outline.errors, *outline.warnings))]
    return PlaneIndex(
        tensor_cores=tuple(cores[:_MOST_CORES]),
        sparse_cores=tuple(plane for plane in tpu_planes if plane.is_sparse_core),
        tpu_planes=tpu_planes,
        gpus=tuple(plane for plane in planes if _GPU.fullmatch(plane.name)),
        host=named.get(HOST_THREADS),
        metadata=named.get(METADATA),
        environment=environment,
        start_unix_s=None if start_ns is None else start_ns / 1e9,
        stop_unix_s=None if stop_ns is None else stop_ns / 1e9,
        stop_ps=_stop_ps(base_ns or start_ns, stop_ns),
        hostnames=tuple(one_line(name) for name in outline.hostnames),
        remarks=tuple(remarks[:_MOST_REMARKS]),
        capped=tuple(capped),
    )


def _too_many(parts: Sequence[object], most: int, what: str) -> list[str]:
    """The line to say if some of these are left out."""
    return [_LEFT_OUT.format(most, what)] if len(parts) > most else []


def time_ns(environment: Mapping[str, Value], stat: str) -> int | None:
    """A time since 1970; None where the trace does not say, or it is absurd."""
    value = environment.get(stat)
    return value if isinstance(value, int) and 0 < value < _LATEST_START_NS else None


def _stop_ps(from_ns: int | None, stop_ns: int | None) -> int | None:
    """The end on the trace's clock; times count from 1970 or from the start of the window."""
    if stop_ns is None or from_ns is None or not 0 < stop_ns - from_ns < LATEST_NS:
        return None
    return (stop_ns - from_ns) * PS_PER_NS

"""Kernels of GPUs: what was launched how, of which op, and for how long."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from tpumon.untrusted_text import one_line
from tpumon.xspace.columns.columns import PS_PER_S
from tpumon.xspace.hardware import streams
from tpumon.xspace.ops.op_kinds import NAME_LENGTH
from tpumon.xspace.planes.plane import Plane

_STATS = ("kernel_details", "tf_op", "hlo_op", "hlo_module")
_DETAIL = re.compile(r"(\w+):([\d.,]{1,40})")
_PATH = 400  # characters


class KernelKind(Struct, frozen=True, kw_only=True):
    """A kernel, launched in one way for one op; what the trace does not say is "" or None.

    Attributes:
        name: of the kernel.
        provenance: the framework's path of its op (`tf_op`).
        op: of XLA.
        program: of XLA.
        registers: of a thread.
        shared_bytes: shared memory of a block.
        block, grid: threads of a block, and blocks, in three dimensions: "256,1,1".
        occupancy_ratio: warps on a multiprocessor, relative to the most that it takes.
    """

    name: str
    provenance: str
    op: str
    program: str
    registers: int | None
    shared_bytes: int | None
    block: str | None
    grid: str | None
    occupancy_ratio: float | None


class Kernel(Struct, frozen=True, kw_only=True):
    """Launches of one kind.

    Attributes:
        kind: what was launched.
        occurrences: how often.
        time_s: durations, added up.
        min_s, max_s: of one launch.
    """

    kind: KernelKind
    occurrences: int
    time_s: float
    min_s: float
    max_s: float


def read_kernels(planes: Sequence[Plane]) -> tuple[Kernel, ...]:
    """The kernels of the GPUs of a host. XProf: ConvertDeviceTraceXPlaneToKernelReports.

    Raises:
        SourceError: `malformed`.
    """
    return merged_kernels((kernel for plane in planes for kernel in _of_plane(plane)), lambda kind: kind)


def merged_kernels(kernels: Iterable[Kernel], key_of: Callable[[KernelKind], Hashable]) -> tuple[Kernel, ...]:
    """The kernels whose kinds have the same key, added up, the longest first; the first one's kind stands for all."""
    merged: dict[Hashable, Kernel] = {}
    for one in kernels:
        key = key_of(one.kind)
        merged[key] = _added(merged[key], one) if key in merged else one
    return tuple(sorted(merged.values(), key=lambda one: (-one.time_s, one.kind.name, one.kind.op)))


def _added(one: Kernel, other: Kernel) -> Kernel:
    return Kernel(
        kind=one.kind,
        occurrences=one.occurrences + other.occurrences,
        time_s=one.time_s + other.time_s,
        min_s=min(one.min_s, other.min_s),
        max_s=max(one.max_s, other.max_s),
    )


def _of_plane(plane: Plane) -> Iterator[Kernel]:
    events = plane.read(streams(plane), _STATS)
    if _STATS[0] not in events.stats:  # copies have no such stat
        return
    events = events.select(events.stats[_STATS[0]].present)
    # The texts of stats are names that the plane has elsewhere, by number.
    numbers = [
        events.stats[name].integers() if name in events.stats else np.zeros_like(events.metadata_id) for name in _STATS
    ]
    rows = np.stack([events.metadata_id, *numbers], axis=1)
    kinds, index, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    index = index.reshape(-1)
    order = np.argsort(index, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    durations_s = events.duration_ps[order] / PS_PER_S
    for kind, count, *times_s in (
        zip(
            kinds.tolist(),
            counts.tolist(),
            *(function.reduceat(durations_s, starts).tolist() for function in (np.add, np.minimum, np.maximum)),
            strict=True,
        )
        if len(kinds)
        else ()
    ):
        time_s, min_s, max_s = times_s
        yield Kernel(kind=_kind(plane, *kind), occurrences=count, time_s=time_s, min_s=min_s, max_s=max_s)


def _kind(plane: Plane, event: int, details: int, path: int, op: int, program: int) -> KernelKind:
    def text(number: int, limit: int) -> str:
        return one_line(plane.stat_names.get(number, ""), limit=limit)

    said = dict(_DETAIL.findall(text(details, _PATH)))

    def whole(name: str) -> int | None:
        return int(said[name]) if said.get(name, "").isdecimal() else None

    shared = [size for name in ("static_shared", "dynamic_shared") if (size := whole(name)) is not None]
    try:
        occupancy_ratio = float(said["occ_pct"]) / 100
    except (KeyError, ValueError):
        occupancy_ratio = None
    return KernelKind(
        name=one_line(plane.event_name(event), limit=NAME_LENGTH),
        provenance=text(path, _PATH).rstrip(":"),
        op=text(op, NAME_LENGTH),
        program=text(program, NAME_LENGTH),
        registers=whole("regs"),
        shared_bytes=sum(shared) if shared else None,
        block=said.get("block"),
        grid=said.get("grid"),
        occupancy_ratio=occupancy_ratio,
    )

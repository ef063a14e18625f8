"""The kinds of ops that this process has seen.

The planes of one host share nearly all their ops, and so do one worker's traces, one after the other. So an op's
metadata is read once per process, and not once per core and trace.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Sequence

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tpumon.wire.xplane_pb2 import XEventMetadata
from tpumon.xspace.catalogue.kinds import METADATA_STATS, OpKind, Visited, op_kind
from tpumon.xspace.planes.plane import Plane

KIND = np.dtype(
    [
        ("key", "<i8"),
        ("category", "u1"),
        ("counted", "?"),
        ("shown", "?"),
        ("matrix", "?"),
        ("custom", "?"),
        ("has_bytes", "?"),
        ("flops", "<f8"),
        ("model_flops", "<f8"),
        ("hbm_bytes", "<f8"),
        ("time_kind", "u1"),
        ("padding_128", "<f8"),
        ("padding_256", "<f8"),
        ("category_key", "<i8"),
    ]
)
"""One kind of op as a row of an array; `key` tells ops apart, `category_key` names of categories, else as in OpKind."""

Kinds = NDArray[np.void]
"""Rows of KIND."""

_MOST_ROWS, _MOST_BYTES = 131_072, 32 << 20  # of metadata; a program has some thousand ops of some hundred bytes
_UNKNOWN = (-1.0, -1.0)  # padding
_ID, _GOES_ON = b"\x08", b"\x80"  # tag of an XEventMetadata's id, with which it begins; a varint's byte before others
_Names = tuple[tuple[int, str], ...]


class Catalogue:
    """Rows of KIND, found again by an op's metadata; may be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clear()

    def clear(self) -> None:
        """Forgets all ops."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        self._rows = np.zeros(1024, dtype=KIND)
        self._count = self._bytes = 0
        self._known: dict[_Names, dict[bytes, int]] = {}

    def __len__(self) -> int:
        return self._count

    def kinds(self, plane: Plane, numbers: Sequence[int]) -> Kinds:
        """The kinds of a plane's ops.

        Args:
            plane: whose metadata.
            numbers: metadata ids of the ops.

        Raises:
            SourceError: `malformed`.
        """
        wanted = plane.numbers_of(METADATA_STATS)
        # What metadata says depends on what the plane calls the stats in it, too.
        names = tuple(sorted(wanted.items()))
        metadata = _without_ids(plane.metadata(numbers))
        with self._lock:
            known = self._known.get(names, {})
            rows = np.array([known.get(raw, -1) for raw in metadata], dtype=np.int64)
            kinds = self._rows[np.maximum(rows, 0)]
        unknown = np.flatnonzero(rows < 0).tolist()
        visited: Visited = {}
        found = {raw: op_kind(plane, raw, wanted, visited) for raw in {metadata[i] for i in unknown}}
        for i in unknown:
            kinds[i] = _row(found[metadata[i]])
        self._learn(names, {raw: kind for raw, kind in found.items() if _stands_alone(raw, wanted.keys())})
        return kinds

    def _learn(self, names: _Names, found: dict[bytes, OpKind]) -> None:
        if not found:
            return
        with self._lock:
            if self._count + len(found) > _MOST_ROWS or self._bytes > _MOST_BYTES:
                self._clear()
            known = self._known.setdefault(names, {})
            for raw, kind in found.items():
                if raw in known or self._count >= _MOST_ROWS:
                    continue
                if self._count == len(self._rows):
                    self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
                self._rows[self._count] = _row(kind)
                known[raw] = self._count
                self._count += 1
                self._bytes += len(raw)


CATALOGUE = Catalogue()
"""This process's."""


def _without_ids(metadata: Sequence[bytes]) -> list[bytes]:
    """Metadata without their ids, which are the plane's business."""
    out = []
    for raw in metadata:
        at = 0
        if raw[:1] == _ID:
            at = 2
            while raw[at - 1 : at] >= _GOES_ON:
                at += 1
        out.append(raw[at:])
    return out


def _stands_alone(raw: bytes, wanted: Container[int]) -> bool:
    """Whether metadata says all by itself: no ops within, no reference to a name of the plane's."""
    try:
        metadata = XEventMetadata.FromString(raw)
    except DecodeError:
        return False
    return not metadata.child_id and not any(
        stat.metadata_id in wanted and stat.WhichOneof("value") == "ref_value" for stat in metadata.stats
    )


def _row(kind: OpKind) -> tuple[object, ...]:
    return (
        hash(kind.key),  # 64 bits: that two of 100,000 ops share it has a chance of 1 in 3 billion
        kind.category,
        kind.counted,
        kind.shown,
        kind.matrix,
        kind.custom,
        kind.hbm_bytes is not None,
        kind.flops,
        kind.model_flops or (0 if kind.custom else kind.flops),
        kind.hbm_bytes or 0,
        kind.time_kind,
        *(kind.paddings or _UNKNOWN),
        hash(kind.category_name),
    )

"""The kinds of ops that this process has seen.

The planes of one host share nearly all their ops, and so do one worker's traces, one after the other. So an op's
metadata is read once per process, and not once per core and trace.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpumon.xspace.catalogue.op_kinds import METADATA_STATS, Known, OpKind, op_kind
from tpumon.xspace.columns.intervals import first_of_equal
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

_MOST_ROWS, _MOST_BYTES = 131_072, 32 << 20  # of metadata; a program has some thousand ops of some hundred bytes
_NAME_BYTES = 128  # what a stat's number and name take, generously
_UNKNOWN = (-1.0, -1.0)  # padding
_ID = re.compile(rb"\x08[\x80-\xff]*[\x00-\x7f]?")  # an XEventMetadata's, with which it begins
_Names = tuple[tuple[int, str], ...]


class Kinds:
    """The kinds of a core's ops; as a rule, the next core's are the very same.

    Attributes:
        rows: of KIND.
        order: of those that XProf adds up, by their keys ascending: indices of rows.
        first: where another key begins in this order.
        by_key: the columns of KIND, one element for each key: as of its first row, or true if any of its rows is.

    Args:
        rows: of KIND; they do not change any more.
    """

    def __init__(self, rows: NDArray[np.void]) -> None:
        rows.flags.writeable = False
        self.rows = rows
        order = np.argsort(rows["key"], kind="stable")
        self.order = order[rows["counted"][order]]
        self.first = first_of_equal(rows["key"][self.order])
        self.by_key: dict[str, NDArray[Any]] = {}
        for name in rows.dtype.names or ():
            column = rows[name][self.order]
            any_of_them = column.dtype == np.bool_ and len(column)
            self.by_key[name] = np.logical_or.reduceat(column, self.first) if any_of_them else column[self.first]
            self.by_key[name].flags.writeable = False  # all tables of these ops have it

    def __len__(self) -> int:
        return len(self.rows)

    def added(self, column: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums by key of a column that has one element for each row."""
        ordered = column[self.order]
        return ordered if len(self.first) == len(ordered) else np.add.reduceat(ordered, self.first)


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
        # What was asked last: as a rule, the cores of a host run the same ops by the same numbers.
        self._last: tuple[_Names, list[bytes], Kinds] | None = None

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
        said = plane.metadata(numbers)
        with self._lock:
            if self._last is not None and self._last[:2] == (names, said):
                return self._last[2]
        metadata = _without_ids(said)
        with self._lock:
            known = self._known.get(names, {})
            rows = np.array([known.get(raw, -1) for raw in metadata], dtype=np.int64)
            kinds_of_ops = self._rows[np.maximum(rows, 0)]
        unknown = np.flatnonzero(rows < 0)
        if len(unknown):
            new = [metadata[i] for i in unknown.tolist()]
            read = Known()
            found = {raw: op_kind(plane, raw, wanted, read) for raw in dict.fromkeys(new)}
            table = np.array([_row(kind) for kind in found.values()], dtype=KIND)
            place = dict(zip(found, range(len(found)), strict=True))
            kinds_of_ops[unknown] = table[[place[raw] for raw in new]]
            alone = [raw for raw, kind in found.items() if kind.stands_alone]
            self._learn(names, alone, table[[place[raw] for raw in alone]])
            if len(alone) < len(found):
                return Kinds(kinds_of_ops)
        kinds = Kinds(kinds_of_ops)
        self._last = names, said, kinds
        return kinds

    def _learn(self, names: _Names, metadata: Sequence[bytes], kinds: NDArray[np.void]) -> None:
        with self._lock:
            if self._count + len(metadata) > _MOST_ROWS or self._bytes > _MOST_BYTES:
                self._clear()
            if names not in self._known:
                self._bytes += _NAME_BYTES * (len(names) + 1)
            known = self._known.setdefault(names, {})
            new = [i for i, raw in enumerate(metadata) if raw not in known][: _MOST_ROWS - self._count]
            while self._count + len(new) > len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            # Reading may be given up at any moment: what is known has its row already.
            first, self._count = self._count, self._count + len(new)
            self._rows[first : self._count] = kinds[new]
            for row, i in enumerate(new, first):
                known[metadata[i]] = row
                self._bytes += len(metadata[i])


CATALOGUE = Catalogue()
"""This process's."""


def _without_ids(metadata: Sequence[bytes]) -> list[bytes]:
    """Metadata without their ids, which are the plane's business."""
    begins = _ID.match
    return [raw[match.end() :] if (match := begins(raw)) else raw for raw in metadata]


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

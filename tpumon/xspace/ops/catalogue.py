"""The kinds of ops that this process has seen.

The planes of one host share nearly all their ops, and so do one worker's traces, one after the other. So an op's
metadata is read once per process, and not once per core and trace.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tpumon.xspace.ops.op_kinds import KIND, METADATA_STATS, op_kind
from tpumon.xspace.planes.plane import Plane

_MOST_ROWS, _MOST_BYTES = 131_072, 32 << 20  # of metadata; a program has some thousand ops of some hundred bytes
_NAME_BYTES = 128  # what a stat's number and name take, generously
_ID = re.compile(rb"\x08[\x80-\xff]*[\x00-\x7f]?")  # an XEventMetadata's, with which it begins
_Names = tuple[tuple[int, str], ...]


class Catalogue:
    """Rows of KIND, found again by an op's metadata; may be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forgets all ops."""
        self._rows = np.zeros(0, dtype=KIND)
        self._bytes = 0
        # What metadata says depends on what the plane calls the stats in it, too.
        self._places: dict[_Names, dict[bytes, int]] = {}
        # What was asked last: as a rule, the cores of a host run the same ops by the same numbers.
        self._last: tuple[_Names, list[bytes], NDArray[np.void]] = ((), [], self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def kinds(self, plane: Plane, numbers: Sequence[int]) -> NDArray[np.void]:
        """The kinds of a plane's ops, as rows of KIND.

        Args:
            plane: whose metadata.
            numbers: metadata ids of the ops.

        Raises:
            SourceError: `malformed`.
        """
        wanted = plane.numbers_of(METADATA_STATS)
        names = tuple(sorted(wanted.items()))
        serialized = plane.metadata(numbers)
        if (names, serialized) == self._last[:2]:
            return self._last[2]
        # Without their ids, which are the plane's business.
        metadata = [raw[match.end() :] if (match := _ID.match(raw)) else raw for raw in serialized]
        with self._lock:
            known = self._places.get(names, {})
            learned: dict[bytes, int] = {}
            own: dict[bytes, int] = {}  # that need their plane, so that others may not be the same
            new: list[tuple[object, ...]] = []
            matrix_ops: dict[tuple[int, int], bool] = {}
            for raw in dict.fromkeys(metadata):
                if raw not in known:
                    row, stands_alone = op_kind(plane, raw, wanted, matrix_ops)
                    (learned if stands_alone else own)[raw] = len(self._rows) + len(new)
                    new.append(row)
            rows = np.concatenate([self._rows, np.array(new, dtype=KIND)]) if new else self._rows
            here = learned | own
            kinds = rows[[known[raw] if raw in known else here[raw] for raw in metadata]]
            if learned:
                self._learn(rows, names, learned)
            if not own:
                self._last = names, serialized, kinds
        return kinds

    def _learn(self, rows: NDArray[np.void], names: _Names, learned: dict[bytes, int]) -> None:
        self._bytes += sum(map(len, learned)) + _NAME_BYTES * len(names)
        if len(rows) > _MOST_ROWS or self._bytes > _MOST_BYTES:
            self.clear()
            return
        # Reading may be given up at any moment: what is known has its row already.
        self._rows = rows
        self._places.setdefault(names, {}).update(learned)


CATALOGUE = Catalogue()
"""This process's."""

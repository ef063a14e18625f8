"""A writer of one plane of a trace, which numbers names when they are first used."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tpumon.proto import xplane_pb2

PS_PER_NS = 1000

StatValue = int | float | str | bytes


class PlaneWriter:
    """Adds stats, lines and events to a new plane of a trace."""

    def __init__(self, space: xplane_pb2.XSpace, number: int, name: str) -> None:
        self._plane = space.planes.add(id=number, name=name)
        self._lines: dict[str, xplane_pb2.XLine] = {}
        self._events: dict[Hashable, int] = {}
        self._stats: dict[str, int] = {}

    def add_stats(self, **stats: StatValue) -> None:
        self._put(self._plane.stats, stats)

    def add_line(self, name: str) -> xplane_pb2.XLine:
        if name not in self._lines:
            self._lines[name] = self._plane.lines.add(id=len(self._lines) + 1, name=name)
        return self._lines[name]

    def knows(self, key: Hashable) -> bool:
        return key in self._events

    def describe(self, key: Hashable, name: str, display_name: str = "", **stats: StatValue) -> int:
        """Adds the metadata of the events of a key; returns their number."""
        number = self._events[key] = len(self._events) + 1
        metadata = self._plane.event_metadata[number]
        metadata.id, metadata.name, metadata.display_name = number, name, display_name
        self._put(metadata.stats, stats)
        return number

    def add_event(self, line: str, key: Hashable, begin_ns: int, length_ns: int, **stats: StatValue) -> None:
        """Adds an event; a key that is not described is its name."""
        number = self._events.get(key) or self.describe(key, str(key))
        event = self.add_line(line).events.add(
            metadata_id=number, offset_ps=begin_ns * PS_PER_NS, duration_ps=length_ns * PS_PER_NS
        )
        self._put(event.stats, stats)

    def _put(self, stats: Any, values: dict[str, StatValue]) -> None:
        for name, value in values.items():
            if name not in self._stats:
                number = self._stats[name] = len(self._stats) + 1
                self._plane.stat_metadata[number].id = number
                self._plane.stat_metadata[number].name = name
            stat = stats.add(metadata_id=self._stats[name])
            setattr(stat, _FIELDS[type(value)], value)


_FIELDS = {int: "int64_value", float: "double_value", str: "str_value", bytes: "bytes_value"}

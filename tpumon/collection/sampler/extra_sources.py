"""Extra sources of one worker: when each is read beside the profiler, and how its figures join the sample."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tpumon.collection.sampler.pace import LONGEST_PAUSE_S
from tpumon.collection.sources import ExtraSource, OpenClient, Reading, SourceOptions
from tpumon.collection.sources.extra_source import present
from tpumon.errors import MEANING, SourceError
from tpumon.model import Failure, Figures, Sample, ServerFigures, Target
from tpumon.untrusted_text import unexpected

_GAP_PER_WORKER_S = 0.02
_GAP_WITHOUT_S = 20.0  # where nothing answered so far
_MOST_READINGS = 100  # between two samples: more than the last two minutes, of which they count


class ExtraReading(NamedTuple):
    """The last reading of one extra source, or its failure."""

    kind: type[ExtraSource]
    result: Reading | Failure


class ServerReading(NamedTuple):
    """What a server said of its requests, and when."""

    at_s: float
    figures: ServerFigures


class WorkerExtraSources:
    """All extra sources of one worker.

    Args:
        kinds: which to read.
        open_client: makes a channel to an address.
        options: what sources need to know.
    """

    def __init__(self, kinds: Sequence[type[ExtraSource]], open_client: OpenClient, options: SourceOptions) -> None:
        self._readers = [_ExtraSourceReader(kind, open_client, options) for kind in kinds]
        self._read_s = -math.inf
        self._of_server: deque[ServerReading] = deque(maxlen=_MOST_READINGS)

    async def read(self, target: Target, workers: int, *, again: bool = False) -> None:
        """Reads the extra sources that are due.

        Args:
            target: the worker, whose extra sources may have moved.
            workers: number of workers followed; the more, the less often each source is read.
            again: also read whatever gave a reading before.
        """
        self._read_s = at_s = asyncio.get_running_loop().time()
        before = self._last_of_server
        await asyncio.gather(
            *(reader.read(target, workers) for reader in self._readers if reader.is_due(target, again=again))
        )
        reading = self._last_of_server
        if reading is not None and reading is not before:
            self._of_server.append(ServerReading(at_s, reading))

    def are_due(self, target: Target) -> bool:
        """True if any extra source is due."""
        return any(reader.is_due(target) for reader in self._readers)

    def is_older(self, than_s: float) -> bool:
        """True if the last reading, if there is any, was so many seconds ago."""
        return bool(self.last) and asyncio.get_running_loop().time() - self._read_s > than_s

    @property
    def last(self) -> list[ExtraReading]:
        """The latest reading of each extra source that is there, or why it could not be read."""
        return [ExtraReading(reader.kind, reader.last) for reader in self._readers if reader.last is not None]

    @property
    def _last_of_server(self) -> ServerFigures | None:
        readings = (each.result.figures.server for each in self.last if isinstance(each.result, Reading))
        return next((server for server in readings if server is not None), None)

    def taken_of_server(self) -> list[ServerReading]:
        """The readings of a server's own metrics since this was asked; some may lie between two samples."""
        readings = list(self._of_server)
        self._of_server.clear()
        return readings

    @property
    def idle_s(self) -> float | None:
        """Seconds for which no device has run anything, as the runtime says; None where it does not say."""
        readings = [each.result for each in self.last if isinstance(each.result, Reading)]
        devices = [device for reading in readings for device in reading.figures.devices]
        idle_s = [one.runtime_tensorcore_idle_s for one in devices]
        return None if not any(one is not None for one in idle_s) else min(one or 0.0 for one in idle_s)

    async def aclose(self) -> None:
        """Closes their channels."""
        await asyncio.gather(*(reader.aclose() for reader in self._readers))


class _ExtraSourceReader:
    """One extra source of one worker, read no more often than is worth it. A bug in it is a failure of its own."""

    def __init__(self, kind: type[ExtraSource], open_client: OpenClient, options: SourceOptions) -> None:
        self.kind = kind
        self._open_client = open_client
        self._options = options
        self._target: Target | None = None
        self._extra_source: ExtraSource | None = None
        self.last: Reading | Failure | None = None
        self._next_s = 0.0
        self._was_there = False

    def is_due(self, target: Target, *, again: bool = False) -> bool:
        if target is not self._target and target != self._target:
            return True
        if self._extra_source is None:
            return False
        return (again and self.last is not None) or self._next_s <= asyncio.get_running_loop().time()

    async def read(self, target: Target, workers: int) -> None:
        if target != self._target:
            await self.aclose()
            self._target, self.last, self._next_s, self._was_there = target, None, 0.0, False
            self._extra_source = None
            self.last = await _guarded(self.kind, target, self._open)
        extra_source, now_s = self._extra_source, asyncio.get_running_loop().time()
        if extra_source is None:
            return
        self.last = await _guarded(self.kind, target, lambda: extra_source.read())  # noqa: PLW0108 - it may have no read
        if isinstance(self.last, Failure) and MEANING[self.last.reason].unreached and not self._was_there:
            self.last = None  # it was only looked for and need not exist
        self._was_there = self._was_there or self.last is not None
        gap_s = max(self.kind.usual_interval_s, _GAP_PER_WORKER_S * workers)
        self._next_s = now_s + (gap_s if self._was_there else _GAP_WITHOUT_S)

    async def _open(self) -> None:
        assert self._target is not None
        self._extra_source = self.kind.open(self._target, self._open_client, self._options)

    async def aclose(self) -> None:
        """Closes its connection; if that fails, there is nothing left to read."""
        extra_source = self._extra_source
        if extra_source is not None and self._target is not None:
            await _guarded(self.kind, self._target, lambda: extra_source.close())  # noqa: PLW0108


async def _guarded(
    kind: type[ExtraSource], target: Target, call: Callable[[], Awaitable[Reading | None]]
) -> Reading | Failure | None:
    """Result of an extra source's method; its failure if it fails: the profiler's figures stay."""
    try:
        return await call()
    except SourceError as error:
        return Failure.of(kind.name, error)
    except Exception as error:  # noqa: BLE001 - a bug there must not cost the profiler's figures
        return _bug(kind, error, target.address)


def _bug(kind: type[ExtraSource], error: Exception, address: str) -> Failure:
    words = f"a bug in tpumon: {unexpected(error)}"
    return Failure(source=kind.name, reason="internal", message=words, address=address)


def merged(sample: Sample, latest: Sequence[ExtraReading]) -> Sample:
    """The profiler's sample with the extra sources' figures; what the profiler measured stays."""
    for each in latest:
        try:
            sample = _with(sample, each)
        except Exception as error:  # noqa: BLE001 - nor must odd figures
            sample = _with(sample, ExtraReading(each.kind, _bug(each.kind, error, sample.address)))
    return sample


def _with(sample: Sample, extra: ExtraReading) -> Sample:
    reading = extra.result
    if isinstance(reading, Failure):
        return replace(sample, errors=(reading, *sample.errors))
    if not extra.kind.shows_life:
        return replace(sample, figures=_filled(sample.figures, reading.figures)) if sample.is_conclusive else sample
    return replace(
        sample,
        source=sample.source or extra.kind.alone or extra.kind.name,
        companions_only=sample.companions_only or sample.source is None,
        # A profiler that never answered has no interval yet; it is tried, and extra sources are read, this often.
        interval_s=sample.interval_s if sample.interval_s is not None else LONGEST_PAUSE_S,
        simulated=sample.simulated or reading.simulated,
        figures=_filled(sample.figures, reading.figures),
        warnings=(*sample.warnings, *reading.warnings),
        errors=(*reading.failures, *sample.errors),
    )


def _filled(figures: Figures, more: Figures) -> Figures:
    """These figures, and those of `more` that they lack."""
    known = present(figures)
    added = {name: value for name, value in present(more).items() if name not in known}
    absent = {name: why for name, why in {**more.absent, **figures.absent}.items() if name not in added}
    return replace(figures, **added, absent=absent)

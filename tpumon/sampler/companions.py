"""What is read of a worker beside its profiler, and how it joins the profiler's sample."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tpumon.errors import MEANING, SourceError
from tpumon.model import Failure, Figures, Sample, Target
from tpumon.sampler.pace import LONGEST_PAUSE_S
from tpumon.sources import Companion, OpenClient, Reading, SourceOptions
from tpumon.sources.companion import present
from tpumon.text import one_line

_GAP_PER_WORKER_S = 0.02
_GAP_WITHOUT_S = 20.0  # where nothing answered so far


class WorkerCompanions:
    """All companions of one worker.

    Args:
        kinds: which to read.
        open_client: makes a channel to an address.
        options: what sources need to know.
    """

    def __init__(self, kinds: Sequence[type[Companion]], open_client: OpenClient, options: SourceOptions) -> None:
        self._readers = [_Reader(kind, open_client, options) for kind in kinds]

    async def read(self, target: Target, workers: int, *, again: bool = False) -> list[Reading | Failure]:
        """The latest reading of each companion that is there, or why it could not be read.

        Args:
            target: the worker, whose companions may have moved.
            workers: how many are followed: the more, the less often each is read.
            again: read anew whatever gave a reading before.
        """
        readings = await asyncio.gather(*(reader.read(target, workers, again=again) for reader in self._readers))
        return [reading for reading in readings if reading is not None]

    async def aclose(self) -> None:
        """Closes their channels."""
        await asyncio.gather(*(reader.aclose() for reader in self._readers))


class _Reader:
    """One companion of one worker, read no more often than is worth it."""

    def __init__(self, kind: type[Companion], open_client: OpenClient, options: SourceOptions) -> None:
        self._kind = kind
        self._open_client = open_client
        self._options = options
        self._target: Target | None = None
        self._companion: Companion | None = None
        self._last: Reading | Failure | None = None
        self._next_s = 0.0
        self._was_there = False

    async def read(self, target: Target, workers: int, *, again: bool) -> Reading | Failure | None:
        if target != self._target:
            await self.aclose()
            self._target, self._last, self._next_s, self._was_there = target, None, 0.0, False
            self._companion = self._kind.open(target, self._open_client, self._options)
        now_s = asyncio.get_running_loop().time()
        soon = self._next_s > now_s and not (again and self._last is not None)
        if self._companion is None or soon:
            return self._last
        self._last = await self._look(self._companion, target)
        if isinstance(self._last, Failure) and MEANING[self._last.reason].unreached and not self._was_there:
            self._last = None  # it was only looked for and need not exist
        self._was_there = self._was_there or self._last is not None
        gap_s = max(self._kind.usual_interval_s, _GAP_PER_WORKER_S * workers)
        self._next_s = now_s + (gap_s if self._was_there else _GAP_WITHOUT_S)
        return self._last

    async def _look(self, companion: Companion, target: Target) -> Reading | Failure | None:
        name = self._kind.name
        try:
            return await companion.read()
        except SourceError as error:
            return Failure(source=name, reason=error.reason, message=error.message, address=error.address)
        except Exception as error:  # noqa: BLE001 - a bug there must not cost the profiler's figures
            words = f"a bug in tpumon: {type(error).__name__}: {one_line(str(error))}"
            return Failure(source=name, reason="internal", message=words, address=target.address)

    async def aclose(self) -> None:
        if self._companion is not None:
            await self._companion.close()


def merged(sample: Sample, readings: Sequence[Reading | Failure]) -> Sample:
    """The profiler's sample with the companions' figures; what the profiler measured stays."""
    for reading in readings:
        sample = _with(sample, reading)
    return sample


def _with(sample: Sample, reading: Reading | Failure) -> Sample:
    if isinstance(reading, Failure):
        return replace(sample, errors=(reading, *sample.errors))
    return replace(
        sample,
        source=sample.source or "runtime",
        # A profiler that never answered has no interval yet; it is tried, and companions are read, this often.
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

"""Levels 1 and 2: figures of every worker, query after query."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tpumon.background import Background
from tpumon.commands.console import say
from tpumon.errors import NoTargetError
from tpumon.logdir import open_logdir
from tpumon.model import Query, Sample
from tpumon.outputs import Output, open_output
from tpumon.sampler import Pace, Sampler
from tpumon.sources import Client, SourceOptions
from tpumon.targets.addresses import name_targets
from tpumon.targets.local import find_local, nobody_here
from tpumon.view.notices import Notices
from tpumon.view.text import TextOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpumon.model import Target
    from tpumon.simulator.settings import SimulatorSettings

_LOOK_AGAIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings:
    """Attributes:
    level: 1 or 2.
    addresses: workers to follow; none: this host's.
    port: where to look on this host; None: the usual ones.
    simulate: a simulated TPU to follow instead.
    window_s: what each query asks for; None: as long as the source finds right.
    interval_s: from one query's start to the next; None: as is usual for the source.
    max_duty_ratio: the largest share of time for which a job may be traced.
    host_level: host tracer level 0-3 of sampled traces; None: as high as is useful and safe.
    logdir: where servers that cannot return a trace may write it.
    num_queries: per worker; 0: until stopped.
    attempts: tries of one query.
    output: "text" or the name of an exporter that writes to stdout.
    number_samples: capture_tpu_profile's header before each block.
    use_proxy: obey http_proxy.
    """

    level: int
    addresses: Sequence[str] = ()
    port: int | None = None
    simulate: SimulatorSettings | None = None
    window_s: float | None = None
    interval_s: float | None = None
    max_duty_ratio: float = 0.02
    host_level: int | None = None
    logdir: str | None = None
    num_queries: int = 0
    attempts: int = 3
    output: str = "text"
    number_samples: bool = False
    use_proxy: bool = False


@dataclass(frozen=True, slots=True)
class _Following:
    """Sent once it is known which workers are followed."""

    targets: Sequence[Target]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Sent once when there is no worker to follow yet."""


_Event = Sample | _Following | _Waiting


def run(settings: MonitorSettings) -> int:
    """Shows samples until `num_queries` are done or a signal comes.

    Raises:
        NoTargetError: with `num_queries`, when nobody ever answered.
        BrokenPipeError: the reader of stdout went away.
    """
    if settings.logdir:
        open_logdir(settings.logdir).prepare()
    notices = Notices()
    targets: Sequence[Target] = ()
    writer: _Writer | None = None
    dropped = False
    with ExitStack() as stack:
        background = stack.enter_context(Background[_Event](partial(_sample, settings)))
        for event in background.events():
            match event:
                case _Waiting():
                    say(f"WAITING for a job: {nobody_here(settings.port)}; looking again every {_LOOK_AGAIN_S:.0f} s")
                case _Following():
                    targets = event.targets
                    output = _open_output(settings, name_workers=len(targets) > 1)
                    writer = _Writer(stack.enter_context(closing(output)))
                case Sample():
                    for line in notices.update(event):
                        say(line)
                    if writer is not None:
                        writer.write(event)
            if background.dropped and not dropped:
                dropped = True
                say("samples are dropped, oldest first: the reader of stdout is too slow")
    if not notices.answered:
        raise NoTargetError(_no_answer(targets))
    return 1 if writer is not None and writer.failing else 0


class _Writer:
    """Writes to an output, and goes on when it cannot.

    Attributes:
        failing: whether the last sample could not be written.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self.failing = False

    def write(self, sample: Sample) -> None:
        try:
            self._output.write(sample)
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever one output does, sampling and the other outputs go on
            if not self.failing:
                why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                say(f"cannot write samples: {why}; going on without, and trying with each sample")
            self.failing = True
        else:
            self.failing = False


def _open_output(settings: MonitorSettings, *, name_workers: bool) -> Output:
    if settings.output == "text":
        return TextOutput(
            sys.stdout, level=settings.level, name_workers=name_workers, number_samples=settings.number_samples
        )
    return open_output(settings.output, "-")


async def _sample(settings: MonitorSettings, send: Callable[[_Event], None]) -> None:
    async with AsyncExitStack() as stack:
        if settings.simulate is not None:
            from tpumon.simulator.server import SimulatedFleet

            targets = (await stack.enter_async_context(SimulatedFleet(settings.simulate))).targets
        else:
            targets = name_targets(settings.addresses or await _wait_for_local(settings, send))
        send(_Following(targets))
        sampler = Sampler(
            targets,
            Query(level=settings.level, window_s=settings.window_s),
            Pace(
                interval_s=settings.interval_s,
                max_duty_ratio=settings.max_duty_ratio,
                attempts=settings.attempts,
                num_queries=settings.num_queries,
            ),
            on_sample=send,
            options=SourceOptions(
                host_level=settings.host_level, logdir=open_logdir(settings.logdir) if settings.logdir else None
            ),
            open_client=partial(Client, use_proxy=settings.use_proxy),
        )
        await sampler.run()


async def _wait_for_local(settings: MonitorSettings, send: Callable[[_Event], None]) -> Sequence[str]:
    told = False
    while not (addresses := await find_local(settings.port)):
        if settings.num_queries:
            raise NoTargetError(nobody_here(settings.port))
        if not told:
            send(_Waiting())
        told = True
        await asyncio.sleep(_LOOK_AGAIN_S)
    return addresses


def _no_answer(targets: Sequence[Target]) -> str:
    if len(targets) == 1:
        return f"{targets[0].address} never answered"
    return f"none of {len(targets)} targets ever answered"

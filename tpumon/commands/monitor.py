"""Levels 1 and 2: figures of every worker, query after query, to a terminal, a pipe and further outputs."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tpumon.commands.console import say
from tpumon.commands.finding import WhereSettings, open_discovery
from tpumon.errors import NoTargetError, UsageError
from tpumon.fleet import Thresholds
from tpumon.logdir import open_logdir
from tpumon.model import Query, Sample, Workers
from tpumon.outputs import Export, Listening, Output, OutputOptions, QueuedOutput, Speaking, open_output, reason
from tpumon.sampler import Pace, Sampler
from tpumon.sources import Client, SourceOptions
from tpumon.system.background import Background
from tpumon.view.notices import Notices
from tpumon.view.text import TextOutput

if TYPE_CHECKING:
    from tpumon.view.display import DisplaySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings:
    """Attributes:
    level: 1 or 2.
    where: whom to follow.
    from_url: a running exporter to show instead.
    window_s: what each query asks for; None: as long as the source finds right.
    pace: how often to ask, and how long to go on.
    host_level: host tracer level 0-3 of sampled traces; None: as high as is useful and safe.
    runtime_metrics: whether libtpu's runtime metric service is asked as well.
    logdir: where servers that cannot return a trace may write it.
    output: what stdout gets: "auto", "live", "text", an output's name, or "none".
    exports: further outputs.
    web_config: TLS and users of those that serve HTTP.
    display: how the live view looks.
    color: of the live view: "auto", "always" or "never".
    number_samples: capture_tpu_profile's header before each block of text.
    use_proxy: obey http_proxy.
    """

    level: int
    where: WhereSettings = field(default_factory=WhereSettings)
    from_url: str | None = None
    window_s: float | None = None
    pace: Pace = field(default_factory=Pace)
    host_level: int | None = None
    runtime_metrics: bool = True
    logdir: str | None = None
    output: str = "auto"
    exports: Sequence[Export] = ()
    web_config: str | None = None
    display: DisplaySettings | None = None
    color: str = "auto"
    number_samples: bool = False
    use_proxy: bool = False


_Event = Workers | Sample


def run(settings: MonitorSettings) -> int:
    """Shows samples until `num_queries` are done, the user quits, or a signal comes.

    Raises:
        UsageError: an output cannot be had.
        NoTargetError: with `num_queries`, when nobody ever answered.
        BrokenPipeError: the reader of stdout went away.
    """
    if settings.logdir:
        open_logdir(settings.logdir).prepare()
    _take_all_descriptors()
    if _chosen_output(settings) == "live":
        from tpumon.commands.live import run_live

        return run_live(settings)
    with ExitStack() as stack:
        exports = open_exports(settings, stack)
        writer = _Writer(stack.enter_context(closing(_stdout_output(settings))))
        background = stack.enter_context(Background[_Event](partial(feed, settings, exports), keep=is_found))
        notices, dropped = Notices(), False
        for event in background.events():
            if event is None:
                continue
            hand_over(event, [writer])
            for line in notices.update(event):
                say(line)
            if background.dropped and not dropped:
                dropped = True
                say("samples are dropped, oldest first: the reader of stdout is too slow")
    if not notices.answered:
        raise NoTargetError(notices.nobody_answered)
    return 1 if writer.failing else 0


def _take_all_descriptors() -> None:
    """A fleet of 1,000 takes 2,000 connections; the usual limit is 1,024, though a process may raise it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def is_found(event: Workers | Sample) -> bool:
    """Whether it says who the workers are, which must not be lost."""
    return isinstance(event, Workers)


def hand_over(event: Workers | Sample, outputs: Sequence[Output]) -> None:
    """Gives outputs what came."""
    for output in outputs:
        if isinstance(event, Workers):
            output.follow(event)
        else:
            output.write(event)


def _chosen_output(settings: MonitorSettings) -> str:
    """What stdout gets: the live view where nobody said otherwise, it can be drawn, and it is to stay."""
    if settings.output != "live" and (settings.output != "auto" or settings.pace.num_queries):
        return settings.output
    from tpumon.view.loop.live import can_be_live

    why_not = can_be_live()
    if settings.output == "live" and why_not is not None:
        raise UsageError(f"--output live: {why_not}; give --output text or jsonl")
    return "text" if why_not is not None else "live"


def _stdout_output(settings: MonitorSettings) -> Output:
    match settings.output:
        case "auto" | "text":
            return TextOutput(sys.stdout, level=settings.level, number_samples=settings.number_samples)
        case "none":
            return _Nothing()
        case name:
            return open_output(name, "-", _output_options(settings))


def _output_options(settings: MonitorSettings) -> OutputOptions:
    thresholds = settings.display.thresholds if settings.display is not None else Thresholds()
    return OutputOptions(level=settings.level, web_config=settings.web_config, thresholds=thresholds)


class _Nothing:
    """No output."""

    def follow(self, _found: Workers) -> None:
        pass

    def write(self, _sample: Sample) -> None:
        pass

    def close(self) -> None:
        pass


class _Writer:
    """Writes to stdout in the main thread, and goes on when it cannot.

    Attributes:
        failing: whether the last sample could not be written.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self.failing = False

    def follow(self, found: Workers) -> None:
        self._output.follow(found)

    def write(self, sample: Sample) -> None:
        try:
            self._output.write(sample)
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever one output does, sampling and the other outputs go on
            if not self.failing:
                say(f"cannot write samples: {reason(error)}; going on without, and trying with each sample")
            self.failing = True
        else:
            self.failing = False

    def close(self) -> None:
        self._output.close()


def open_exports(settings: MonitorSettings, stack: ExitStack) -> list[QueuedOutput]:
    """The further outputs, each in a thread of its own; closed with the stack.

    Raises:
        UsageError: one of them cannot be had.
    """
    options = _output_options(settings)
    opened = []
    for export in settings.exports:
        output = open_output(export.name, export.where, options, export.options)
        if isinstance(output, Speaking):
            output.say = say
        if isinstance(output, Listening):
            say(output.listening)
        opened.append(stack.enter_context(closing(QueuedOutput(output, export.name, say))))
    return opened


async def feed(settings: MonitorSettings, exports: Sequence[QueuedOutput], show: Callable[[_Event], None]) -> None:
    """What comes in: samples of the workers, or those of a running exporter.

    Args:
        settings: where from.
        exports: get it at once, whatever the main thread waits for.
        show: passes it to the main thread.
    """

    def send(event: _Event) -> None:
        hand_over(event, exports)
        show(event)

    if settings.from_url is not None:
        from tpumon.remote import RemoteExporter

        await RemoteExporter(settings.from_url).feed(send)
        return
    async with AsyncExitStack() as stack:
        sampler = Sampler(
            await open_discovery(settings.where, stack, say),
            Query(level=settings.level, window_s=settings.window_s),
            settings.pace,
            on_sample=send,
            on_workers=send,
            options=SourceOptions(
                host_level=settings.host_level,
                logdir=open_logdir(settings.logdir) if settings.logdir else None,
                runtime_metrics=settings.runtime_metrics and settings.level > 1,
            ),
            open_client=partial(Client, use_proxy=settings.use_proxy),
            say=say,
        )
        await sampler.run()

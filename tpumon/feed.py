"""The events of a run: sampled here or taken from a running exporter, written to outputs, and shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, closing
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Self

from tpumon.errors import NoTargetError
from tpumon.model import Handover, Query, Sample, Workers
from tpumon.model.frozen import frozen
from tpumon.outputs import (
    Export,
    Listening,
    Output,
    OutputOptions,
    QueuedOutput,
    Speaking,
    TakingOver,
    Vouching,
    open_output,
)
from tpumon.sampler import Pace, Sampler
from tpumon.sources import Client, Connecting, SourceOptions
from tpumon.system.background import Background
from tpumon.system.console import say
from tpumon.system.descriptors import raise_descriptor_limit
from tpumon.system.heartbeat import Heartbeat
from tpumon.system.ledger import Ledger
from tpumon.system.memory import reuse_memory
from tpumon.targets.selection import Selection, open_discovery
from tpumon.view.notices import Notice, Notices

if TYPE_CHECKING:
    from types import TracebackType

Told = Workers | Sample | Handover
"""What a run learns: who the workers are from now on, one query's sample, or what a running exporter hands on."""

Event = Told | Notice
"""What a feed yields: what the run learns, or a line for the user."""


@frozen
class Sampling:
    """Samples taken by this process.

    Attributes:
        query: what to ask a worker.
        selection: which workers.
        pace: how often, and for how long.
        sources: how figures are obtained.
        use_proxy: connect through http_proxy.
    """

    query: Query
    selection: Selection = field(default_factory=Selection)
    pace: Pace = field(default_factory=Pace)
    sources: SourceOptions = field(default_factory=SourceOptions)
    use_proxy: bool = False


@frozen(kw_only=False)
class Recorded:
    """Samples that were recorded before: not for a feed, which is about what happens now.

    Attributes:
        where: a directory or a file.
    """

    where: str


@frozen(kw_only=False)
class Remote:
    """Samples that others take: running exporters, or the Prometheus server that scrapes several.

    Attributes:
        url: where they answer: `SOURCE[,SOURCE...]`.
        selector: label matchers of the series in Prometheus; None: exporters are followed.
        auth_file: a file with a bearer token or USER:PASSWORD; None: the URL has the password, if there is one.
    """

    url: str
    selector: str | None = None
    auth_file: str | None = None


@frozen
class FeedSettings:
    """Where events come from, and which outputs get them.

    Attributes:
        origin: samples to take, those of others, or what was recorded.
        exports: outputs beside the one on stdout.
        output_options: of all outputs, the one on stdout included.
    """

    origin: Sampling | Recorded | Remote
    exports: Sequence[Export] = ()
    output_options: OutputOptions = field(default_factory=OutputOptions)

    @property
    def takes_samples(self) -> bool:
        """Whether this process samples, and does not show what another one has sampled."""
        return isinstance(self.origin, Sampling)


class Feed:
    """Runs the sampler in a thread, passes its events to the outputs at once, and yields them with notices.

    A context manager: entering opens the outputs and starts sampling; leaving stops it and closes the outputs.
    Events that the consumer does not fetch in time are dropped, oldest first, which a notice says once; outputs
    still get them.

    Args:
        settings: where events come from, and which outputs get them.
        consumer: who fetches the events, for that notice.
        wake: called in the sampler's thread when there is something to fetch; must not block.
        looked_at: which worker the user looks at; called in that thread, too.
    """

    def __init__(
        self,
        settings: FeedSettings,
        *,
        consumer: str,
        wake: Callable[[], None] = lambda: None,
        looked_at: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._consumer = consumer
        self._looked_at = looked_at
        self._outputs: list[QueuedOutput] = []
        self._heartbeat = Heartbeat()
        self._notices = Notices(takes_samples=settings.takes_samples)
        self._reported_drops = False
        self._stack = ExitStack()
        self._background = Background[Told](self._run, wake=wake, keep=_is_kept)

    def __enter__(self) -> Self:
        """Starts.

        Raises:
            UsageError: an output cannot be opened, or the log directory needs what is not installed.
            TpumonError: the log directory cannot be written.
        """
        raise_descriptor_limit()
        origin = self._settings.origin
        if isinstance(origin, Sampling):
            reuse_memory()  # before there are threads
            if origin.sources.logdir is not None:
                origin.sources.logdir.prepare()
        with ExitStack() as stack:
            for export in self._settings.exports:
                output = _open(export, self._settings.output_options, self._heartbeat)
                self._outputs.append(stack.enter_context(closing(output)))
            stack.enter_context(self._background)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def __iter__(self) -> Iterator[Event]:
        """Waits for events until there will be no more.

        Raises:
            NoTargetError: the feed ended, and no worker ever answered.
            Exception: whatever ended the feed.
        """
        return (event for event in self.events() if event is not None)

    def events(self, *, timeout_s: float | None = None) -> Iterator[Event | None]:
        """Iterates likewise, and yields None if there was no event for this long; None: waits."""
        for event in self._background.events(timeout_s=timeout_s):
            if event is None:
                yield None
            else:
                yield from self._with_notices(event)
        self._check_answered()

    def fetch(self) -> tuple[Sequence[Event], bool]:
        """Returns the events since the last call, without waiting, and whether there will be no more.

        Once there are no more events to return, it raises what iterating would raise.
        """
        events, ended = self._background.fetch()
        if ended and not events:
            self._check_answered()
        return [shown for event in events for shown in self._with_notices(event)], ended

    def _with_notices(self, event: Told) -> Iterator[Event]:
        yield event
        if isinstance(event, Handover):
            return
        for line in self._notices.update(event):
            yield Notice(line)
        if self._background.dropped and not self._reported_drops:
            self._reported_drops = True
            yield Notice(f"samples are dropped, oldest first: {self._consumer} is too slow")

    def _check_answered(self) -> None:
        if not self._notices.any_answered:
            raise NoTargetError(self._notices.none_answered)

    async def _run(self, show: Callable[[Told], None]) -> None:
        """Runs in the thread: outputs get each event before it waits for the consumer."""

        def send(event: Told) -> None:
            exported = for_outputs(event, self._settings.output_options)
            for output in self._outputs:
                hand_over(exported, output)
            show(event)

        self._heartbeat.start()
        origin = self._settings.origin
        if isinstance(origin, Sampling):
            await _sample(origin, send)
        else:
            assert isinstance(origin, Remote)
            await _read(origin, self._settings.output_options, self._looked_at, send)


async def _sample(sampling: Sampling, send: Callable[[Told], None]) -> None:
    async with AsyncExitStack() as stack:
        sampler = Sampler(
            await open_discovery(sampling.selection, stack, say),
            sampling.query,
            sampling.pace,
            on_sample=send,
            on_workers=send,
            options=sampling.sources,
            open_client=partial(
                Client,
                use_proxy=sampling.use_proxy,
                max_bytes=1_000_000 * sampling.sources.max_trace_mb,
                connecting=Connecting(),
            ),
            ledger=None if sampling.selection.simulate is not None else Ledger(),
            say=say,
        )
        await sampler.run()


async def _read(
    remote: Remote, options: OutputOptions, looked_at: Callable[[], str | None], send: Callable[[Told], None]
) -> None:
    """Follows exporters, or Prometheus if a selector is given."""
    from tpumon.prometheus import PrometheusReader, PrometheusServer, selector_of
    from tpumon.remote import RemoteFleet

    if remote.selector is None:
        await RemoteFleet(remote.url, auth_file=remote.auth_file, own_run=options.run, say=say).feed(send)
        return
    server, selector = PrometheusServer(remote.url, remote.auth_file), selector_of(remote.selector)
    await PrometheusReader(server, selector, limits=options.thresholds, say=say, looked_at=looked_at).feed(send)


def for_outputs(event: Told, options: OutputOptions) -> Told:
    """What outputs get of an event: of a sample, no more operations than they are to write; the live view shows all."""
    return event.with_ops(options.ops) if isinstance(event, Sample) else event


def hand_over(event: Told, output: Output) -> None:
    """Gives an event to an output; what an exporter hands on only to one that takes it."""
    if isinstance(event, Workers):
        output.follow(event)
    elif isinstance(event, Sample):
        output.write(event)
    elif isinstance(output, TakingOver):
        output.take_over(event)


def _open(export: Export, options: OutputOptions, heartbeat: Heartbeat) -> QueuedOutput:
    output = open_output(export.name, export.where, options, export.options)
    if isinstance(output, Vouching):
        output.heartbeat_age_s = heartbeat.age_s
    if isinstance(output, Speaking):
        output.say = say
    if isinstance(output, Listening):
        say(output.listening)
    return QueuedOutput(output, export.name, say)


def _is_kept(event: Told) -> bool:
    """Whether the event must not be lost: it says who the workers are, or all that was before."""
    return isinstance(event, Workers) or (isinstance(event, Handover) and event.complete)

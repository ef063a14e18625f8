"""The path of events: from a source through the analysis to the outputs and to whoever iterates over the feed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Self

from msgspec import Struct, field

from tpumon.analysis import Analysis, FleetStatus, Update
from tpumon.analysis.playback import Playback, began_then, played
from tpumon.analysis.recorded_clock import RecordedClock
from tpumon.analysis.state_file import WRITE_S, StateFile
from tpumon.collection.event_sources import EventSource, RecordingSource
from tpumon.collection.recording import Recording
from tpumon.errors import NoTargetError, UsageError
from tpumon.model import Sample, SourceEvent, Workers
from tpumon.outputs import Context, Export, OutputSettings, QueuedOutput, open_output, reason
from tpumon.outputs.run_notices import Notices
from tpumon.outputs.shared_samples import SharedSamples
from tpumon.system.background import Background, Heartbeat
from tpumon.system.exporter_ports import announce
from tpumon.system.limits import raise_descriptor_limit
from tpumon.untrusted_text import unexpected

_log = logging.getLogger(__name__)

_TICK_S = 1.0


class FeedSettings(Struct, frozen=True, kw_only=True):
    """The source of events, and the outputs that get them.

    Attributes:
        source: samples to take, those of others, or what was recorded.
        nearby_level: a tpumon of this host of at least this level may be read instead of sampling; None: none may.
        exports: outputs beside the one on stdout.
        output_settings: of all outputs, the one on stdout included.
        state_dir: directory in which verdicts are kept for the next start; None: a restart forgets them.
    """

    source: EventSource
    nearby_level: int | None = None
    exports: Sequence[Export] = ()
    state_dir: str | None = None
    output_settings: OutputSettings = field(default_factory=OutputSettings)


class Feed:
    """Runs the source in a thread, passes its updates to the outputs at once, and yields them.

    A context manager: entering opens the outputs and starts the source; leaving stops it and closes the outputs.
    Updates that the consumer does not fetch in time are dropped, oldest first, which is said once; outputs still get
    them.

    Args:
        settings: the source of events, and the outputs that get them.
        consumer: words for the reader of the updates, for that message; None: there is no reader.
        wake: called in the source's thread when there is something to fetch; must not block.
        remembers: True if the consumer shows figures of the past.
        says_waiting: False if the consumer says why there is no worker.
        shares: True if other commands may read the samples that this process takes.

    Attributes:
        context: the run, for an output that is opened beside it.
    """

    def __init__(
        self,
        settings: FeedSettings,
        *,
        consumer: str | None = "this machine",
        wake: Callable[[], None] = lambda: None,
        remembers: bool = False,
        says_waiting: bool = True,
        shares: bool = False,
    ) -> None:
        self._settings = settings
        self._shares = shares
        self._consumer = consumer
        self._outputs: list[QueuedOutput] = []
        self._heartbeat = Heartbeat()
        self._notices = Notices(says_waiting=says_waiting)
        self._reported_drops = False
        self._stack = ExitStack()
        self._analysis = Analysis(settings.output_settings.thresholds)
        self._state = (
            None if settings.state_dir is None else StateFile(settings.state_dir, host=settings.source.takes_samples)
        )
        self._cannot_keep = False
        self._has_failed = False
        if remembers:
            self._analysis.remember()
        self.context = Context(
            settings=settings.output_settings, analysis=self._analysis, heartbeat_age_s=self._heartbeat.age_s
        )
        self._background = Background[Update](self._run, wake=wake, is_lasting=_says_who)

    def __enter__(self) -> Self:
        """Starts.

        Raises:
            UsageError: an output cannot be opened, or the log directory needs what is not installed.
            TpumonError: the log directory cannot be written.
        """
        raise_descriptor_limit()
        shares = self._shares
        self._settings.source.prepare()
        kept = None if self._state is None else self._state.read()
        if kept is not None:
            self._analysis.resume(kept, time.time())
        with ExitStack() as stack:
            for export in self._settings.exports:
                try:
                    output = open_output(export.name, export.where, self.context, export.options)
                except UsageError as error:
                    error.option = error.option or export.given
                    raise
                if output.remembers:
                    self._analysis.remember()
                if output.open_port is not None and self._settings.source.may_be_read_instead:
                    stack.callback(announce(output.open_port))
                    shares = False
                queued = QueuedOutput(output, export.name)
                self._outputs.append(stack.enter_context(closing(queued)))
            if shares:
                sharing = SharedSamples(self.context, lambda: self._settings.source.may_be_read_instead)
                queued = QueuedOutput(sharing, "sharing samples")
                self._outputs.append(stack.enter_context(closing(queued)))
            stack.enter_context(self._background)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._keep()

    def status(self) -> FleetStatus:
        """The status of all workers now."""
        return self._analysis.status(time.time())

    def updates(self, *, timeout_s: float | None = None) -> Iterator[Update | None]:
        """Iterates over updates until there will be no more.

        Args:
            timeout_s: yield None if there was no update for this long; None: wait.

        Raises:
            NoTargetError: the feed ended, and no worker ever answered.
            Exception: whatever ended the feed.
        """
        yield from self._background.events(timeout_s=timeout_s)
        self._check_answered()

    def fetch(self) -> tuple[Sequence[Update], bool]:
        """Returns the updates since the last call, without waiting, and whether there will be no more.

        Once there are no more updates to return, it raises what iterating would raise.
        """
        updates, ended = self._background.fetch()
        if ended and not updates:
            self._check_answered()
        return list(updates), ended

    def _check_answered(self) -> None:
        if not self._notices.any_answered:
            raise NoTargetError(self._notices.none_answered)

    async def _run(self, show: Callable[[Update], None]) -> None:
        """Runs in the thread: outputs get each update before it waits for the consumer."""

        def send(event: SourceEvent) -> None:
            update = self._analysed(lambda: self._analysis.add(event))
            if update is not None:
                pass_on(update)
            if isinstance(event, Workers | Sample):
                self._notices.update(event)
                self._note_drops()

        def pass_on(update: Update) -> None:
            exported = update.with_ops(self._settings.output_settings.ops)
            for output in self._outputs:
                output.on_update(exported)
            if self._consumer is not None:
                show(update)

        self._heartbeat.start()
        ticking = asyncio.create_task(self._tick(pass_on))
        try:
            await self._settings.source.send_to(send, self._settings.output_settings.run_id)
        finally:
            ticking.cancel()

    async def _tick(self, pass_on: Callable[[Update], None]) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(_TICK_S)
            update = self._analysed(lambda: self._analysis.tick(time.time()))
            if update is not None:
                pass_on(update)
            ticks += 1
            if self._state is not None and ticks % WRITE_S == 0:
                await asyncio.to_thread(self._keep)

    def _analysed(self, analyse: Callable[[], Update | None]) -> Update | None:
        """An update; None if a bug keeps it from being made: that must not end sampling, and is said once."""
        try:
            return analyse()
        except Exception as error:  # noqa: BLE001 - see above
            if not self._has_failed:
                self._has_failed = True
                _log.warning("an event cannot be analysed, a bug in tpumon: %s", unexpected(error))
            return None

    def _keep(self) -> None:
        """Keeps what verdicts rest on."""
        if self._state is None:
            return
        try:
            self._state.write(self._analysis.kept(time.time()))
            self._cannot_keep = False
        except Exception as error:  # noqa: BLE001 - nothing that is kept is worth the run
            if not self._cannot_keep:
                _log.warning("--state %s: %s; it is tried again", self._settings.state_dir, reason(error))
            self._cannot_keep = True

    def _note_drops(self) -> None:
        if self._background.dropped and not self._reported_drops:
            self._reported_drops = True
            _log.warning("samples are dropped, oldest first: %s is too slow", self._consumer)


class RecordedFeed:
    """Yields the updates of a recording, with its own clock.

    Args:
        settings: the recording, and the moment at which to end.
        last_s: only as much before its end; None: all of it.

    Attributes:
        context: the run, for an output that is opened beside it.
    """

    def __init__(self, settings: FeedSettings, *, last_s: float | None = None) -> None:
        assert isinstance(settings.source, RecordingSource)
        self._recording = Recording(settings.source.where)
        self._at = settings.source.at
        self._last_s = last_s
        self._clock = RecordedClock()
        self._thresholds = settings.output_settings.thresholds
        self._analysis = Analysis(self._thresholds, recorded=self._clock)
        self.context = Context(
            settings=settings.output_settings, analysis=self._analysis, clock=lambda: self._clock.unix_s
        )

    def __enter__(self) -> Self:
        """Finds its begin and end.

        Raises:
            UsageError: it holds no samples, or none of the moment.
        """
        self.begin_unix_s, self.end_unix_s = self._recording.span_unix_s()
        if self._at is not None:
            self.end_unix_s = self._recording.moment_of(self._at)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def status(self) -> FleetStatus:
        """The status of all workers at the time up to which its updates were fetched."""
        return self._analysis.status(self._clock.unix_s)

    def updates(self, *, timeout_s: float | None = None) -> Iterator[Update | None]:  # noqa: ARG002 - never waits
        """Iterates over its updates."""
        begin_unix_s = self.begin_unix_s if self._last_s is None else self.end_unix_s - self._last_s
        if self._at is None:
            yield from played(self._analysis, self._recording.moments(begin_unix_s))
            return
        playback = Playback(self._recording, begin_unix_s, self._analysis)
        yield from playback.read_to(self.end_unix_s)
        began = began_then(self._recording, self._analysis, self.end_unix_s, self._thresholds)
        yield from playback.read_to(began.shown_unix_s)
        if began.words:
            _log.info("%s", began.words)


AnyFeed = Feed | RecordedFeed


def open_feed(
    settings: FeedSettings,
    *,
    consumer: str = "this machine",
    remembers: bool = False,
    last_s: float | None = None,
    says_waiting: bool = True,
) -> AnyFeed:
    """Makes the feed of a source.

    Args:
        settings: the source of events, and the outputs that get them.
        consumer: who fetches the updates.
        remembers: True if the consumer shows figures of the past.
        last_s: of a recording, only as much of its end; None: all of it.
        says_waiting: False if the consumer says why there is no worker.
    """
    if settings.source.is_over:
        return RecordedFeed(settings, last_s=last_s)
    return Feed(settings, consumer=consumer, remembers=remembers, says_waiting=says_waiting)


def _says_who(update: Update) -> bool:
    """True for updates with a list of workers."""
    return update.workers is not None

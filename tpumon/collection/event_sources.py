"""Sources of events: samples that this process takes, those of exporters, and recorded ones."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from tpumon.collection.remote import RemoteExporter, RemoteFleet, shown
from tpumon.collection.remote.exporter import Send
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sources import Client, Connecting, SourceOptions
from tpumon.discovery.host.port_survey import Elsewhere
from tpumon.discovery.identity import names
from tpumon.discovery.selection import Selection, open_discovery
from tpumon.model import Query, Sample, SourceEvent, Target, Workers
from tpumon.model.progress import Progress
from tpumon.system.ledger import DutyLedger

if TYPE_CHECKING:
    from tpumon.collection.remote.nearby import Nearby

_log = logging.getLogger(__name__)

_POLL_S = 1.0
_FIRST_SAMPLES_S = 90.0  # within which an exporter nearby must have a sample of each worker


class EventSource:
    """Base of the sources of events; by default a source that takes no samples itself.

    Attributes:
        takes_samples: True if this process samples the jobs.
        is_over: True if all events have happened already; they are then read by `RecordedFeed`.
        ends: True if it ends by itself.
        is_of_host: True if all jobs of this host are sampled, and nothing else.
        addresses: addresses of the workers to sample; none: the workers that discovery finds.
        may_be_read_instead: True if another tpumon that would sample the same jobs may read these samples.
        shown_name: name of the exporter or file that the samples come from, without passwords; None: this process.
        at: the moment of a recording to show or to judge, as it was typed; None: the usual one.
    """

    __slots__ = ()
    takes_samples: ClassVar[bool] = False
    is_over: ClassVar[bool] = False
    ends: ClassVar[bool] = False
    is_of_host: ClassVar[bool] = False
    addresses: ClassVar[Sequence[str]] = ()
    may_be_read_instead: ClassVar[bool] = False
    shown_name: ClassVar[str | None] = None
    at: ClassVar[str | None] = None

    @property
    def progress(self) -> Progress | None:
        """The sampler's current action on each worker; None: this process takes no samples."""
        return None

    def with_ops(self, most: int) -> EventSource:  # noqa: ARG002 - a source of others' samples has what they have
        """The source with at least `most` top operations in each sample, if that is up to this process."""
        return self

    def awaited_by(self, samples: int) -> EventSource:  # noqa: ARG002 - only who takes samples can tell when they come
        """The source for a command that waits for so many samples of each worker."""
        return self

    def has_ended(self, target: Target) -> bool:  # noqa: ARG002 - only who takes samples looks at processes
        """True if the process of a worker has ended, whatever the last sample shows."""
        return False

    def waiting_for_targets(self) -> EventSource:
        """The source as a service needs it: it waits where there is no worker yet."""
        return self

    def prepare(self) -> None:
        """Prepares this process; call it before there are threads.

        Raises:
            UsageError: the log directory needs what is not installed.
            TpumonError: the log directory cannot be written.
        """

    async def send_to(self, send: Send, own_run: str) -> None:
        """Sends events until there will be no more, or until it is cancelled.

        Args:
            send: gets the events.
            own_run: the run of this process: samples that come through it are refused.
        """
        raise NotImplementedError


class SamplingSource(Struct, EventSource, frozen=True, kw_only=True):
    """Samples taken by this process.

    Attributes:
        query: what to ask a worker.
        selection: which workers.
        pace: how often, and for how long.
        sources: how figures are obtained.
        use_proxy: connect through http_proxy.
    """

    takes_samples: ClassVar[bool] = True

    query: Query
    selection: Selection = field(default_factory=Selection)
    pace: Pace = field(default_factory=Pace)
    sources: SourceOptions = field(default_factory=SourceOptions)
    use_proxy: bool = False

    @property
    def ends(self) -> bool:  # type: ignore[override]
        """True if the number of queries is limited."""
        return self.pace.num_queries > 0

    @property
    def is_of_host(self) -> bool:  # type: ignore[override]
        """True if nothing but this host was selected."""
        return replace(self.selection, job=None, slice=None, waits=False) == Selection()

    @property
    def addresses(self) -> Sequence[str]:  # type: ignore[override]
        """Addresses that the user gave."""
        return self.selection.addresses

    @property
    def may_be_read_instead(self) -> bool:  # type: ignore[override]
        """True for real jobs."""
        return self.selection.simulate is None

    @property
    def progress(self) -> Progress:
        """The sampler's current action on each worker."""
        return self.sources.progress

    def with_ops(self, most: int) -> SamplingSource:
        """The source with at least `most` top operations in each sample."""
        return replace(self, query=replace(self.query, ops=max(self.query.ops, most)))

    def awaited_by(self, samples: int) -> SamplingSource:
        """The source for a command that is told when it will have so many samples of each worker."""
        return replace(self, pace=replace(self.pace, awaited=samples))

    def has_ended(self, target: Target) -> bool:
        """True if a worker's process was known on this host, and has ended."""
        return target.process is not None and self.sources.state_of(target.process.pid) == "ended"

    def waiting_for_targets(self) -> SamplingSource:
        """The source with a selection that waits."""
        return replace(self, selection=replace(self.selection, waits=True))

    def prepare(self) -> None:
        """Makes the log directory usable."""
        if self.sources.logdir is not None:
            self.sources.logdir.prepare()

    async def send_to(self, send: Send, own_run: str) -> None:  # noqa: ARG002 - nobody else's samples come
        """Takes samples until all are taken."""
        async with AsyncExitStack() as stack:
            sampler = Sampler(
                await open_discovery(self.selection, stack),
                self.query,
                self.pace,
                on_sample=send,
                on_workers=send,
                options=self.sources,
                open_client=partial(
                    Client,
                    use_proxy=self.use_proxy,
                    max_bytes=1_000_000 * self.sources.max_trace_mb,
                    connecting=Connecting(),
                ),
                elsewhere=Elsewhere() if self.selection.addresses or self.selection.targets_file else None,
                ledger=None if self.selection.simulate is not None else DutyLedger(),
            )
            await sampler.run()


class RecordingSource(Struct, EventSource, frozen=True):
    """Samples of a recording. `send_to` sends nothing: recorded events have their own clock (`RecordedFeed`).

    Attributes:
        where: a directory or a file.
        at: the moment to show or to judge.
    """

    is_over: ClassVar[bool] = True
    ends: ClassVar[bool] = True

    where: str
    at: str | None = None  # type: ignore[misc]

    @property
    def shown_name(self) -> str:  # type: ignore[override]
        """The path."""
        return self.where


class ExportersSource(Struct, EventSource, frozen=True):
    """Samples that running exporters take.

    Attributes:
        url: where they answer: `SOURCE[,SOURCE...]`.
        auth_file: a file with a bearer token or USER:PASSWORD; None: the URL has the password, if there is one.
        job, slice: of workers whose job or slice the exporter does not know.
        keeps_apart: whether each of several workers of one name is shown; Prometheus gets the names of the hosts.
    """

    url: str
    auth_file: str | None = None
    job: str | None = None
    slice: str | None = None
    keeps_apart: bool = False

    @property
    def shown_name(self) -> str:  # type: ignore[override]
        """The exporters, without passwords."""
        return shown(self.url)

    async def send_to(self, send: Send, own_run: str) -> None:
        """Follows the exporters until it is cancelled."""
        given = names(self.job, self.slice)
        fleet = RemoteFleet(
            self.url, auth_file=self.auth_file, own_run=own_run, given=given, keeps_apart=self.keeps_apart
        )
        await fleet.feed(send)


class NearbySource(EventSource):
    """Samples of a tpumon of this host; once it stops answering, samples that this process takes.

    Args:
        page: that tpumon's.
        sampling: the samples to take then.
    """

    def __init__(self, page: Nearby, sampling: EventSource) -> None:
        self._page = page
        self._sampling = sampling
        self._has_taken_over = False

    @property
    def takes_samples(self) -> bool:  # type: ignore[override]
        """True once the exporter has stopped answering."""
        return self._has_taken_over

    @property
    def may_be_read_instead(self) -> bool:  # type: ignore[override]
        """True once this process samples real jobs."""
        return self._has_taken_over and self._sampling.may_be_read_instead

    @property
    def shown_name(self) -> str | None:  # type: ignore[override]
        """The exporter, while it is read."""
        return None if self._has_taken_over else self._page.name

    @property
    def progress(self) -> Progress | None:
        """The sampler's current action on each worker, once this process takes samples."""
        return self._sampling.progress if self._has_taken_over else None

    def with_ops(self, most: int) -> NearbySource:
        """The source; only this process's own samples have more operations."""
        return NearbySource(self._page, self._sampling.with_ops(most))

    def prepare(self) -> None:
        """Prepares this process for sampling."""
        self._sampling.prepare()

    async def send_to(self, send: Send, own_run: str) -> None:
        """Follows the exporter, then samples, until it is cancelled."""
        exporter = RemoteExporter(self._page, own_run=own_run)
        lost: list[str] = []
        due_s: dict[str, float] = {}  # by when it must have a worker's first sample
        clock_s = asyncio.get_running_loop().time

        def pass_on(event: SourceEvent) -> None:
            nonlocal due_s
            if isinstance(event, Sample) and event.of_exporter:
                lost.append(event.errors[-1].message)
            elif isinstance(event, Workers) and not event.via:
                lost.append(event.waiting or "")
            elif isinstance(event, Workers):
                send(replace(event, targets=tuple(replace(each, exporter=exporter.name) for each in event.targets)))
                until_s = clock_s() + _FIRST_SAMPLES_S
                due_s = {each.worker: due_s.get(each.worker, until_s) for each in event.targets}
            elif not lost:
                send(event)
            if isinstance(event, Sample):
                due_s[event.worker] = math.inf

        while not lost:
            await exporter.poll(pass_on)
            if late := [worker for worker, until_s in due_s.items() if clock_s() > until_s]:
                lost.append(f"{exporter.name} has no sample of {min(late)}")
            await asyncio.sleep(0 if lost else exporter.pause_s(_POLL_S))
        _log.info("this process samples the jobs from now on: %s", lost[0])
        self._has_taken_over = True
        send(Workers())  # so that nothing is judged by samples that another process has judged
        await self._sampling.send_to(send, own_run)

"""One exporter: its `/samples` page is asked for again and again, and becomes events.

All input is checked first: the exporter may be of another version, or the server not an exporter at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus

from msgspec import Raw, Struct
from msgspec.structs import replace

from tpumon.analysis.exporter_snapshot import dated, read_snapshot
from tpumon.collection.http_get import LARGE_BYTES
from tpumon.collection.remote.exporter_client import ExchangeError, ExporterClient
from tpumon.errors import Reason
from tpumon.model import SCHEMA_VERSION, Change, Failure, Process, Sample, SourceEvent, Target, Workers, bounded
from tpumon.model.documents import decoded
from tpumon.model.page import Page, PageHead
from tpumon.model.sample import EXPORTER
from tpumon.system.threads import in_thread

_AT_ONCE = 50  # samples that are decoded before other exporters have a turn
_SHORTEST_S, _LONGEST_S = 1.0, 10.0  # between two exchanges
_BYTES_PER_S = 4_000_000  # an exporter whose answers are larger is asked less often: reading them takes time
_PATIENCE = 2  # consecutive failures before the workers count as unreachable
_SAME_CLOCK_S = 0.1
_SLACK_S = 0.2
_REFUSED_S = 60.0
_SETTLES_S = 30.0  # after a restart, while an exporter may have no workers yet

Send = Callable[[SourceEvent], None]


class RemoteExporter:
    """Follows the workers and samples of an exporter, also through its restarts and outages.

    Args:
        page: its page of samples.
        own_run: the run of this process, whose samples it must not have; None: this process has no readers.
        history_bytes: how much history of the time before it may send; None: all.
        clock: returns the seconds since the epoch.
        monotonic_s: reads a monotonic clock.
    """

    def __init__(
        self,
        page: SamplesPage,
        *,
        own_run: str | None = None,
        history_bytes: int | None = None,
        clock: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._page = page
        self._own_run = own_run
        self._history_bytes = history_bytes
        self._clock = clock
        self._monotonic_s = monotonic_s
        self._run: str | None = None
        self._restarted_s = -math.inf  # when another run than before answered first
        self._refused: tuple[str | None, float] = None, 0.0  # a run, and until when
        self._after: int | None = None
        self._changed: int | None = None  # number of the last change that the exporter handed on
        self._workers: Workers | None = None
        self._has_answered = False
        self._failures = 0
        self._reported: str | None = None
        self._away_unix_s = 0.0  # since when it does not answer
        self._gone: Change | None = None  # that it does not, once that is said
        self._judged: object = None  # findings, and what is not judged, as sent last
        self._sent: dict[str, float] = {}  # start of each worker's last sample, by the exporter's clock
        self._processes: dict[str, tuple[Process, Process]] = {}  # of each worker, by the exporter's clock and by ours
        self._quiet = 0  # answers in a row without a new sample
        self._next_s = _SHORTEST_S

    @property
    def name(self) -> str:
        """The URL without user and password."""
        return self._page.name

    @property
    def answers(self) -> bool:
        """True if it answered when it was asked last."""
        return self._has_answered and not self._failures

    def ask_for_everything(self) -> None:
        """Asks for all that it knows next time, history included."""
        self._after = self._changed = None

    def pause_s(self, most_s: float) -> float:
        """Time to wait until the next exchange: a new sample should be there then.

        Args:
            most_s: no longer than this while it answers.
        """
        if 0 < self._failures < _PATIENCE:
            return _SHORTEST_S
        next_s = most_s if self._failures else self._next_s
        return max(_SHORTEST_S, min(next_s, most_s), self._page.last_bytes / _BYTES_PER_S)

    async def poll(self, send: Send) -> None:
        """Asks once, and sends what follows.

        At first, and after an outage, it sends what the exporter knows of the time before, then each worker's last
        sample; later only what is new. During an outage it sends one failed sample per worker (source `exporter`) with
        the reason; if it has no workers, `Workers.waiting` has the reason. A change says when that begins and ends.
        """
        began_unix_s = self._clock()
        try:
            page = await self._page.fetch(self._after, self._changed, self._history_bytes)
            if self._after is not None and page.run != self._run:
                self._after, self._changed, self._sent = None, None, {}  # it was restarted, and counts from 0 again
                page = await self._page.fetch(None, None, self._history_bytes)
            self._refuse_own(page)
            ended_unix_s = self._clock()
            await self._answered(page, (began_unix_s + ended_unix_s) / 2, send, ended_unix_s - began_unix_s)
        except Exception as error:  # noqa: BLE001 - no answer may end the reader
            self._failed(self._page.trouble_of(error), began_unix_s, send)
        else:
            self._has_answered, self._failures, self._reported = True, 0, None
            if self._gone is not None:
                send(_back(self._gone, began_unix_s))
                self._gone = None

    def _refuse_own(self, page: Page) -> None:
        """Refuses samples that came through this process: they would go round for ever.

        Raises:
            ExchangeError: the page has such samples, or had a minute ago: the exporter may have refused ours since.
        """
        run, now_s = page.run, self._monotonic_s()
        if self._own_run is not None and (run == self._own_run or self._own_run in page.via):
            self._refused = run, now_s + random.uniform(_REFUSED_S, 2 * _REFUSED_S)
        if run is None or run != self._refused[0] or now_s >= self._refused[1]:
            return
        self._workers, self._sent = None, {}
        self.ask_for_everything()
        raise self._page.trouble("refused", "its samples come through this tpumon itself; leave it out of --from")

    async def _answered(self, page: Page, asked_unix_s: float, send: Send, asking_s: float = 0.0) -> None:
        if self._run not in {None, page.run}:
            self._restarted_s = self._monotonic_s()
        self._run, self._after = page.run, page.sequence
        listed = Workers.listed(page.targets, page.waiting)
        is_early = self._monotonic_s() - self._restarted_s < _SETTLES_S
        if is_early and self._workers is not None and self._workers.targets and not listed.targets:
            listed = self._workers  # it looks for them still: what is known of them is kept
        workers = replace(listed, via=(*filter(None, (self._run,)), *page.via))
        followed = {target.worker: target for target in workers.targets}
        if workers != self._workers:
            self._workers = workers
            self._sent = {worker: start for worker, start in self._sent.items() if worker in followed}
            self._processes = {worker: known for worker, known in self._processes.items() if worker in followed}
            send(workers)
        shift_s = 0.0 if page.now_unix_s is None else asked_unix_s - page.now_unix_s
        shift_s = shift_s if abs(shift_s) > max(_SAME_CLOCK_S, asking_s / 2) else 0.0
        if self._page.last_bytes > LARGE_BYTES:  # it takes a while; other exporters have their turns meanwhile
            snapshot = await in_thread(lambda: read_snapshot(page, shift_s), timeout_s=None)
        else:
            snapshot = read_snapshot(page, shift_s)
        if snapshot is not None:
            self._changed = snapshot.number
            judged = snapshot.findings, snapshot.not_judged
            if snapshot.complete or snapshot.statuses or snapshot.changes or judged != self._judged:
                self._judged = judged
                send(replace(snapshot, exporter=self.name))
        self._quiet += 1
        self._next_s = min(2.0 ** (self._quiet - 1), _LONGEST_S)
        for count, document in enumerate(page.samples, 1):
            try:
                sample = bounded(Sample.from_json(document))
            except Exception as error:  # noqa: BLE001 - one that cannot be read costs no other
                self._refuse(document, error, followed, send)
            else:
                if sample.worker in followed and sample.address:
                    self._send(sample, shift_s, send)
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)

    def _refuse(self, document: Raw, error: Exception, followed: Mapping[str, Target], send: Send) -> None:
        """Sends a failed sample in place of an unreadable one, if its worker can be read."""
        with contextlib.suppress(ValueError):
            target = followed.get(decoded(_OfWorker, document).worker)
            if target is not None:
                trouble = self._page.unreadable("a sample", error)
                send(lost(target, trouble.reason, str(trouble), self._clock(), self._clock()))

    def _send(self, sample: Sample, shift_s: float, send: Send) -> None:
        """Sends a sample, its times by this machine's clock."""
        if sample.time_unix_s <= self._sent.get(sample.worker, -math.inf):
            sample = replace(sample, traced_s=0.0)  # sent before the outage: do not count its cost twice
        self._sent[sample.worker] = sample.time_unix_s
        shifted = sample.time_unix_s + shift_s
        now_unix_s, now_s = self._clock(), self._monotonic_s()
        # One from the future would never become stale; one from before 1970 is no time at all.
        shifted = max(min(shifted, now_unix_s), 0.0)
        self._expect(sample, now_unix_s - shifted)
        send(
            replace(
                sample,
                time_unix_s=shifted,
                taken_monotonic_s=now_s - (now_unix_s - shifted),
                process=self._process(sample, shift_s),
                findings=None if sample.findings is None else tuple(dated(sample.findings, shift_s)),
            )
        )

    def _process(self, sample: Sample, shift_s: float) -> Process | None:
        """The process of a sample, its start by this machine's clock; it stays, or it would seem another process."""
        process = sample.process
        if process is None or process.started_unix_s is None:
            return process
        known = self._processes.get(sample.worker)
        if known is None or known[0] != process:
            known = process, replace(process, started_unix_s=max(process.started_unix_s + shift_s, 0.0))
            self._processes[sample.worker] = known
        return known[1]

    def _expect(self, sample: Sample, age_s: float) -> None:
        """Notes when the next sample should be there: of one worker at a known time, of several spread over that."""
        interval_s, workers = sample.interval_s or 0.0, len(self._sent)
        alone_s = 1.05 * interval_s + sample.took_s + _SLACK_S - age_s  # intervals vary a little
        next_s = min(max(alone_s, 0.0) if workers == 1 else interval_s / workers, _LONGEST_S)
        self._next_s = next_s if self._quiet or workers == 1 else min(self._next_s, next_s)
        self._quiet = 0

    def _failed(self, trouble: ExchangeError, began_unix_s: float, send: Send) -> None:
        self._failures += 1
        self._away_unix_s = began_unix_s if self._failures == 1 else self._away_unix_s
        message = str(trouble)
        targets = self._workers.targets if self._workers is not None else ()
        if message == self._reported or (targets and self._failures < _PATIENCE):
            return
        self._reported = message
        self.ask_for_everything()
        if not targets:
            self._workers = Workers(waiting=message)
            send(self._workers)
        since_unix_s = self._away_unix_s if self._gone is None else began_unix_s
        for target in targets:
            send(lost(target, trouble.reason, message, since_unix_s, self._clock()))
        if targets and self._gone is None:
            self._gone = _gone(self.name, self._away_unix_s, len(targets))
            send(self._gone)


def _gone(exporter: str, time_unix_s: float, workers: int) -> Change:
    """The change that an exporter does not answer."""
    return Change(
        number=0,
        time_unix_s=time_unix_s,
        worker=f"exporter {exporter.removeprefix('http://')}",
        what="exporter",
        state="stale",
        severity="unknown",
        before="ok",
        words=f"its {workers} workers are not seen" if workers > 1 else "its worker is not seen",
    )


def _back(gone: Change, time_unix_s: float) -> Change:
    """The change that it answers again. What its workers did meanwhile is not known."""
    words = f"it was away for {max(time_unix_s - gone.time_unix_s, 0.0):.0f} s"
    return replace(gone, time_unix_s=time_unix_s, state="live", severity="ok", before="stale", words=words)


def lost(target: Target, reason: Reason, message: str, began_unix_s: float, now_unix_s: float) -> Sample:
    """A sample that says that a worker's exporter does not answer."""
    return Sample(
        worker=target.worker,
        address=target.address,
        job=target.job,
        slice=target.slice,
        time_unix_s=began_unix_s,
        window_s=None,
        took_s=max(0.0, now_unix_s - began_unix_s),
        interval_s=_SHORTEST_S,
        errors=(Failure(source=EXPORTER, reason=reason, message=message),),
    )


class _OfWorker(Struct):
    worker: str


class SamplesPage(ExporterClient):
    """An exporter's `/samples` page.

    Attributes:
        last_bytes: size of the last answer.
    """

    last_bytes = 0

    async def fetch(self, after: int | None, changed: int | None = None, history_bytes: int | None = None) -> Page:
        """Fetches the page, or what is new there.

        Args:
            after: sequence of the last sample that is known; None: none is, so history is wanted, too.
            changed: number of the last change that is known.
            history_bytes: how much history; None: all.

        Raises:
            ExchangeError: no answer in time, or not one of an exporter.
        """
        query = f"history={history_bytes or 1}" if after is None else f"after={after}&changed={changed or 0}"
        patience = 2 if after is None else 1  # a week of thousands of workers takes seconds to write
        return await self.ask(f"/samples?{query}", self._checked, patience=patience)

    def _checked(self, status: int, body: bytes) -> Page:
        self.last_bytes = len(body)
        self.refused(status)
        head = decoded(PageHead, body if status == HTTPStatus.OK else b"")
        whose = f"it runs tpumon {head.tpumon}, whose samples"
        if head.schema != SCHEMA_VERSION:
            raise self.unreadable(whose, f"schema {head.schema}")
        try:
            return decoded(Page, body)
        except ValueError as error:
            raise self.unreadable(whose, error) from None

    def unreadable(self, what: str, why: object) -> ExchangeError:
        """The trouble that a document has another shape."""
        return self.trouble("malformed", f"{what} this version cannot read ({why}); update the older of the two")

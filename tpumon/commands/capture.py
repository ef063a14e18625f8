"""Level 0: one profile of every worker at the same moment, saved where TensorBoard and XProf look."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tpumon.background import Background
from tpumon.commands.console import say
from tpumon.commands.progress import Bar
from tpumon.errors import NoTargetError, SourceError, TpumonError
from tpumon.logdir import TRACE_SUFFIX, LogDir, open_logdir, trace_file_name
from tpumon.model import SIMULATED_MARK, Target
from tpumon.sampler import pause_after_failures
from tpumon.sources import FINAL_REASONS, Client
from tpumon.sources.profile import Approach, TraceRequest, approach, await_file, take_trace, unique_session_id
from tpumon.targets.addresses import name_targets
from tpumon.targets.local import LINE_FOR_A_JOB, find_local
from tpumon.xspace.outline import Outline, outline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpumon.simulator.settings import SimulatorSettings

_SAFE_HOST_LEVEL = 2
_LEAD_S = 0.5  # several workers start together, this far ahead, so that every request is there in time


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """Attributes:
    addresses: workers to profile; none: this host's.
    simulate: a simulated TPU to profile instead.
    logdir: directory or bucket URL.
    window_s: what is traced.
    attempts: tries of each worker.
    host_level: host tracer level 0-3; None: as high as is safe.
    use_proxy: obey http_proxy.
    """

    logdir: str
    addresses: Sequence[str] = ()
    simulate: SimulatorSettings | None = None
    window_s: float = 1.0
    attempts: int = 3
    host_level: int | None = None
    use_proxy: bool = False


@dataclass(frozen=True, slots=True)
class _Say:
    """A line for stderr."""

    text: str


@dataclass(frozen=True, slots=True)
class _Tracing:
    """Workers are tracing from now on, for about so long."""

    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """A worker's profile, verified."""

    path: str
    size_bytes: int
    outline: Outline
    attempt: int


@dataclass(slots=True)
class _Worker:
    """What has come of one worker so far."""

    target: Target
    client: Client
    approach: Approach | None = None
    failure: TpumonError | None = None
    saved: _Saved | None = None
    told: set[str] = field(default_factory=set)

    @property
    def pending(self) -> bool:
        """Whether another try may bring its profile."""
        if self.saved is not None:
            return False
        return self.failure is None or (
            isinstance(self.failure, SourceError) and self.failure.reason not in FINAL_REASONS
        )


@dataclass(frozen=True, slots=True)
class _Done:
    """The run is over."""

    workers: Sequence[_Worker]


_Event = _Say | _Tracing | _Done


def run(settings: CaptureSettings) -> int:
    """Takes the profiles; returns 1 where any worker has none.

    Raises:
        UsageError: the log directory needs what is not installed.
        TpumonError: the log directory cannot be written.
        NoTargetError: no worker was named, and this host has none.
    """
    logdir = open_logdir(settings.logdir)
    logdir.prepare()
    workers: Sequence[_Worker] = ()
    with Bar(sys.stderr) as bar, Background[_Event](partial(_capture, settings, logdir)) as background:
        for event in background.events(timeout_s=bar.refresh_s):
            match event:
                case None:
                    bar.refresh()
                case _Say():
                    say(event.text)
                case _Tracing():
                    bar.start(event.duration_s)
                case _Done():
                    workers = event.workers
    return _report(settings, workers)


async def _capture(settings: CaptureSettings, logdir: LogDir, send: Callable[[_Event], None]) -> None:
    async with AsyncExitStack() as stack:
        if settings.simulate is not None:
            from tpumon.simulator.server import SimulatedFleet

            targets = (await stack.enter_async_context(SimulatedFleet(settings.simulate))).targets
        else:
            targets = name_targets(settings.addresses or await find_local())
        if not targets:
            message = (
                f"no profiler server on this host's usual ports; add `{LINE_FOR_A_JOB}` to the job, "
                "or give --service-addr HOST:PORT"
            )
            raise NoTargetError(message)
        workers = [
            _Worker(target, await stack.enter_async_context(Client(target.address, use_proxy=settings.use_proxy)))
            for target in targets
        ]
        session = _Session(settings, logdir, send)
        for attempt in range(1, settings.attempts + 1):
            await session.attempt([worker for worker in workers if worker.pending], attempt)
            if not any(worker.pending for worker in workers):
                break
            if attempt < settings.attempts:
                await asyncio.sleep(pause_after_failures(attempt))
        send(_Done(workers))


class _Session:
    """One session directory, and the tries that fill it."""

    def __init__(self, settings: CaptureSettings, logdir: LogDir, send: Callable[[_Event], None]) -> None:
        self._settings = settings
        self._logdir = logdir
        self._send = send
        self._name = logdir.new_session()

    async def attempt(self, workers: Sequence[_Worker], number: int) -> None:
        """One try of these workers, together."""
        for worker in workers:
            worker.failure = None
        await asyncio.gather(*(self._approach(worker) for worker in workers if worker.approach is None))
        ready = [worker for worker in workers if worker.approach is not None and worker.failure is None]
        remaining = self._settings.attempts - number
        if ready:
            window_ms = round(self._settings.window_s * 1000)
            self._say(f"Starting to trace for {window_ms} ms. Remaining attempt(s): {remaining}")
            start_in_s = _LEAD_S if len(ready) > 1 else 0.0
            start_unix_ns = time.time_ns() + round(start_in_s * 1e9) if start_in_s else 0
            self._send(_Tracing(start_in_s + self._settings.window_s))
            await asyncio.gather(*(self._trace(worker, number, start_unix_ns, start_in_s) for worker in ready))
        self._explain(workers, number, remaining)

    async def _approach(self, worker: _Worker) -> None:
        try:
            worker.approach = await approach(worker.client, host_events=self._settings.host_level is None)
        except SourceError as error:
            worker.failure = error

    async def _trace(self, worker: _Worker, attempt: int, start_unix_ns: int, start_in_s: float) -> None:
        assert worker.approach is not None
        host_level = self._host_level(worker)
        file_name = trace_file_name(worker.target.address)
        # An old server writes the file itself and takes the session's id for the directory; a new one keeps the id
        # to itself, so it can be one that nobody else's Terminate has ever named.
        writes_itself = not worker.approach.returns_traces
        request = TraceRequest(
            window_s=self._settings.window_s,
            host_level=host_level,
            hlo=True,
            session_id=self._name if writes_itself else unique_session_id("capture"),
            start_unix_ns=start_unix_ns,
            start_in_s=start_in_s,
            repository_root=self._logdir.root,
            host_name=file_name.removesuffix(TRACE_SUFFIX),
        )
        try:
            xspace = await take_trace(worker.client, request)
            if xspace is None and writes_itself:
                xspace = await await_file(self._logdir, self._name, file_name, worker.target.address)
            facts = await self._check(worker, xspace or b"")
            if not facts.event_count:
                if writes_itself:
                    await asyncio.to_thread(self._logdir.discard, self._name, file_name)
                raise self._empty(worker, host_level)
            path = f"{self._logdir.root}/{self._name}/{file_name}"
            if not writes_itself:
                path = await asyncio.to_thread(self._logdir.save, self._name, file_name, xspace or b"")
        except TpumonError as error:
            worker.failure = error
            return
        worker.saved = _Saved(path=path, size_bytes=len(xspace or b""), outline=facts, attempt=attempt)

    async def _check(self, worker: _Worker, xspace: bytes) -> Outline:
        """What the trace holds, proving that it is one."""
        try:
            return await asyncio.to_thread(outline, xspace)
        except SourceError as error:
            raise SourceError(error.reason, f"{worker.target.address}: {error}") from error

    def _host_level(self, worker: _Worker) -> int:
        if self._settings.host_level is not None:
            return self._settings.host_level
        if worker.approach is not None and worker.approach.host_events_safe:
            return _SAFE_HOST_LEVEL
        if "host" not in worker.told:
            worker.told.add("host")
            self._say(
                f"{worker.target.address}: host events are left out: this server is of an age in which host tracing "
                "can hang the job for good (jaxlib 0.6.2 to 0.8.2 without TensorFlow do); "
                f"--host-tracer-level {_SAFE_HOST_LEVEL} takes them all the same"
            )
        return 0

    def _empty(self, worker: _Worker, host_level: int) -> SourceError:
        message = f"{worker.target.address}: no trace event was collected"
        if host_level == 0 and self._settings.host_level is None:
            message += "; host events were left out (see above), and nothing else happened, or is there to be traced"
        # Trying again cannot help where nothing but host events could be traced.
        no_device = host_level == 0 and worker.approach is not None and worker.approach.device_planes is False
        return SourceError("refused" if no_device else "empty-trace", message)

    def _explain(self, workers: Sequence[_Worker], number: int, remaining: int) -> None:
        empty = [w for w in workers if isinstance(w.failure, SourceError) and w.failure.reason == "empty-trace"]
        if empty and remaining:
            self._say("No trace event is collected. Automatically retrying.")
        elif empty:
            self._say(
                f"No trace event is collected after {number} attempt(s). Perhaps, you want to try again (with more "
                "attempts?). Tip: increase number of attempts with --num_tracing_attempts."
            )
        for worker in workers:
            if worker.pending and remaining and worker not in empty and worker.failure is not None:
                self._say(f"{worker.failure}; trying again")

    def _say(self, text: str) -> None:
        self._send(_Say(text))


def _report(settings: CaptureSettings, workers: Sequence[_Worker]) -> int:
    """Says which workers failed (stderr), where the profile is and how to open it (stdout)."""
    done = [(worker, worker.saved) for worker in workers if worker.saved is not None]
    for worker, saved in done:
        for warning in saved.outline.warnings:
            say(f"{worker.target.address}: the profiler warns: {warning}")
    for worker in workers:
        if worker.saved is None:
            reason = worker.failure.reason if isinstance(worker.failure, SourceError) else "failed"
            say(f"no profile of {worker.target.worker}: {worker.failure} [{reason}]")
    if not done:
        return 1
    window_ms = round(settings.window_s * 1000)
    directory = done[0][1].path.rpartition("/")[0]
    print(f"Profile of {len(done)} of {len(workers)} worker(s), {window_ms} ms, in {directory}")
    first_attempt = min(saved.attempt for _, saved in done)
    for _, saved in done:
        remarks = [f"{saved.size_bytes / 1e6:.2f} MB", f"{saved.outline.event_count} events"]
        if saved.outline.simulated:
            remarks.append(SIMULATED_MARK)
        if saved.attempt != first_attempt:
            remarks.append("taken later than the others")
        print(f"  {saved.path.rpartition('/')[2]}  {', '.join(remarks)}")
    print(f"Open it with: xprof --logdir {settings.logdir}", flush=True)
    return 0 if len(done) == len(workers) else 1

"""Level 0: one profile of every worker at the same moment, saved where TensorBoard and XProf look."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from tpumon.collection.sampler import pause_after_failures
from tpumon.collection.sampler.host_traces import actual_failure, note_answered, signs_and_hang_at
from tpumon.collection.sources import Client
from tpumon.collection.sources.traces.profile_rpc import HostEvents, Profiler, TraceRequest
from tpumon.discovery.selection import Selection, find_now
from tpumon.errors import MEANING, Reason, SourceError, TpumonError
from tpumon.model import SIMULATED_MARK, Target
from tpumon.outputs.drawing.progress_bar import Bar
from tpumon.system.background import Background
from tpumon.system.console import show
from tpumon.system.host_files import since_boot_s
from tpumon.system.limits import memory_limit_bytes
from tpumon.system.logdir import LogDir, open_logdir, trace_file_name
from tpumon.system.pausing import current_pause
from tpumon.untrusted_text import LONGEST_PATH, one_line, unexpected
from tpumon.xspace.outline import Outline, outline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_log = logging.getLogger(__name__)

_SAFE_HOST_LEVEL = 2
_PROFILE_BYTES = 200 << 20  # of one worker: as received, as read, as saved
_MEMORY_SHARE = 0.6
_GPU_WARNING = (
    "the job can use a GPU: a profile of it loads CUPTI into the job, which has crashed jobs "
    "(github.com/jax-ml/jax/issues/40260)"
)
_LEAD_S = 0.5  # several workers start together, this far ahead, so that every request is there in time


class CaptureSettings(Struct, frozen=True, kw_only=True):
    """Workers to profile, and the place to save to.

    Attributes:
        logdir: directory or bucket URL.
        selection: the workers.
        window_s: length of the profile.
        attempts: attempts per worker.
        host_level: host tracer level 0-3; None: as high as is safe.
        use_proxy: connect through http_proxy.
        max_trace_mb: the largest profile to accept from a worker.
        all_devices: whether it holds all devices that the job uses, or no GPUs.
    """

    logdir: str
    selection: Selection = field(default_factory=Selection)
    window_s: float = 1.0
    attempts: int = 3
    host_level: int | None = None
    use_proxy: bool = False
    max_trace_mb: int = 1000
    all_devices: bool = True


class _Saved(Struct, frozen=True, kw_only=True):
    """A worker's profile, verified."""

    path: str
    size_bytes: int
    outline: Outline
    attempt: int


@dataclass(slots=True)
class ProfiledWorker:
    """A worker and its profile, once that is taken."""

    target: Target
    profiler: Profiler
    returns_traces: bool = False
    warned: bool = False
    has_failed_for_good: bool = False
    failure: TpumonError | None = None
    saved: _Saved | None = None

    @property
    def pending(self) -> bool:
        """True if another attempt may succeed."""
        if self.saved is not None or self.has_failed_for_good:
            return False
        if self.failure is None:
            return True
        return isinstance(self.failure, SourceError) and not MEANING[self.failure.reason].final


def _reason(failure: TpumonError | None) -> Reason | None:
    return failure.reason if isinstance(failure, SourceError) else None


def run(settings: CaptureSettings) -> int:
    """Takes the profiles and reports on them.

    Returns:
        0; 1 if any worker has no profile.

    Raises:
        UsageError: the log directory needs a package that is not installed.
        TpumonError: the log directory cannot be written.
        NoTargetError: no worker was named, and this host has none.
    """
    return _report(settings, take(settings))


def take(settings: CaptureSettings) -> Sequence[ProfiledWorker]:
    """Takes the profiles. Raises as `run` does; says on stderr which workers have none."""
    logdir = open_logdir(settings.logdir)
    logdir.prepare()
    if pause := current_pause():
        _log.info("sampling on this host is %s; taking this profile anyway, as you asked for it", pause)
    workers: list[ProfiledWorker] = []

    async def capture(send: Callable[[float], None]) -> None:
        workers.extend(await _capture(settings, logdir, send))

    with Bar(sys.stderr) as bar, Background[float](capture) as background:
        for duration_s in background.events(timeout_s=bar.refresh_s):
            if duration_s is None:
                bar.refresh()
            else:
                bar.start(duration_s)
    _report_failures(workers)
    return workers


async def _capture(
    settings: CaptureSettings, logdir: LogDir, send: Callable[[float], None]
) -> Sequence[ProfiledWorker]:
    """Takes the profiles; sends for about how long workers trace from now on."""
    async with AsyncExitStack() as stack:
        stack.callback(logdir.close)
        targets = await find_now(settings.selection, stack)
        host_events = HostEvents(level=settings.host_level, safe_level=_SAFE_HOST_LEVEL, beside_devices=True)
        workers = []
        for target in targets:
            client = Client(target.address, use_proxy=settings.use_proxy, max_bytes=1_000_000 * settings.max_trace_mb)
            await stack.enter_async_context(client)
            workers.append(ProfiledWorker(target, Profiler(client, host_events, signs_at=signs_and_hang_at)))
        session = stack.enter_context(closing(_CaptureSession(settings, logdir, send)))
        for attempt in range(1, settings.attempts + 1):
            await session.attempt([worker for worker in workers if worker.pending], attempt)
            if not any(worker.pending for worker in workers):
                break
            if attempt < settings.attempts:
                await asyncio.sleep(pause_after_failures(attempt))
        return workers


class _CaptureSession:
    """One session directory, and the attempts to fill it."""

    def __init__(self, settings: CaptureSettings, logdir: LogDir, send: Callable[[float], None]) -> None:
        self._settings = settings
        self._logdir = logdir
        self._send = send
        self._name = logdir.new_session()

    def close(self) -> None:
        """Removes the directory if it is empty."""
        self._logdir.discard(self._name)

    async def attempt(self, workers: Sequence[ProfiledWorker], number: int) -> None:
        """Profiles these workers once, together."""
        overdue = {worker.target.address for worker in workers if _reason(worker.failure) == "deadline"}
        for worker in workers:
            worker.failure = None
        await asyncio.gather(*(self._approach(worker) for worker in workers))
        ready = [worker for worker in workers if worker.failure is None]
        remaining = self._settings.attempts - number
        if ready:
            window_ms = round(self._settings.window_s * 1000)
            _log.info("Starting to trace for %s ms. Remaining attempt(s): %s", window_ms, remaining)
            at_once = max(int(_MEMORY_SHARE * memory_limit_bytes()) // _PROFILE_BYTES, 1)
            if len(ready) > at_once:
                _log.info("There is memory for %s profiles at a time: the others are taken after them.", at_once)
            for first in range(0, len(ready), at_once):
                await self._trace_together(ready[first : first + at_once], number, overdue)
        self._report_attempt(workers, number, remaining)

    async def _trace_together(self, workers: Sequence[ProfiledWorker], attempt: int, overdue: set[str]) -> None:
        """Profiles as many workers at the same moment as there is memory for."""
        start_in_s = _LEAD_S if len(workers) > 1 else 0.0
        together = TraceRequest(
            window_s=self._settings.window_s,
            hlo=True,
            all_devices=self._settings.all_devices,
            start_unix_ns=time.time_ns() + round(start_in_s * 1e9) if start_in_s else 0,
            start_in_s=start_in_s,
        )
        # A worker whose clock is behind waits longer for the common start. After a deadline, it starts at once.
        at_once = replace(together, start_unix_ns=0, start_in_s=0.0)
        self._send(start_in_s + self._settings.window_s)
        await asyncio.gather(
            *(self._trace(w, attempt, at_once if w.target.address in overdue else together) for w in workers)
        )

    async def _approach(self, worker: ProfiledWorker) -> None:
        try:
            worker.returns_traces = await worker.profiler.approach()
        except Exception as error:  # noqa: BLE001 - it concerns this worker alone
            await _fail(worker, error)
            return
        if worker.warned:
            return
        worker.warned = True
        if worker.profiler.leaves_out_host_events:
            _log.warning("%s: %s", worker.target.address, worker.profiler.what_is_left_out)
        if self._settings.all_devices and worker.profiler.known.signs.may_use_gpu:
            _log.warning("%s: %s", worker.target.address, _GPU_WARNING)

    async def _trace(self, worker: ProfiledWorker, attempt: int, capture: TraceRequest) -> None:
        file_name, begun_s = trace_file_name(worker.target.address), since_boot_s()
        try:
            if worker.returns_traces:
                xspace = await worker.profiler.take(capture)
            else:
                xspace = await worker.profiler.take_written(capture, self._logdir, self._name)
            facts = await self._check(worker, xspace)
            path = f"{self._logdir.root}/{self._name}/{file_name}"
            if worker.returns_traces:
                path = await asyncio.to_thread(self._logdir.save, self._name, file_name, xspace)
        except Exception as error:  # noqa: BLE001 - it concerns this worker alone
            await _fail(worker, error, begun_s if worker.profiler.known.may_hang else 0.0)
            return
        await asyncio.to_thread(note_answered, worker.target.address, worker.profiler.known.signs.pid)
        worker.saved = _Saved(path=path, size_bytes=len(xspace), outline=facts, attempt=attempt)

    async def _check(self, worker: ProfiledWorker, xspace: memoryview) -> Outline:
        """Reads what the trace holds. Raises SourceError if it is no trace, or empty."""
        try:
            facts = await asyncio.to_thread(outline, xspace)
        except SourceError as error:
            raise SourceError(error.reason, error.message, address=worker.target.address) from error
        if facts.event_count:
            return facts
        if not worker.returns_traces:
            await asyncio.to_thread(self._logdir.discard, self._name, trace_file_name(worker.target.address))
        message = "no trace event was collected"
        if worker.profiler.leaves_out_host_events:
            message += "; the host was not traced (see above), and there was nothing else to trace"
            # With nothing but the host to trace, another attempt cannot help.
            worker.has_failed_for_good = worker.profiler.known.device_planes is False
        raise SourceError("empty-trace", message, address=worker.target.address)

    def _report_attempt(self, workers: Sequence[ProfiledWorker], number: int, remaining: int) -> None:
        empty = [
            worker for worker in workers if _reason(worker.failure) == "empty-trace" and not worker.has_failed_for_good
        ]
        if empty and remaining:
            _log.info("No trace event is collected. Automatically retrying.")
        elif empty:
            _log.info(
                "No trace event is collected after %s attempt(s). Perhaps, you want to try again "
                "(with more attempts?). Tip: increase number of attempts with --num_tracing_attempts.",
                number,
            )
        for worker in workers:
            if worker.pending and remaining and worker not in empty and worker.failure is not None:
                _log.info("%s; trying again", worker.failure)


async def _fail(worker: ProfiledWorker, error: Exception, begun_s: float = 0.0) -> None:
    """Notes why a worker has no profile; an unexpected error is a bug, or a fault of the disk or bucket.

    Args:
        worker: the worker.
        error: of its call.
        begun_s: as of `actual_failure`.
    """
    if isinstance(error, SourceError):
        worker.failure = failure = await asyncio.to_thread(actual_failure, error, worker.target.address, begun_s)
        worker.has_failed_for_good = worker.has_failed_for_good or failure.detail == "host-trace"
    elif isinstance(error, TpumonError):
        worker.failure = error
    else:
        worker.failure = SourceError("internal", f"a bug in tpumon: {unexpected(error)}", address=worker.target.address)


def _report_failures(workers: Sequence[ProfiledWorker]) -> None:
    """Says what profilers warned of, and which workers have no profile."""
    for worker in workers:
        for warning in worker.saved.outline.warnings if worker.saved is not None else ():
            _log.warning("%s: the profiler warns: %s", worker.target.address, warning)
    for worker in workers:
        if worker.saved is None:
            _log.warning(
                "no profile of %s: %s [%s]", worker.target.worker, worker.failure, _reason(worker.failure) or "failed"
            )


def _report(settings: CaptureSettings, workers: Sequence[ProfiledWorker]) -> int:
    done = [(worker, worker.saved) for worker in workers if worker.saved is not None]
    if not done:
        return 1
    window_ms = round(settings.window_s * 1000)
    directory = one_line(done[0][1].path.rpartition("/")[0], limit=LONGEST_PATH)
    show(f"Profile of {len(done)} of {len(workers)} worker(s), {window_ms} ms, in {directory}")
    first_attempt = min(saved.attempt for _, saved in done)
    for _, saved in done:
        remarks = [f"{saved.size_bytes / 1e6:.2f} MB", f"{saved.outline.event_count} events"]
        if saved.outline.simulated:
            remarks.append(SIMULATED_MARK)
        if saved.attempt != first_attempt:
            remarks.append("taken later than the others")
        show(f"  {saved.path.rpartition('/')[2]}  {', '.join(remarks)}")
    show(f"Open it with: xprof --logdir {one_line(settings.logdir, limit=LONGEST_PATH)}")
    return 0 if len(done) == len(workers) else 1

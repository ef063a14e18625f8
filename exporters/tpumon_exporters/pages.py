"""The exporter's pages: metrics, samples as JSON, health probes, and an overview for people."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import deque
from collections.abc import Sequence
from html import escape
from http import HTTPStatus
from urllib.parse import quote

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from tpumon import __version__
from tpumon.analysis import MOST_HISTORY_BYTES, FleetStatus, Update
from tpumon.analysis.exporter_snapshot import page_of
from tpumon.model import SCHEMA_VERSION, ListedTarget, Sample
from tpumon.model.documents import encoded, encoded_part
from tpumon.model.page import Page
from tpumon.outputs import Context
from tpumon.untrusted_text import one_line
from tpumon_exporters import binary
from tpumon_exporters.exposition import Exposition
from tpumon_exporters.web import Request, Response

_REMEMBERED = 4096
_REMEMBERED_S = 60.0
_ANSWERED = 1024
"""Samples kept for readers, for how many seconds, and the most in one answer. Readers ask every second; none are kept
while nobody has asked for so long."""

_STALLED_S = 15.0
"""Longest time without a heartbeat, which comes every second; beyond it, sampling is stuck."""

_OPENMETRICS = "application/openmetrics-text"
_VERSIONS = {None, "0.0.4", "1.0.0"}


class Pages:
    """Renders every page from the status of the fleet, and keeps recent samples for readers. Many threads ask.

    No page waits for a sample.

    Args:
        context: the run.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._analysis = context.analysis
        self._clock = context.clock
        self._exposition = Exposition("prometheus", context.settings.expose)
        self._own = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self._own)
        self._lock = threading.Lock()
        self._recent: deque[tuple[int, float, Sample]] = deque(maxlen=_REMEMBERED)
        self._lasts: dict[str, Sample] = {}
        self._asked_s = -math.inf  # by a clock that nobody sets
        self._sequence = 0
        self._run = context.settings.run_id
        self._via: Sequence[str] = ()
        self._ready = False

    def on_update(self, update: Update) -> None:
        """Keeps a sample for readers."""
        with self._lock:
            if update.workers is not None:
                self._via = update.workers.via
                followed = {target.worker for target in update.workers.targets}
                self._lasts = {worker: last for worker, last in self._lasts.items() if worker in followed}
                self._ready = self._ready or update.workers.waiting is not None
            sample = update.sample
            if sample is None or update.status is None:
                return
            self._ready = True
            self._sequence += 1
            self._lasts[sample.worker] = sample
            now_unix_s = self._clock()
            if time.monotonic() - self._asked_s > _REMEMBERED_S:
                self._recent.clear()
                return
            while self._recent and not 0 <= now_unix_s - self._recent[0][1] <= _REMEMBERED_S:
                self._recent.popleft()
            # Only what the JSON contains is worth the memory; of operations, those of each worker's last sample.
            kept = replace(sample.with_ops(0), server_text=None)
            kept = replace(kept, figures=replace(kept.figures, step_durations_s=()))
            self._recent.append((self._sequence, now_unix_s, kept))

    def answer(self, request: Request) -> Response:
        """Returns the page at the request's path."""
        match request.path:
            case "/metrics":
                return self._metrics(request)
            case "/probe":
                return self._probe(request)
            case "/samples":
                return self._samples(request)
            case "/-/healthy":
                return self._health()
            case "/-/ready":
                return self._readiness()
            case "/":
                return self._landing()
        return _refused(HTTPStatus.NOT_FOUND, "no such page; see / for a list")

    def _metrics(self, request: Request) -> Response:
        return self._exposed(request, None, self._own)

    def _probe(self, request: Request) -> Response:
        wanted = request.query.get("target", [""])[0]
        if not wanted:
            return _refused(HTTPStatus.BAD_REQUEST, "no worker named; add ?target=WORKER")
        return self._exposed(request, wanted, CollectorRegistry())

    def _exposed(self, request: Request, wanted: str | None, own: CollectorRegistry) -> Response:
        """The metrics page; of texts, prometheus_client chooses one and adds the metrics of this process."""
        names = frozenset(request.query.get("name[]", ())) or None
        status = self._analysis.status(self._clock())
        workers = None
        if wanted is not None:
            workers = [worker for worker in status.all() if wanted in {worker.name, worker.target.address}][:1]
            if not workers:
                why = f"worker {wanted!r} is not followed; see / for the workers that are"
                return _refused(HTTPStatus.NOT_FOUND, why)
        process = own if names is None else own.restricted_registry(names)
        if binary.wanted(request.accept):
            body = self._exposition.render_binary(status, workers=workers, names=names) + binary.of_registry(process)
            return Response(body=body, content_type=binary.CONTENT_TYPE)
        encoder, content_type = choose_encoder(_known_formats(request.accept))
        page = self._exposition.render(
            status, workers=workers, openmetrics=content_type.startswith(_OPENMETRICS), names=names
        )
        rest = encoder(process)
        return Response(body=page.encode(errors="replace") + rest, content_type=content_type)

    def _samples(self, request: Request) -> Response:
        """For `tpumon --from`: the samples after a sequence number, or the last one of each worker, with history.

        A reader that was away for too long gets the last sample of each worker again, and the history.
        """
        given = {name: request.query.get(name, [""])[0] for name in ("after", "changed", "history")}
        if any(text and not re.fullmatch(r"[0-9]{1,18}", text) for text in given.values()):
            return _refused(HTTPStatus.BAD_REQUEST, "after and changed must be those of an earlier answer")
        after = int(given["after"]) if given["after"] else None
        with self._lock:
            self._asked_s = time.monotonic()
            sequence = self._sequence
            wants_all = bool(given["history"] or given["changed"])
            missed = after is None or after > sequence or (wants_all and not self._has_all_after(after))
            samples = list(self._lasts.values())
            if not missed:
                newer = [(number, sample) for number, _, sample in self._recent if number > (after or 0)]
                newer = newer[:_ANSWERED] if wants_all else newer[-_ANSWERED:]  # a reader asks for the rest
                samples = [_whole(sample, self._lasts.get(sample.worker)) for _, sample in newer]
                sequence = newer[-1][0] if newer else sequence
        now_unix_s, snapshot = self._clock(), None
        if wants_all:
            asked_bytes = int(given["history"] or 1)
            snapshot = self._analysis.snapshot(
                now_unix_s,
                after=None if missed else int(given["changed"] or 0),
                most_bytes=min(asked_bytes, MOST_HISTORY_BYTES) if asked_bytes > 1 else MOST_HISTORY_BYTES,
            )
        status = self._analysis.status(now_unix_s)
        page = Page(
            schema=SCHEMA_VERSION,
            tpumon=__version__,
            run=self._run,
            via=tuple(self._via),
            now_unix_s=self._clock(),
            sequence=sequence,
            level=self._context.settings.level,
            host=self._context.settings.host,
            waiting=status.waiting,
            targets=tuple(ListedTarget.of(each.target) for each in status.all()),
            samples=tuple(encoded_part(_as_judged_now(sample, status).document()) for sample in samples),
            **({} if snapshot is None else page_of(snapshot)),
        )
        body = f"{encoded(page)}\n"
        return Response(body=body, content_type="application/json")

    def _has_all_after(self, after: int) -> bool:
        """True if every sample after this one is still remembered."""
        new = self._sequence - after
        return 0 <= new <= len(self._recent)

    def _health(self) -> Response:
        age_s = self._context.heartbeat_age_s()
        if age_s <= _STALLED_S:
            return Response(body="tpumon is healthy.\n")
        return _refused(HTTPStatus.SERVICE_UNAVAILABLE, f"sampling has been stuck for {age_s:.0f} s")

    def _readiness(self) -> Response:
        if self._ready:
            return Response(body="tpumon is ready.\n")
        return _refused(HTTPStatus.SERVICE_UNAVAILABLE, "no query has ended yet")

    def _landing(self) -> Response:
        status = self._analysis.status(self._clock())
        rows = [(worker.target, worker.verdict.state) for worker in status.all()]
        table = "".join(
            f"<tr><td>{escape(target.worker)}</td><td>{escape(target.address)}</td><td>{state}</td>"
            f'<td><a href="probe?target={quote(target.worker, safe="", errors="replace")}">metrics</a></td></tr>\n'
            for target, state in rows
        )
        body = _LANDING.format(version=escape(__version__), waiting=escape(status.waiting or ""), table=table)
        return Response(body=body, content_type="text/html; charset=utf-8")


_LANDING = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>tpumon</title></head>
<body>
<h1>tpumon {version}</h1>
<p><a href="metrics">metrics</a> · <a href="samples">samples</a> ·
<a href="-/healthy">healthy</a> · <a href="-/ready">ready</a></p>
<p>{waiting}</p>
<table>
<tr><th>worker</th><th>address</th><th>state</th><th></th></tr>
{table}</table>
</body>
</html>
"""


def _known_formats(accept: str) -> str:
    """The parts of an Accept header that we support: the versions we write, names without escapes."""
    formats = []
    for entry in accept.split(","):
        version = re.search(r"version\s*=\s*([^;\s]*)", entry)
        if (version and version[1]) in _VERSIONS:
            formats.append(re.sub(r"escaping\s*=\s*(dots|values)", "escaping=underscores", entry))
    return ",".join(formats)


def _whole(sample: Sample, last: Sample | None) -> Sample:
    """A remembered sample, with its top operations if it is its worker's last one."""
    return last if last is not None and last.time_unix_s == sample.time_unix_s else sample


def _as_judged_now(sample: Sample, status: FleetStatus) -> Sample:
    """A sample, if it is its worker's last one as it is judged by now: samples of others may explain what it shows."""
    worker = status.workers.get(sample.worker)
    last = None if worker is None else worker.history.last
    if last is None or last.time_unix_s != sample.time_unix_s:
        return sample
    if (last.findings, last.judged) == (sample.findings, sample.judged):
        return sample
    return replace(sample, findings=last.findings, judged=last.judged)


def _refused(status: HTTPStatus, line: str) -> Response:
    return Response(status=status, body=one_line(line) + "\n")

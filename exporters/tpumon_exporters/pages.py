"""The exporter's pages: metrics, samples as JSON, health probes, and an overview for people."""

from __future__ import annotations

import json
import math
import re
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from http import HTTPStatus
from urllib.parse import quote

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from tpumon import __version__
from tpumon.fleet import MOST_HISTORY_BYTES, Fleet, Thresholds
from tpumon.handing_on import page_of
from tpumon.history import WorkerHistory
from tpumon.model import SCHEMA_VERSION, Handover, Sample, Workers
from tpumon.text import one_line
from tpumon_exporters.exposition import Exposition
from tpumon_exporters.web import Request, Response

_REMEMBERED = 4096
_REMEMBERED_S = 60.0
_ANSWERED = 1024
"""Samples kept for readers, for how many seconds, and the most in one answer. Readers ask every second."""

_ASSESS_S = 1.0
"""How often changes are looked for."""

_STALLED_S = 15.0
"""Without a heartbeat for this long, sampling is stuck; it beats every second."""

_OPENMETRICS = "application/openmetrics-text"
_VERSIONS = {None, "0.0.4", "1.0.0"}
_SAID = ("worker", "address", "job", "slice", "independent", "name")
"""What readers learn of a worker beside its samples."""

_ENCODER = json.JSONEncoder(allow_nan=False)


class Pages:
    """Keeps what is known about all workers and renders every page. One thread writes, many read.

    No page waits for a sample.

    Args:
        level: 1 or 2; how much the workers are asked for.
        clock: returns seconds since the epoch.
        say: takes one line about a problem.
        heartbeat_age_s: returns the seconds since the sampling loop last ran.
        thresholds: limits beyond which a worker is marked.
        run: the name by which readers tell this run from others; None: one at random.
    """

    def __init__(
        self,
        level: int,
        clock: Callable[[], float],
        say: Callable[[str], None],
        heartbeat_age_s: Callable[[], float] = lambda: 0.0,
        thresholds: Thresholds | None = None,
        run: str | None = None,
    ) -> None:
        self._level = level
        self._clock = clock
        self._heartbeat_age_s = heartbeat_age_s
        self._exposition = Exposition(say)
        self._own = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self._own)
        self._lock = threading.Lock()
        self._fleet = Fleet(thresholds, remember=True)
        self._histories = self._fleet.histories
        self._assessed_unix_s = -math.inf
        self._recent: deque[tuple[int, float, Sample]] = deque(maxlen=_REMEMBERED)
        self._sequence = 0
        self._run = run or secrets.token_hex(8)
        self._via: Sequence[str] = ()
        self._ready = False

    def follow(self, workers: Workers) -> None:
        """Takes the workers to follow."""
        with self._lock:
            self._fleet.follow(workers)
            self._via = workers.via
            self._ready = self._ready or workers.waiting is not None

    def add(self, sample: Sample) -> None:
        """Adds the sample of one query."""
        with self._lock:
            if self._histories.get(sample.worker) is None:
                return
            self._fleet.add(sample)
            self._ready = True
            self._sequence += 1
            now_unix_s = self._clock()
            while self._recent and not 0 <= now_unix_s - self._recent[0][1] <= _REMEMBERED_S:
                self._recent.popleft()
            # Only what the JSON contains is worth the memory; of operations, those of each worker's last sample.
            kept = replace(sample.with_ops(0), server_text=None)
            kept = replace(kept, figures=replace(kept.figures, step_durations_s=()))
            self._recent.append((self._sequence, now_unix_s, kept))
            if not self._assessed_lately(now_unix_s):
                self._assess(now_unix_s)

    def take_over(self, handover: Handover) -> None:
        """Takes over what another exporter knows, to hand it on."""
        with self._lock:
            self._fleet.take_over(handover)

    def tick(self, now_unix_s: float) -> None:
        """Notes what changed in the meantime, also if no sample came."""
        with self._lock:
            self._assess(now_unix_s)

    def _assessed_lately(self, now_unix_s: float) -> bool:
        return 0 <= now_unix_s - self._assessed_unix_s < _ASSESS_S

    def _assess(self, now_unix_s: float) -> None:
        self._assessed_unix_s = now_unix_s
        self._fleet.assess(now_unix_s)

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
        with self._lock:
            followed = self._histories.all()
        matching = [history for history in followed if wanted in {history.target.worker, history.target.address}]
        if not matching:
            return _refused(HTTPStatus.NOT_FOUND, f"worker {wanted!r} is not followed; see / for the workers that are")
        return self._exposed(request, matching[:1], CollectorRegistry())

    def _exposed(self, request: Request, workers: Sequence[WorkerHistory] | None, own: CollectorRegistry) -> Response:
        """The metrics page; prometheus_client chooses the format and adds the metrics of this process."""
        encoder, content_type = choose_encoder(_known_formats(request.accept))
        names = frozenset(request.query.get("name[]", ())) or None
        with self._lock:  # histories change with every sample
            page = self._exposition.render(
                self._histories,
                self._clock(),
                judged=self._fleet.judged,
                workers=workers,
                openmetrics=content_type.startswith(_OPENMETRICS),
                names=names,
            )
        rest = encoder(own if names is None else own.restricted_registry(names))
        return Response(body=page.encode(errors="replace") + rest, content_type=content_type)

    def _samples(self, request: Request) -> Response:
        """For `tpumon --from`: the samples after a sequence number, or the last one of each worker, with history.

        A reader that was away for too long gets the last ones again, and history.
        """
        given = {name: request.query.get(name, [""])[0] for name in ("after", "changed", "history")}
        if any(text and not re.fullmatch(r"[0-9]{1,18}", text) for text in given.values()):
            return _refused(HTTPStatus.BAD_REQUEST, "after and changed must be those of an earlier answer")
        after = int(given["after"]) if given["after"] else None
        with self._lock:
            sequence = self._sequence
            histories = self._histories.all()
            waiting = self._histories.waiting
            handover = None
            if given["history"] or given["changed"]:
                now_unix_s = self._clock()
                missed = after is None or not self._has_all_after(after)
                self._assess(now_unix_s)
                most_bytes = int(given["history"]) if int(given["history"] or 1) > 1 else MOST_HISTORY_BYTES
                handover = self._fleet.handover(
                    now_unix_s,
                    after=None if missed else int(given["changed"] or 0),
                    most_bytes=min(most_bytes, MOST_HISTORY_BYTES),
                )
                after = None if missed else after
            if after is not None and after <= sequence:
                recent = [sample for number, _, sample in self._recent if number > after][-_ANSWERED:]
                samples = [self._whole(sample) for sample in recent]
            else:
                samples = [history.last for history in histories if history.last is not None]
            samples = [self._fleet.with_findings(sample) for sample in samples]
        header = {
            "schema": SCHEMA_VERSION,
            "tpumon": __version__,
            "run": self._run,
            "via": self._via,
            "now_unix_s": self._clock(),
            "sequence": sequence,
            "level": self._level,
            "waiting": waiting,
            "targets": [{name: getattr(history.target, name) for name in _SAID} for history in histories],
            **({} if handover is None else page_of(handover)),
        }
        body = f'{json.dumps(header)[:-1]}, "samples": [{", ".join(filter(None, map(_encoded, samples)))}]}}\n'
        return Response(body=body, content_type="application/json")

    def _whole(self, sample: Sample) -> Sample:
        """A remembered sample, with its top operations if it is its worker's last one."""
        history = self._histories.get(sample.worker)
        last = None if history is None else history.last
        return last if last is not None and last.time_unix_s == sample.time_unix_s else sample

    def _has_all_after(self, after: int) -> bool:
        """Whether every sample after this one is remembered, and they fit into one answer."""
        new = self._sequence - after
        return 0 <= new <= min(_ANSWERED, len(self._recent))

    def _health(self) -> Response:
        age_s = self._heartbeat_age_s()
        if age_s <= _STALLED_S:
            return Response(body="tpumon is healthy.\n")
        return _refused(HTTPStatus.SERVICE_UNAVAILABLE, f"sampling has been stuck for {age_s:.0f} s")

    def _readiness(self) -> Response:
        if self._ready:
            return Response(body="tpumon is ready.\n")
        return _refused(HTTPStatus.SERVICE_UNAVAILABLE, "no query has ended yet")

    def _landing(self) -> Response:
        now_unix_s = self._clock()
        with self._lock:
            rows = [(history.target, history.state(now_unix_s)) for history in self._histories.all()]
            waiting = self._histories.waiting
        table = "".join(
            f"<tr><td>{escape(target.worker)}</td><td>{escape(target.address)}</td><td>{state}</td>"
            f'<td><a href="probe?target={quote(target.worker, safe="", errors="replace")}">metrics</a></td></tr>\n'
            for target, state in rows
        )
        body = _LANDING.format(version=escape(__version__), waiting=escape(waiting or ""), table=table)
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


def _encoded(sample: Sample) -> str | None:
    try:
        return _ENCODER.encode(sample.to_json())
    except ValueError:  # NaN is a source's bug; readers must not get invalid JSON
        return None


def _refused(status: HTTPStatus, line: str) -> Response:
    return Response(status=status, body=one_line(line) + "\n")

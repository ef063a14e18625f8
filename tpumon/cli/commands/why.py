"""`tpumon why`: what is wrong, who causes it, since when, and what to do; then it ends.

With `--request`: where the time of one request went, from a saved profile.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tpumon.analysis import FleetStatus
from tpumon.analysis.fleet_verdict import FailOn, FleetVerdict, by_reason, verdict_on
from tpumon.analysis.sufficiency import unjudged
from tpumon.cli.commands.analyze import judge_capture, read_host
from tpumon.cli.enough_samples import Needs, collected, moment_of_recording, told_when
from tpumon.collection.event_sources import EventSource, RecordingSource
from tpumon.errors import UsageError
from tpumon.model import Finding
from tpumon.model.documents import encoded
from tpumon.moments import local_time
from tpumon.outputs.drawing.cells import age, evidence_words, last_words
from tpumon.pipeline import FeedSettings
from tpumon.report.formats import share_text, time_text
from tpumon.system.console import show
from tpumon.system.logdir import TRACE_SUFFIX
from tpumon.untrusted_text import LONGEST_ID, listed, plain_word
from tpumon.xspace.files import file_title, opened, trace_files, why_unread
from tpumon.xspace.request_times import RequestTimes, read_request

_RUNS = " and has run since"
_log = logging.getLogger(__name__)
_MOST_NAMED = 5
_NO_IDS = (
    "no batch in the trace says which requests it has; tpu-inference writes that while somebody traces, with host "
    "tracer level 1 or more: tpumon --level 0 --host-tracer-level 1 --logdir DIR"
)
_SEEN = {
    "device": "programs ran on a device",
    "host": "programs ran on the host's own processors",
    "calls": "programs were called; the trace does not show when they ran",
}


def run(
    *,
    feed: FeedSettings,
    needs: Needs,
    output: Literal["text", "json"] = "text",
    fail_on: FailOn = "critical",
    brief: bool = False,
) -> int:
    """Takes the samples that a judgement needs, or reads what there is, and prints one answer.

    Returns:
        0; 1 if it is as bad as `fail_on`; 3 if no worker answered.

    Raises:
        NoTargetError: there is no worker.
        UsageError: there is nothing to read.
    """
    with read_status(feed, needs) as status:
        answer = judged(feed, status)
        if not _is_profile(feed.source):
            answer = told_when(answer, feed, needs, status)
        if output == "json":
            show(answer.to_json(brief=brief))
        else:
            show("\n".join(_lines(answer, feed.source, brief=brief)))
        return answer.exit_status(fail_on)


def judged(feed: FeedSettings, status: FleetStatus) -> FleetVerdict:
    """The answer; of a profile, one sample is enough."""
    sustained = feed.output_settings.thresholds.sustained
    too_few = frozenset[str]() if _is_profile(feed.source) else unjudged(status, sustained)
    return verdict_on(status, too_few, keeps=feed.state_dir is not None, recorded=feed.source.is_over)


@contextmanager
def read_status(feed: FeedSettings, needs: Needs) -> Generator[FleetStatus]:
    """The status of the workers, from the samples that a judgement needs; else as `collected`.

    Raises:
        NoTargetError: there is no worker.
        UsageError: there is nothing to read.
    """
    source = feed.source
    if isinstance(source, RecordingSource) and is_capture(source.where):
        if source.at is not None:
            raise UsageError("--at is for recorded samples; a profile is of one moment")
        samples = [read_host(file).sample for file in trace_files([source.where], "from")]
        yield judge_capture(samples, feed.output_settings.thresholds)
        return
    with collected(feed, needs) as status:
        yield status


def _is_profile(source: EventSource) -> bool:
    return isinstance(source, RecordingSource) and is_capture(source.where)


def is_capture(where: str) -> bool:
    """Tells that a path leads to a saved profile rather than to recorded samples."""
    path = Path(where).expanduser()
    if not path.is_dir():
        return path.name.endswith((TRACE_SUFFIX, f"{TRACE_SUFFIX}.gz", f"{TRACE_SUFFIX}.zst"))  # packed: refused later
    return not any(path.glob("*.jsonl*")) and any(path.rglob(f"*{TRACE_SUFFIX}"))


def _lines(answer: FleetVerdict, source: EventSource, *, brief: bool) -> Iterator[str]:
    """The answer for people: the verdict, each finding with its evidence, what could not be judged."""
    yield f"{answer.title}: {answer.sentence}"
    if (last := answer.last_restart) is not None:
        ago = age(max(answer.time_unix_s - last.time_unix_s, 0.0))
        when = f"{local_time(last.time_unix_s)} ({ago} ago)"
        yield f"The job of {last.workers} was restarted at {when}{_RUNS * last.runs}."
    if not _is_profile(source) and (moment := moment_of_recording(source, answer.time_unix_s)):
        yield moment
    for finding, last_unix_s in zip(answer.findings, answer.last_since_unix_s, strict=True):
        yield ""
        yield from _finding_lines(finding, last_unix_s, answer.time_unix_s)
    if answer.not_judged and not brief:
        yield ""
        yield "Not judged, so its absence says nothing:"
        yield from (f"  {', '.join(each.findings)}: {each.reason}" for each in by_reason(answer.not_judged))


def _finding_lines(finding: Finding, last_unix_s: float | None, now_unix_s: float) -> Iterator[str]:
    since = finding.since_unix_s
    last = "" if since is None else last_words(local_time, since, last_unix_s)
    earlier = " or earlier" if finding.since_or_earlier else ""
    when = "" if since is None else f", since {local_time(since)} ({age(max(now_unix_s - since, 0.0))}){earlier}"
    yield f"{finding.severity} {finding.finding}{when}, confidence {finding.confidence}"
    yield f"  {finding.sentence}"
    yield f"  workers: {listed(finding.workers, len(finding.workers), finding.more_workers)}{last}"
    if finding.evidence:
        yield f"  evidence: {evidence_words(finding.evidence)}"
    yield f"  to do: {finding.remedy}"


class WhyRequestDocument(Struct, frozen=True, kw_only=True):
    """The output of `tpumon why --request ID --output json`; fields as in docs/why.md."""

    schema: Literal[1] = 1
    request: str
    hosts: tuple[RequestTimes, ...]


def run_request(request: str, paths: Sequence[str], output: Literal["text", "json"]) -> int:
    """Prints where the time of a request went, on each host whose batches have it.

    Returns:
        0; 1 if any file could not be read.

    Raises:
        UsageError: a path leads to no trace; no trace has the request.
    """
    files = trace_files(paths)
    requests: list[RequestTimes] = []
    ids: set[str] = set()
    unread = 0
    for file in files:
        # Whatever is wrong with a file concerns this file alone.
        try:
            with opened(file) as trace:
                times, theirs = read_request(trace, request, file_title(file))
        except Exception as error:  # noqa: BLE001 - files come from anywhere, and the others are still to be read
            _log.warning("%s: %s", file, why_unread(error)[1])
            unread += 1
            continue
        ids |= theirs
        requests += [times] if times else []
    if not requests and unread < len(files):
        raise UsageError(_missing(request, ids) if ids else _NO_IDS)
    if requests:
        document = WhyRequestDocument(request=_word(request), hosts=tuple(requests))
        show(encoded(document) if output == "json" else "\n".join(_lines_of_request(document)))
    return 1 if unread else 0


def _missing(request: str, ids: Iterable[str]) -> str:
    """Line that says that a request is missing, and names present ones, the most similar first."""
    nearest = sorted(ids, key=lambda each: (-_same(each, request), each))
    there = listed((f'"{_word(each)}"' for each in nearest), _MOST_NAMED)
    return f'no batch in the trace has request "{_word(request)}"; there are {there}'


def _same(one: str, other: str) -> int:
    """Length of the common prefix of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _word(request: str) -> str:
    return plain_word(request, longest=LONGEST_ID)


def _lines_of_request(document: WhyRequestDocument) -> Iterator[str]:
    """The answer for people."""
    for host in document.hosts:
        where = f'request "{document.request}" on "{plain_word(host.host)}"'
        yield f"{where}: {time_text(host.span_s)}, batches with it: {host.batches}"
        for label, time_s, words in (
            ("device", host.device_s, _SEEN[host.programs]),
            ("compile", host.compile_s, "the host traced or compiled functions"),
            ("host gap", host.host_gap_s, "neither"),
            ("queue", host.queue_s, f"turns of batches without it: {host.other_batches}"),
        ):
            yield f"  {label:8}  {time_text(time_s):>7}  {share_text(time_s, host.span_s):>6}  {words}"
        if host.cut:
            yield "  It is in the first or last batch of the trace: it may have begun before, or gone on after."
        if host.truncated:
            yield f"  The trace is truncated: {host.truncated}"

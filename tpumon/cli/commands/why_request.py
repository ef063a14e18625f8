"""`tpumon why --request`: where the time of one request went, from a saved profile."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from tpumon.errors import UsageError
from tpumon.model.documents import encoded
from tpumon.report.formats import share_text, time_text
from tpumon.system.console import show
from tpumon.untrusted_text import LONGEST_ID, plain_word
from tpumon.xspace.files import file_title, opened, trace_files, why_unread
from tpumon.xspace.request_times import RequestTimes, read_request

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


class WhyRequestDocument(Struct, frozen=True, kw_only=True):
    """The output of `tpumon why --request ID --output json`; fields as in docs/why.md."""

    schema: Literal[1] = 1
    request: str
    hosts: tuple[RequestTimes, ...]


def run(request: str, paths: Sequence[str], output: Literal["text", "json"]) -> int:
    """Prints where the time of a request went, on each host whose batches have it.

    Returns:
        0; 1 if any file could not be read.

    Raises:
        UsageError: a path leads to no trace; no trace has the request.
    """
    files = trace_files(paths)
    found: list[RequestTimes] = []
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
        found += [times] if times else []
    if not found and unread < len(files):
        raise UsageError(_missing(request, ids) if ids else _NO_IDS)
    if found:
        document = WhyRequestDocument(request=_word(request), hosts=tuple(found))
        show(encoded(document) if output == "json" else "\n".join(_lines(document)))
    return 1 if unread else 0


def _missing(request: str, ids: Iterable[str]) -> str:
    """The line that names the requests that are there, the most similar ones first."""
    nearest = sorted(ids, key=lambda each: (-_same(each, request), each))
    more = f" and {len(nearest) - _MOST_NAMED} more" if len(nearest) > _MOST_NAMED else ""
    there = ", ".join(f'"{_word(each)}"' for each in nearest[:_MOST_NAMED])
    return f'no batch in the trace has request "{_word(request)}"; there are {there}{more}'


def _same(one: str, other: str) -> int:
    """With how many of the same characters both begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _word(request: str) -> str:
    return plain_word(request, longest=LONGEST_ID)


def _lines(document: WhyRequestDocument) -> Iterator[str]:
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

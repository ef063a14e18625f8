"""What is decided by the details of failures, whatever their messages say; and changes that carry them on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import pytest

from support.samples import failed_sample, sample
from tpumon.analysis import Analysis
from tpumon.analysis.fleet_verdict import verdict_on
from tpumon.errors import NOT_SEEN, Detail, Reason
from tpumon.model import Target, Workers
from tpumon.model.documents import decoded, encoded
from tpumon.model.state import Change

NOW = 1_769_000_000.0
REASONS: Mapping[Detail, Reason] = {
    "connection-refused": "unavailable",
    "no-route": "unavailable",
    "server-gone": "unavailable",
    "not-seen": "empty-trace",
    "host-trace": "deadline",
    "host-trace-waits": "busy",
    "stopped": "deadline",
}
WORDS = (
    "connection refused; no profiler server is listening there",
    "connection refused; no profiler server is listening there any more: tpumon 7 of ada sampled it until 12:00:00",
    "this host cannot be reached: no route to host",
    f"{NOT_SEEN}: no TPU in its traces",
    "the trace of the host that tpumon began at 12:00:00 has not ended: the job has probably hung",
    "a trace of the host by tpumon (pid 7) has had no answer since 12:00:00: it may have hung the job",
    "its process is stopped by a signal (SIGSTOP): `kill -CONT 7` lets it go on",
    "said otherwise",
)


def decided(reason, detail, words):
    """What follows from two such failures in a row after an answer, and another one after them, but for words."""
    fleet = Analysis()
    fleet.remember()
    fleet.add(Workers(targets=(Target(worker="a", address="a:1", job="j", slice="s"),)))
    for number in range(4):
        at = {"time_unix_s": NOW + 10 * number, "interval_s": 10.0}
        fleet.add(failed_sample("a", reason, words, detail, **at) if number % 3 else sample("a", **at))
    last = fleet.status(NOW + 31)
    fleet.add(failed_sample("a", reason, words, detail, time_unix_s=NOW + 40, interval_s=10.0))
    status = fleet.status(NOW + 41)
    worker = status.workers["a"]
    return (
        (worker.verdict.state, worker.verdict.severity, worker.is_seen, worker.history.last.failure.port_closed),
        [(one.finding, one.remedy) for one in verdict_on(status).findings],
        [(one.what, one.state, one.severity, one.title, one.detail) for one in status.changes],
        last.workers["a"].history.restarted is not None,
    )


def test_every_detail_is_looked_at():
    assert set(REASONS) == set(get_args(Detail))


@pytest.mark.parametrize("detail", [None, *REASONS])
@pytest.mark.parametrize("reason", sorted(set(REASONS.values())))
def test_nothing_is_decided_by_how_a_message_is_worded(reason, detail):
    """States, findings, changes and what to do are the same if it says something else, or what another one says."""
    first, *others = (decided(reason, detail, words) for words in WORDS)
    assert others == [first] * len(others)


def failing(detail):
    """A worker that has failed so from the first."""
    fleet = Analysis()
    fleet.remember()
    fleet.add(Workers(targets=(Target(worker="a", address="a:1"),)))
    fleet.add(failed_sample("a", REASONS[detail], "said otherwise", detail, time_unix_s=NOW, interval_s=10.0))
    return fleet


@pytest.mark.parametrize(
    ("detail", "is_closed", "remedy"),
    [
        ("connection-refused", True, "check that the job runs"),
        ("server-gone", True, "look at the end of the job's log"),
        ("host-trace", False, "restart the job; then leave out --host-tracer-level"),
        ("stopped", False, "let it go on"),
    ],
)
def test_of_a_worker_that_is_down_the_detail_says_what_to_do(detail, is_closed, remedy):
    """And whether its process has ended."""
    status = failing(detail).status(NOW + 1)
    (finding,) = verdict_on(status).findings
    assert finding.remedy.startswith(remedy)
    assert status.workers["a"].history.last.failure.port_closed == is_closed


def test_a_change_says_the_detail_of_the_failure_behind_it():
    """Also to whoever reads it from an exporter, a recording or a state file; once it is stale, there is none."""
    fleet = failing("not-seen")
    (change,) = fleet.status(NOW + 1).changes
    assert (change.detail, change.is_seen, change.title) == ("not-seen", False, "not seen since then or earlier")
    assert decoded(Change, encoded(change)) == change
    fleet.status(NOW + 1000)
    last = fleet.status(NOW + 2000).changes[-1]
    assert (last.detail, last.is_seen, last.title) == (None, True, "stale")

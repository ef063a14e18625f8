"""What a failure carries, and what its reason means."""

from __future__ import annotations

import json

import pytest

from tpumon.errors import MEANING, REASONS, SourceError
from tpumon.model import Failure, Sample


def test_every_reason_has_a_meaning():
    """One row each, with something that a user can do."""
    assert set(MEANING) == set(REASONS)
    assert all(meaning.remedy for meaning in MEANING.values())


@pytest.mark.parametrize("reason", REASONS)
def test_whoever_asks_to_be_left_alone_is_not_pressed(reason):
    """Nor is anyone asked again who cannot answer otherwise; neither costs the job anything."""
    meaning = MEANING[reason]
    assert meaning.retry == (not meaning.final and meaning.state in {"down", "no-activity"})
    if meaning.state not in {"down", "no-activity"}:
        assert not meaning.traced


def test_an_error_says_whose_it_is_once():
    """In its text, and not in its message."""
    error = SourceError("deadline", "no answer", address="10.0.0.2:9999", status="DEADLINE_EXCEEDED")
    assert (str(error), error.message) == ("10.0.0.2:9999: no answer", "no answer")
    assert str(SourceError("malformed", "not a trace")) == "not a trace"


def test_a_failure_carries_its_address_and_its_detail_into_json():
    """And is read from JSON that has neither."""
    failure = Failure(source="trace", reason="busy", message="in use", address="a:1", detail="host-trace-waits")
    assert failure.line == "a:1: in use"
    sample = Sample(worker="w", address="a:1", time_unix_s=1.0, window_s=None, took_s=0.0, errors=(failure,))
    plain = sample.to_json()
    error = {"source": "trace", "reason": "busy", "message": "in use"}
    assert plain["errors"] == [error | {"address": "a:1", "detail": "host-trace-waits"}]
    assert Sample.from_json(json.dumps(plain)).errors == (failure,)
    plain["errors"] = [error]
    (old,) = Sample.from_json(json.dumps(plain)).errors
    assert (old.address, old.detail, old.line) == (None, None, "in use")

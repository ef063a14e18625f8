"""Jobs of twelve kinds that are well: nothing above info is said of them, for hours here and for a month each night."""

from __future__ import annotations

import pytest

from support.fleets.months import JOBS, complaints

_MONTH_H = 30 * 24.0
_JOBS = 64


@pytest.mark.parametrize("kind", JOBS)
def test_nothing_is_said_of_a_healthy_job(kind):
    assert complaints(JOBS[kind](1), 3.0, 1) == []


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(_JOBS))
def test_nothing_is_said_of_a_healthy_job_in_a_month(number):
    kind = list(JOBS)[number % len(JOBS)]
    assert complaints(JOBS[kind](10 * number), _MONTH_H, number) == []

"""Servers that are well: nothing above info is said of them in hours here, in a week each night; servers in trouble."""

from __future__ import annotations

import pytest

from support.fleets.months import said_of
from support.fleets.servers import HEALTHY, IN_TROUBLE

_WEEK_H = 7 * 24.0
_MOST_S = 600.0


@pytest.mark.parametrize("hours", [2.0, pytest.param(_WEEK_H, marks=[pytest.mark.nightly, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("with_metrics", [True, False], ids=["with metrics", "without"])
@pytest.mark.parametrize("load", HEALTHY)
def test_nothing_is_said_of_a_healthy_server(load, with_metrics, hours):
    server = HEALTHY[load]
    assert said_of(load, server.targets, server.samples(hours, 1, with_metrics=with_metrics)) == []


@pytest.mark.parametrize("finding", IN_TROUBLE)
def test_a_server_in_trouble_has_one_finding_which_names_it(finding):
    server = IN_TROUBLE[finding]
    said = said_of(finding, server.targets, server.samples(2.0, 1), above=None)
    new = [one for one in said if one.at_s >= 3600.0]
    assert {one.finding for one in new} == {finding}
    assert min(one.at_s for one in new) < 3600.0 + _MOST_S
    assert {one.finding for one in said if one.at_s < 3600.0} <= {"low-mxu"}

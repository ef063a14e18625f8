"""Which alerts fire on which days, as promtool evaluates the rules; grafana/README.md has the same table."""

from __future__ import annotations

import re

import pytest

from support import REPOSITORY
from support.alert_days import BEGIN, ORDINARY, TROUBLE, Fleet
from support.alerting import firing
from support.dashboards import OWN_RULE_FILES, rules

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

DAY = 24 * 60
LONG = {"0.5 % of the scrapes of 200 hosts fail", "5 % of the scrapes of 64 hosts fail"}
OF_A_DAY = {name for name in ORDINARY if name.startswith("25 jobs")}


def fired(tmp_path, fleet):
    """The minutes at which each alert began to fire, as `NAME SEVERITY`."""
    begun, before = {}, set()
    for minute, alerts in firing(tmp_path, fleet.text(), range(fleet.minutes)).items():
        now = {tuple(sorted(one.items())) for one in alerts}
        for one in sorted(now - before):
            labels = dict(one)
            begun.setdefault(f"{labels['alertname']} {labels['severity']}", []).append(minute)
        before = now
    return begun


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly) if name in LONG | OF_A_DAY else name for name in ORDINARY],
)
def test_an_ordinary_day_is_silent(tmp_path, name):
    fleet = Fleet(DAY if name in OF_A_DAY else 240)
    ORDINARY[name](fleet)
    assert fired(tmp_path, fleet) == {}


@pytest.mark.parametrize("name", TROUBLE)
def test_trouble_is_told_once_and_in_time(tmp_path, name):
    """Each alert at the minute that the table says, or the next one: groups of rules are evaluated in any order."""
    fleet = Fleet(180)
    TROUBLE[name](fleet)
    begun, expected = fired(tmp_path, fleet), table()[name]
    assert begun.keys() == expected.keys()
    for alert, minutes in begun.items():
        assert len(minutes) == 1
        assert abs(minutes[0] - BEGIN - expected[alert]) <= 1, (alert, minutes)


def test_the_table_has_each_day():
    assert list(table()) == list(TROUBLE)
    text = (REPOSITORY / "grafana" / "README.md").read_text()
    assert re.findall(r"^- (.*)$", text.partition("silent:\n\n")[2].partition("\n\n")[0], re.MULTILINE) == list(
        ORDINARY
    )


def table():
    """Minutes from the begin to each alert, by trouble."""
    text = (REPOSITORY / "grafana" / "README.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ((?:Tpu\w+ \w+, \d+ min(?:; )?)+) \|$", text, re.MULTILINE)
    return {
        name: {alert: int(minutes) for alert, minutes in re.findall(r"(Tpu\w+ \w+), (\d+) min", told)}
        for name, told in rows
    }


def test_what_remote_write_must_carry_is_told():
    """All that rules ask for, but for what is only shown in a description."""
    text = (REPOSITORY / "grafana" / "README.md").read_text().partition("**Remote write**")[2].partition("\n\n")[0]
    kept = [re.compile(f"(?:{names})") for names in re.findall(r"`([a-z_|.*]+)`", text)]
    asked = {
        name
        for rule in rules(OWN_RULE_FILES)
        for name in re.findall(r"(?<![\w:])((?:tpu|tpumon)_\w+|up)(?=[{\[ )]|$)", rule["expr"])
    }
    asked -= {"tpu_job", "tpu_slice"}
    assert len(asked) > 15
    assert {name for name in asked if not any(each.fullmatch(name) for each in kept)} == set()

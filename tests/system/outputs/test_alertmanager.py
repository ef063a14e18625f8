"""One incident is one page: the example for Alertmanager, in Alertmanager, with the alerts of the table of days."""

from __future__ import annotations

import pytest

from support import wait_until
from support.alertmanager import alert, running_alertmanager

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

INCIDENTS = {
    "node lost, then the job hangs": ["TpuHang", "TpuWorkersMissing"],
    "process dies, then the job hangs, then the pod goes": ["TpuWorkerDown", "TpuHang", "TpuWorkersMissing"],
    "hang, then the node is lost": ["TpuHang", "TpuWorkerDown", "TpuWorkersMissing"],
}


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory):
    with running_alertmanager(tmp_path_factory.mktemp("alertmanager")) as running:
        yield running


@pytest.mark.parametrize("name", INCIDENTS)
def test_an_incident_is_one_page(alertmanager, name):
    """What comes later updates the page; another job's trouble is another page."""
    job = {"tpu_job": f"ml/{len(name)}"}
    mine = lambda: [sent for key, sent in alertmanager.pages().items() if job["tpu_job"] in key]  # noqa: E731
    for place, each in enumerate(INCIDENTS[name]):
        worker = {"worker": "w3"} if each == "TpuWorkerDown" else {}
        alertmanager.fire(alert(each, **job, **worker))
        if place == 0:
            wait_until(lambda: mine() == [[{INCIDENTS[name][0]}]], 20, lambda: f"a page: {alertmanager.pages()}")
    alertmanager.fire(
        alert("TpuStraggler", "warning", tpu_job="ml/other"), alert("TpuHang", tpu_job=f"other/{len(name)}")
    )
    wait_until(
        lambda: any(f"other/{len(name)}" in key for key in alertmanager.pages()), 20, lambda: "another job's page"
    )
    assert len(mine()) == 1


def test_what_is_explained_is_not_sent(alertmanager):
    """A hang explains that TPUs idle; a ticket silences no page."""
    job = {"tpu_job": "ml/explained"}
    alertmanager.fire(
        alert("TpuHang", **job), alert("TpuIdle", "warning", **job), alert("TpuStraggler", "warning", **job),
        alert("TpuStraggler", "warning", tpu_job="ml/beside"), alert("TpuSlowDown", tpu_job="ml/beside"),
    )  # fmt: skip
    jobs = lambda: [job for key in alertmanager.pages() for job in ("ml/explained", "ml/beside") if job in key]  # noqa: E731
    wait_until(lambda: len(jobs()) == 2, 20, lambda: f"two pages: {alertmanager.pages()}")
    tickets = [each for each in alertmanager.notifications if each["receiver"] == "tickets"]
    told = {(one["labels"]["alertname"], one["labels"]["tpu_job"]) for each in tickets for one in each["alerts"]}
    assert not {("TpuIdle", "ml/explained"), ("TpuStraggler", "ml/explained")} & told


def test_no_page_is_lost_where_two_alerts_begin_together(alertmanager):
    """Of each two of the pages of one slice, at least one is sent."""
    names = ["TpuWorkerDown", "TpuWorkersMissing", "TpuRuntimeError", "TpuHang", "TpuStraggler", "TpuSlowDown",
             "TpuInputBound", "TpuHbmGrowing", "TpuHbmNearlyFull", "TpuStuck"]  # fmt: skip
    pairs = [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    for number, pair in enumerate(pairs):
        alertmanager.fire(*(alert(each, tpu_job=f"pair/{number:03}") for each in pair))
    reached = lambda: {key for key in alertmanager.pages() if "pair/" in key}  # noqa: E731
    wait_until(lambda: len(reached()) == len(pairs), 30, lambda: f"{len(pairs)} pages: {len(reached())}")


def test_the_watchdog_goes_to_whoever_waits_for_it(alertmanager):
    alertmanager.fire({"alertname": "TpumonWatchdog", "severity": "none"})
    wait_until(
        lambda: any(each["receiver"] == "watchdog" for each in alertmanager.notifications), 20, lambda: "watchdog"
    )

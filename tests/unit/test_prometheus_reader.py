"""The reader of a Prometheus server: what it asks, what it makes of an answer, and what is none."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from tpumon.errors import UsageError
from tpumon.figures import COMPARED
from tpumon.fleet import Fleet
from tpumon.history import Tiers
from tpumon.metrics import METRICS
from tpumon.model import Handover, Sample, Target, Workers
from tpumon.prometheus import PrometheusReader, PrometheusServer, graphs, queries, selector_of
from tpumon.prometheus.wire import Series, TroubleError
from tpumon.prometheus.workers import identity_of, known_of

NOW = 1_790_000_000.0


@pytest.mark.parametrize("exactly", [True, False])
def test_only_metrics_that_are_exported_are_read(exactly):
    exported = {name for metric in METRICS for name in metric.series_names}
    expressions = queries.Queries('{job="t"}', ("worker", "namespace"), exactly=exactly)
    asked = " ".join(
        [
            *(expressions.workers, expressions.numbers, expressions.devices(sizes=True), expressions.states),
            *(expressions.findings(judged=True), expressions.troubles(), expressions.known("1h", "1m")),
            *(expressions.compared, expressions.waits_less('x="y"')),
            *(expressions.averages(hbm=True), expressions.graphed('x="y"')),
        ]
    )  # fmt: skip
    assert set(re.findall(r"\btpu(?:mon)?_\w+", asked)) == set(queries.NAMES) <= exported


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (None, "{}"),
        ("{}", "{}"),
        ('{job="tpumon"}', '{job="tpumon"}'),
        ('job="tpumon", namespace=~"a|b"', '{job="tpumon", namespace=~"a|b"}'),
        (r'{a="say \"x\""}', r'{a="say \"x\""}'),
    ],
)
def test_a_selector(given, used):
    assert selector_of(given) == used


@pytest.mark.parametrize("given", ["up", '{job="a"} or up', '{job="a"}[5m]', '{job="a', "{job=a}", '{a="b"c="d"}'])
def test_what_is_no_selector(given):
    with pytest.raises(UsageError, match="give label matchers"):
        selector_of(given)


def info(worker, **labels):
    return Series({"__name__": "tpumon_target_info", "worker": worker, **labels}, ((NOW, 1.0),))


def names(series, before=("worker",)):
    identity = identity_of(series, before)
    return identity, {one.target.worker: one.target.slice for one in known_of(series, identity, ()).values()}


def test_names_are_short_where_they_are_unique():
    assert names([info("w0", namespace="a", slice="s"), info("w1", namespace="a", slice="s")]) == (
        ("worker",),
        {"w0": "s", "w1": "s"},
    )


def test_equal_names_are_told_apart_by_the_first_label_that_does():
    twins = [info("w", namespace=name, instance=f"{name}:1", job="tpumon", slice="s") for name in "ab"]
    assert names(twins) == (("worker", "namespace"), {"a/w": "a/s", "b/w": "b/s"})
    assert names([info("w", instance=f"{n}:1") for n in "ab"])[0] == ("worker", "instance")


def test_a_label_that_told_workers_apart_goes_on_to():
    assert names([info("w", namespace="a")], ("worker", "namespace")) == (("worker", "namespace"), {"a/w": None})


class Answers:
    """What a server answers: a function of path and parameters, to status and body."""

    def __init__(self, of):
        self.of, self.asked, self.headers = of, [], []


@contextmanager
def serving(of):
    answers = Answers(of)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            answers.asked.append((self.path, form["query"][0]))
            answers.headers.append(self.headers.get("Authorization"))
            status, body = answers.of(self.path, form["query"][0])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", answers
    finally:
        server.shutdown()
        server.server_close()


def told(result=(), **more):
    return 200, json.dumps(
        {"status": "success", "data": {"resultType": "vector", "result": list(result)}, **more}
    ).encode()


def refreshed(url, rounds=1, **options):
    """What a reader sends in its first refreshes."""
    events = []
    reader = PrometheusReader(PrometheusServer(url), "{}", clock=lambda: NOW, monotonic_s=lambda: 0.0, **options)

    async def ask():
        for _ in range(rounds):
            try:
                await reader._refresh(events.append)
            except TroubleError as trouble:
                reader._failed(trouble, NOW, events.append)

    asyncio.run(ask())
    return events


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ((404, b"not found"), "neither a tpumon exporter nor Prometheus"),
        ((200, b"<html>"), "neither a tpumon exporter nor Prometheus"),
        ((200, b"[" * 100_000), "neither a tpumon exporter nor Prometheus"),
        ((302, b""), "neither a tpumon exporter nor Prometheus"),
        ((401, b""), "wrong user or password"),
        ((503, b"busy"), "too busy"),
        (
            (400, b'{"status":"error","errorType":"bad_data","error":"parse\\u001b[31m error"}'),
            "query failed: parse error",
        ),
        ((503, b'{"status":"error","errorType":"timeout","error":"too slow"}'), "query failed: too slow"),
        (told(), "no series tpumon_target_info{}; check --selector"),
    ],
)
def test_what_is_no_answer_is_said_in_one_line(answer, line):
    with serving(lambda *_: answer) as (url, _):
        (event,) = refreshed(url)
    assert isinstance(event, Workers)
    assert line in event.waiting
    assert "\n" not in event.waiting
    assert "\x1b" not in event.waiting


def test_an_answer_that_is_too_large_is_cut_off(monkeypatch):
    monkeypatch.setattr(PrometheusServer, "most_bytes", 1 << 20)
    with serving(lambda *_: (200, b" " * (2 << 20))) as (url, _):
        (event,) = refreshed(url)
    assert "larger than 1 MiB" in event.waiting


def test_a_token_and_a_password_from_a_file(tmp_path):
    file = tmp_path / "auth"
    with serving(lambda *_: told()) as (url, answers):
        for text in ("a-token\n", "user:pass\n"):
            file.write_text(text)
            asyncio.run(PrometheusServer(url, str(file)).query("up"))
        with pytest.raises(TroubleError, match="No such file"):
            asyncio.run(PrometheusServer(url, str(tmp_path / "none")).query("up"))
    assert answers.headers == ["Bearer a-token", "Basic dXNlcjpwYXNz"]


def metric(value, **labels):
    return {"metric": labels, "value": [NOW, str(value)]}


def of_one(path, query, *, up=True, there=True):
    """Prometheus has one worker, without findings."""
    labels = {"worker": "w", "instance": "h:1"}
    if path.endswith("query_range") or not there:
        return told()
    if query.startswith("tpumon_target_info"):
        both = [metric(1, __name__="tpumon_target_info", slice="s", **labels)]
        if up:
            both.append(metric(1, __name__="tpu_worker_info", source="trace", simulated="false", **labels))
        return told(both)
    if "tpu_mxu" in query:
        numbers = {queries.TOOK: 1, queries.SUCCESS: NOW - 9, queries.INTERVAL: 10, queries.WINDOW: 0.5}
        figures = {"tpu_mxu_utilization_ratio": 0, "tpu_idle_ratio": "NaN", "tpu_duty_cycle_ratio": -1} if up else {}
        return told(metric(value, worker="w", m=name) for name, value in (numbers | figures).items())
    if "tpumon_target_up" in query and not up:
        return told([metric(0, worker="w", m="tpumon_target_up")])
    return told()


def test_a_sample_is_what_the_series_say():
    """Zero is zero; what is absent, no number or impossible is absent."""
    with serving(of_one) as (url, answers):
        events = refreshed(url, 3)
    workers = [event for event in events if isinstance(event, Workers)]
    sample = next(event for event in events if isinstance(event, Sample))
    assert [(one.worker, one.address, one.slice) for one in workers[0].targets] == [("w", "h:1", "s")]
    figures = sample.figures
    assert (figures.mxu_utilization_ratio, figures.idle_ratio, figures.duty_cycle_ratio) == (0.0, None, None)
    assert (sample.time_unix_s, sample.source, sample.window_s) == (NOW - 10, "trace", 0.5)
    assert not sample.is_stale(NOW, 0.0)
    per_refresh = sum(query.startswith("tpumon_target_info") for _, query in answers.asked)
    later = answers.asked[[i for i, (_, q) in enumerate(answers.asked) if q.startswith("tpumon_target_info")][-1] :]
    assert per_refresh == 3
    assert len(later) <= 5
    assert any(isinstance(event, Handover) and event.complete for event in events)


@pytest.mark.parametrize(
    ("names", "at_once"),
    [
        (told([metric(1, __name__="tpumon_target_info")]), True),
        (told(), False),
        ((400, b'{"status":"error","errorType":"bad_data","error":"exact matches only"}'), False),
    ],
)
def test_several_names_at_once_only_where_the_server_takes_them(names, at_once):
    """It is asked once; then either no other query, or all that can, choose among names."""
    with serving(lambda path, query: names if query.startswith("group by") else of_one(path, query)) as (url, answers):
        events = refreshed(url, 3)
    assert sum(query.startswith("group by") for _, query in answers.asked) == 1
    assert any("=~" in query for _, query in answers.asked if not query.startswith("group by")) == at_once
    sample = [event for event in events if isinstance(event, Sample)][-1]
    assert sample.figures.mxu_utilization_ratio == 0.0


def test_a_worker_of_an_equal_name_begins_all_anew():
    """The first one's name becomes longer; nothing of the refresh that was under way is shown."""
    there = ["a"]

    def of(path, query):
        if path.endswith("query_range"):
            return told()
        if query.startswith("tpumon_target_info"):
            names = "tpumon_target_info", "tpu_worker_info"
            return told(metric(1, __name__=name, worker="w", namespace=one) for one in there for name in names)
        if "tpu_mxu" in query:
            rows = [{"namespace": one} for one in there] if "namespace" in query else [{}]
            return told(metric(1, worker="w", m=queries.TOOK, **row) for row in rows)
        return told()

    events = []
    with serving(of) as (url, _):
        reader = PrometheusReader(PrometheusServer(url), "{}", clock=lambda: NOW)

        async def ask():
            await reader._refresh(events.append)
            there.append("b")
            await reader._refresh(events.append)

        asyncio.run(ask())
    assert [event.worker for event in events if isinstance(event, Sample)] == ["w", "a/w", "b/w"]


def test_a_worker_that_is_down_has_no_figures():
    with serving(lambda path, query: of_one(path, query, up=False)) as (url, _):
        sample = next(event for event in refreshed(url) if isinstance(event, Sample))
    assert (sample.source, sample.failure.reason, sample.figures.mxu_utilization_ratio) == (None, "unavailable", None)


def test_a_worker_whose_series_are_gone_is_stale_and_says_why():
    there = {"there": True}
    with serving(lambda path, query: of_one(path, query, **there)) as (url, _):
        events = []
        reader = PrometheusReader(PrometheusServer(url), "{}", clock=lambda: NOW)

        async def ask():
            await reader._refresh(events.append)
            there["there"] = False
            await reader._refresh(events.append)

        asyncio.run(ask())
    last = [event for event in events if isinstance(event, Sample)][-1]
    assert last.of_exporter
    assert "no series of it any more" in last.failure.message


def test_incomplete_data_is_said_once():
    said = []
    with serving(lambda *_: told(warnings=["store \x1b[31mx is gone"])) as (url, _):
        refreshed(url, 2, say=said.append)
    assert len(said) == 1
    assert said[0].endswith("its data is incomplete: store x is gone")


def test_an_outage_makes_all_workers_stale():
    state = {"answer": None}
    with serving(lambda path, query: state["answer"] or of_one(path, query)) as (url, _):
        events = []
        reader = PrometheusReader(PrometheusServer(url), "{}", clock=lambda: NOW)

        async def ask():
            await reader._refresh(events.append)
            state["answer"] = 503, b""
            for _ in range(2):
                with pytest.raises(TroubleError) as error:
                    await reader._refresh(events.append)
                reader._failed(error.value, NOW, events.append)

        asyncio.run(ask())
    last = events[-1]
    assert isinstance(last, Sample)
    assert last.of_exporter
    assert "too busy" in last.failure.message


def test_what_hardly_changes_is_asked_once_a_minute_or_for_a_new_worker():
    """Sizes of HBM, and of how many workers a finding is judged; what was told holds for devices that are there."""
    now, there = {"unix_s": NOW}, ["w"]

    def of(path, query):
        at = now["unix_s"]
        if path.endswith("query_range"):
            return told()
        if query.startswith("tpumon_target_info"):
            names = "tpumon_target_info", "tpu_worker_info"
            return told({**metric(1, __name__=name, worker=one), "value": [at, "1"]} for one in there for name in names)
        if "tpu_mxu" in query:
            return told(metric(1, worker=one, m=queries.TOOK) for one in there)
        if queries.HBM_USED in query:
            devices = [metric(5, worker=one, device="0", m=queries.HBM_USED) for one in there]
            totals = [metric(9, worker="w", device=device, m=queries.HBM_TOTAL) for device in "01"]
            return told([*devices, *(totals if queries.HBM_TOTAL in query else [])])
        return told([metric(1, finding="idle")] if "count by" in query else [])

    asked_for_all, asked_in_all, seen = [], [], []
    with serving(of) as (url, answers):
        reader = PrometheusReader(PrometheusServer(url), "{}", clock=lambda: now["unix_s"])

        async def ask():
            for passes_s, new in ((0, None), (30, None), (40, None), (5, "v")):
                now["unix_s"] += passes_s
                there.extend([new] if new else [])
                answers.asked.clear()
                events = []
                await reader._refresh(events.append)
                words = queries.HBM_TOTAL, "count by"
                now_asked = [query for path, query in answers.asked if path.endswith("query")]
                asked_in_all.append(len(now_asked))
                asked_for_all.append([sum(word in query for query in now_asked) for word in words])
                (sample,) = [event for event in events if isinstance(event, Sample) and event.worker == "w"]
                seen.append([(one.device, one.hbm_used_bytes, one.hbm_total_bytes) for one in sample.figures.devices])

        asyncio.run(ask())
    assert asked_for_all == [[1, 1], [0, 0], [1, 1], [1, 1]]
    assert asked_in_all[1:] == [5, 5, 7]
    assert seen == [[("0", 5, 9)]] * 4


def test_further_back_only_what_was_there_before():
    """A finding that is younger than the hour is not looked for in a week."""
    asked = []

    def of(path, query):
        if path.endswith("query_range") and "finding" in query and "quantile" not in query:
            asked.append(query)
            first = [[NOW - 3600, "1"], [NOW, "1"]] if len(asked) == 1 else [[NOW - 7200, "1"]]
            return told(
                [
                    {"metric": {"worker": "w", "m": "tpumon_finding", "finding": "idle"}, "values": first},
                    {"metric": {"worker": "w", "m": "tpumon_finding", "finding": "hang"}, "values": [[NOW, "1"]]},
                ]
            )
        return of_one(path, query)

    with serving(of) as (url, _):
        refreshed(url)
    assert len(asked) == 2
    assert "finding=~" not in asked[0]
    assert 'finding=~"idle"' in asked[1]
    assert queries.UP in asked[0]
    assert queries.UP not in asked[1]


def points(*values, **labels):
    """One minute apart, until a minute ago."""
    times = range(len(values), 0, -1)
    return {
        "metric": labels,
        "values": [[NOW - 60 * ago, str(value)] for ago, value in zip(times, values, strict=True)],
    }


def test_graphs_begin_with_the_last_hour():
    """Of the average over all workers, and of each worker; a time without a figure is a gap, not a zero."""

    def of(path, query):
        if path.endswith("query_range") and "avg (" in query:
            return told([points(0.5, 0.25, m="idle")])
        if path.endswith("query_range") and '"mxu"' in query:
            return told([points(0.1, 0.2, 0.3, m="mxu", worker="w"), points(7, m="step", worker="w"),
                         points(1, m="mxu", worker="another")])  # fmt: skip
        return of_one(path, query)

    with serving(of) as (url, _):
        events = refreshed(url)
    fleet = Fleet(remember=True)
    for event in events:
        fleet.take(event)
    tiers = fleet.histories.get("w").tiers
    drawn = {key: [point.median for point in tiers.series(key, NOW - 3600, NOW - 30)] for key in ("mxu", "step")}
    assert drawn["mxu"] == pytest.approx([0.1, 0.2, 0.3], rel=1e-3)
    assert drawn["step"][:2] == [None, None]
    assert drawn["step"][2] == pytest.approx(7, rel=1e-3)
    average = [point.median for point in fleet.average.series("idle", NOW - 3600, NOW)]
    assert average == pytest.approx([0.5, 0.25], rel=1e-3)


def test_a_worker_s_graph_is_asked_for_when_it_is_looked_at(monkeypatch):
    """Once, and of that worker; a refresh of the same worker asks no more."""
    monkeypatch.setattr(graphs, "MOST_GRAPHED", 0)
    looked_at = {"worker": None}
    asked, events = [], []

    def of(path, query):
        if path.endswith("query_range") and '"mxu"' in query and "avg (" not in query:
            asked.append(query)
            return told([points(0.1, 0.2, m="mxu", worker="w")])
        return of_one(path, query)

    with serving(of) as (url, _):
        reader = PrometheusReader(PrometheusServer(url), "{}", clock=lambda: NOW, looked_at=lambda: looked_at["worker"])

        async def ask():
            await reader._refresh(events.append)
            asked.clear()
            await reader._refresh(events.append)
            assert asked == []
            looked_at["worker"] = "w"
            for _ in range(2):
                await reader._refresh(events.append)

        asyncio.run(ask())
    fleet = Fleet(remember=True)
    for event in events:
        fleet.take(event)
    assert len(asked) == 1
    assert 'worker=~"w"' in asked[0]
    drawn = [point.median for point in fleet.histories.get("w").tiers.series("mxu", NOW - 3600, NOW - 30)]
    assert drawn == pytest.approx([0.1, 0.2], rel=1e-3)


def test_history_that_goes_further_back_stays():
    """After an outage Prometheus is asked for the last hour; a view that is open for longer knows more."""
    fleet = Fleet(remember=True)
    fleet.take(Workers(targets=(Target(worker="w", address="w:1"),)))
    mine, hour = (Tiers(tuple(COMPARED)) for _ in range(2))
    for tiers, begin_unix_s in ((mine, NOW - 7200), (hour, NOW - 3600)):
        for minute in range(60):
            tiers.add(begin_unix_s + 60 * minute, "live", [0.5] * len(COMPARED))
    for tiers in (mine, hour):
        fleet.take(Handover(complete=True, number=0, history={"w": tiers.packed()}, figures=tuple(COMPARED)))
    assert fleet.histories.get("w").tiers.oldest_unix_s == pytest.approx(NOW - 7200, abs=1)


def test_of_a_large_fleet_only_the_worst_are_graphed(monkeypatch):
    """Two range queries, however many workers: the one that is down is among those that are asked for."""
    monkeypatch.setattr(graphs, "MOST_GRAPHED", 2)
    samples = {(name,): Sample(worker=name, address=name, time_unix_s=NOW, window_s=None, took_s=1.0, source=source)
               for name, source in (("a", "trace"), ("b", "trace"), ("z", None))}  # fmt: skip
    with serving(lambda *_: told()) as (url, answers):
        server, expressions = PrometheusServer(url), queries.Queries("{}")

        async def ask():
            averages = graphs.averages_of(server, expressions, len(samples), NOW)
            await graphs.graphs_of(server, expressions, ("worker",), samples, NOW, averages)

        asyncio.run(ask())
    averages, workers = sorted((query for _, query in answers.asked), key=lambda query: "worker=~" in query)
    assert 'worker=~"a|z"' in workers
    assert queries.HBM_USED in workers
    assert queries.HBM_USED not in averages

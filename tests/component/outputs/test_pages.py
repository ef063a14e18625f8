"""The exporter's pages, asked over real sockets."""

from __future__ import annotations

import gzip
import io
import json
import math
import socket
import time

import pytest
from google.protobuf import proto
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from support.exporter import found, get, sample, serving
from tpumon.errors import UsageError
from tpumon.model import Sample, Workers
from tpumon.outputs import Context, metrics
from tpumon.proto.metric_family_pb2 import MetricFamily
from tpumon.system.exporter_ports import EXPORTER_PORT, parse_listen
from tpumon_exporters import pages
from tpumon_exporters.prometheus import open_prometheus
from tpumon_exporters.web import Request

pytestmark = pytest.mark.usefixtures("quiet")

PROMETHEUS_ASKS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


def test_what_was_written_is_on_the_page():
    """Also the process itself, as prometheus_client shows it."""
    with serving("w") as output:
        output.add(sample())
        answer = get(output, "/metrics")
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        names = {family.name for family in parse_text(answer.text)}
        assert 'tpu_mxu_utilization_ratio{worker="w"} 0.425\n' in answer.text
        assert {"tpumon_target_up", "process_resident_memory_bytes"} <= names


@pytest.mark.parametrize(
    "accept",
    [
        PROMETHEUS_ASKS,
        "application/openmetrics-text",
        "application/openmetrics-text; version=2.0.0, application/openmetrics-text; version=1.0.0; escaping=dots",
    ],
)
def test_openmetrics_for_who_asks_for_it(accept):
    """It can be parsed, ends where it says so, and claims no version or escaping that it is not."""
    with serving("w") as output:
        output.add(sample())
        answer = get(output, "/metrics", Accept=accept)
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
        assert "dots" not in answer.headers["Content-Type"]
        assert answer.text.count("# EOF") == 1
        families = {family.name: family for family in parse_openmetrics(answer.text)}
        assert families["tpumon_samples"].samples[0].name == "tpumon_samples_total"
        assert families["tpu_mxu_utilization_ratio"].unit == "ratio"


NATIVE = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (f"{NATIVE},application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5,*/*;q=0.1", "application/vnd"),
        (f"{NATIVE.replace(';', '; ').replace('delimited', chr(34) + 'delimited' + chr(34))};q=0.6", "application/vnd"),
        (f"application/openmetrics-text;version=1.0.0;q=0.6,{NATIVE};q=0.5", "application/openmetrics-text"),
        (NATIVE.replace("delimited", "text"), "text/plain"),
        ("application/vnd.google.protobuf", "text/plain"),
    ],
)
def test_the_binary_format_for_who_asks_for_it_first(accept, kind):
    """As Prometheus does where it takes native histograms; all others get what they always had."""
    with serving("w") as output:
        output.add(sample())
        answer = get(output, "/metrics?name[]=tpumon_target_up&name[]=process_open_fds", Accept=accept)
        assert answer.headers["Content-Type"].startswith(kind)
        if kind == "application/vnd":
            assert answer.headers["Content-Type"].replace(" ", "") == NATIVE
            stream = io.BytesIO(answer.body)
            told = [proto.parse_length_prefixed(MetricFamily, stream) for _ in range(3)]
            assert [each and each.name for each in told] == ["tpumon_target_up", "process_open_fds", None]
            assert [each.metric[0].gauge.value > 0 for each in told[:2]] == [True, True]


@pytest.mark.parametrize(
    "accept",
    ["text/html", "application/openmetrics-text;version=x.y", "application/openmetrics-text;version=9.9.9", ""],
)
def test_text_for_everybody_else(accept):
    """A format or version that is not known here is no reason to fail."""
    with serving("w") as output:
        assert get(output, "/metrics", Accept=accept).headers["Content-Type"].startswith("text/plain; version=0.0.4")


def test_compressed_for_who_takes_it():
    """By gzip, which Prometheus asks for."""
    with serving("w") as output:
        output.add(sample())
        packed = get(output, "/metrics?name[]=tpu_idle_ratio&name[]=process_open_fds", Accept_Encoding="gzip")
        assert packed.headers["Content-Encoding"] is None, "not worth it"
        packed = get(output, "/metrics", Accept_Encoding="deflate, gzip;q=1.0")
        assert packed.headers["Content-Encoding"] == "gzip"
        assert b'tpu_mxu_utilization_ratio{worker="w"} 0.425\n' in gzip.decompress(packed.body)


def test_only_the_series_named():
    """`name[]` as in prometheus_client, for the workers' metrics and the process's."""
    with serving("w") as output:
        output.add(sample())
        text = get(output, "/metrics?name[]=tpu_mxu_utilization_ratio&name[]=process_open_fds").text
        assert [family.name for family in parse_text(text)] == ["tpu_mxu_utilization_ratio", "process_open_fds"]


def test_a_stale_workers_figures_vanish_while_the_others_stay():
    """From the scrape after its failed query."""
    with serving("a", "b") as output:
        output.add(sample("a"))
        output.add(sample("b"))
        output.add(sample("b", reason="unavailable"))
        text = get(output, "/metrics").text
        assert 'tpu_mxu_utilization_ratio{worker="a"}' in text
        assert 'tpu_mxu_utilization_ratio{worker="b"}' not in text
        assert 'tpumon_target_up{worker="b"} 0.0' in text
        output.add(found("a"))
        assert 'worker="b"' not in get(output, "/metrics").text


@pytest.mark.parametrize("target", ["a", "a:9999"])
def test_a_probe_shows_one_worker(target):
    """By its name or address; nothing of the others, nothing of this process."""
    with serving("a", "b") as output:
        output.add(sample("a"))
        output.add(sample("b"))
        answer = get(output, f"/probe?target={target}")
        assert answer.status == 200
        assert 'tpu_mxu_utilization_ratio{worker="a"}' in answer.text
        assert 'worker="b"' not in answer.text
        assert "process_" not in answer.text


def test_a_probe_of_somebody_else_is_refused():
    """Nobody can have this process look at an address of their choice."""
    with serving("a") as output:
        answer = get(output, "/probe?target=10.0.0.1:22%0Aevil")
        assert answer.status == 404
        assert answer.text.count("\n") == 1
        assert get(output, "/probe").status == 400


def test_ready_after_the_first_query():
    """Whatever became of it; alive all the time."""
    with serving("a", "b") as output:
        assert get(output, "/-/ready").status == 503
        assert get(output, "/-/healthy").status == 200
        output.add(sample("b", reason="busy"))
        assert get(output, "/-/ready").status == 200


def test_ready_where_there_is_no_job():
    """No worker is a normal state: a rollout to hosts without jobs must not wait for them."""
    with serving() as output:
        assert get(output, "/-/ready").status == 503
        output.add(Workers(waiting="no job here"))
        assert get(output, "/-/ready").status == 200


def test_the_landing_page_names_workers_safely():
    """With their state; names are no HTML."""
    with serving("<script>alert(1)</script>", "b") as output:
        output.add(sample("b"))
        answer = get(output, "/")
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "<script>" not in answer.text
        assert "&lt;script&gt;" in answer.text
        assert "<td>live</td>" in answer.text
        assert 'href="metrics"' in answer.text
        output.add(Workers(waiting="no <job> here"))
        assert "no &lt;job&gt; here" in get(output, "/").text


@pytest.mark.parametrize("path", ["/metrics/", "/favicon.ico", "/../etc/passwd", "/samplesx"])
def test_other_pages_are_not_found(path):
    """404, one line."""
    with serving() as output:
        assert ask(output, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_only_get_and_head(method):
    """405, with what is allowed."""
    with serving() as output:
        answer = get(output, "/metrics", method=method)
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET, HEAD"


def test_head_is_get_without_the_body():
    """The length is that of the body which is not sent."""
    with serving("w") as output:
        answer = ask(output, "HEAD /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nContent-Length: 19\r\n" in answer
        assert answer.endswith(b"\r\n\r\n")


def test_samples_as_json():
    """First the last of each worker, then what is new; as the Sample object has it."""
    with serving("a", "b") as output:
        for each in (sample("a", idle_ratio=0.1), sample("a", idle_ratio=0.2), sample("b", reason="busy")):
            output.add(each)
        first = json.loads(get(output, "/samples").body)
        assert [Sample.from_json(json.dumps(each)).figures.idle_ratio for each in first["samples"]] == [0.2, None]
        assert (first["schema"], first["level"], first["sequence"], first["waiting"]) == (1, 2, 3, None)
        unknown = dict.fromkeys(("job", "slice", "name", "slice_workers", "job_slices"))
        assert first["targets"][1] == {"worker": "b", "address": "b:9999", "independent": False, **unknown}
        assert abs(first["now_unix_s"] - time.time()) < 60

        output.add(sample("b", idle_ratio=0.3))
        later = json.loads(get(output, "/samples?after=2").body)
        assert [each["errors"] for each in later["samples"]] == [[]], "those from before anybody asked are not kept"
        assert json.loads(get(output, "/samples?after=4").body)["samples"] == []
        ahead = json.loads(get(output, "/samples?after=99").body)
        assert len(ahead["samples"]) == 2, "the reader knew an exporter before this one"
        assert get(output, "/samples?after=-1").status == 400


def test_only_so_many_samples_are_kept(monkeypatch):
    """A reader that was away for long gets the newest."""
    monkeypatch.setattr(pages, "_REMEMBERED", 3)
    with serving("a") as output:
        get(output, "/samples")
        for number in range(10):
            output.add(sample("a", idle_ratio=number / 10))
        page = json.loads(get(output, "/samples?after=1").body)
        assert [each["idle_ratio"] for each in page["samples"]] == [0.7, 0.8, 0.9]


def test_samples_are_kept_for_a_minute_and_answered_in_part(monkeypatch):
    """Without what is no part of the JSON, and only while somebody reads: nobody can make it hold hours of samples."""
    monkeypatch.setattr(pages, "_ANSWERED", 2)
    now = [1000.0]
    context = Context(clock=lambda: now[0])
    kept = pages.Pages(context)
    context.analysis.add(found("a"))
    for number in range(10):
        now[0] = 1000.0 + 10 * number
        taken = sample("a", idle_ratio=number / 10, time_unix_s=now[0], step_durations_s=(0.1,) * 1000)
        kept.on_update(context.analysis.add(taken))
        if number == 3:
            assert not kept._recent
        if number in {3, 9}:
            page = json.loads(kept.answer(Request(path="/samples", query={"after": ["0"]})).body)
    assert [each[0] for each in kept._recent] == [5, 6, 7, 8, 9, 10]
    assert not any(each[2].figures.step_durations_s for each in kept._recent)
    assert [each["idle_ratio"] for each in page["samples"]] == [0.8, 0.9]
    monkeypatch.setattr(pages, "_REMEMBERED_S", 0.0)
    kept.on_update(context.analysis.add(sample("a", time_unix_s=now[0])))
    assert not kept._recent


def test_a_number_that_json_has_not_is_absent():
    """The rest of its sample is there."""
    with serving("a", "b") as output:
        output.add(sample("a", idle_ratio=math.nan))
        output.add(sample("b", idle_ratio=0.5))
        samples = json.loads(get(output, "/samples").body)["samples"]
        assert [(each["worker"], each["idle_ratio"]) for each in samples] == [("a", None), ("b", 0.5)]


def test_a_name_that_is_no_text_breaks_nothing():
    """A lone surrogate, as from a command line that was not UTF-8."""
    with serving("a\udcff") as output:
        output.add(sample("a\udcff"))
        for path in ("/metrics", "/", "/samples"):
            assert get(output, path).status == 200


def test_a_page_is_of_one_moment(monkeypatch):
    """No sample comes in between one of its figures and the next."""
    with serving("w") as output:
        output.add(sample())
        watched = metrics.TargetMetric(
            name="tpumon_watched", help="", values=lambda *_: output.add(sample(mxu_utilization_ratio=0.9)) or ()
        )
        monkeypatch.setattr(metrics, "METRICS", (watched, *metrics.METRICS))
        for path, mxu, samples in (("/metrics", 0.425, 1.0), ("/probe?target=w", 0.9, 2.0)):
            text = get(output, path).text
            assert f'tpu_mxu_utilization_ratio{{worker="w"}} {mxu}\n' in text
            assert f'tpumon_samples_total{{worker="w"}} {samples}\n' in text


@pytest.mark.parametrize(
    ("where", "host", "port"),
    [
        ("10.0.0.1:9000", "10.0.0.1", 9000),
        ("[::1]:9000", "::1", 9000),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
        ("9000", "127.0.0.1", 9000),
        (":9000", "", 9000),
        ("tpu-w-0", "tpu-w-0", EXPORTER_PORT),
        ("[::1]", "::1", EXPORTER_PORT),
        ("", "127.0.0.1", EXPORTER_PORT),
        ("localhost:0", "localhost", 0),
        ("*:9000", "*", 9000),
        ("tpu_0.svc.local.:1", "tpu_0.svc.local.", 1),
    ],
)
def test_where_to_listen(where, host, port):
    """Loopback where no host is given; all interfaces only by `:PORT`, a deliberate choice."""
    assert parse_listen(where) == (host, port)


@pytest.mark.parametrize(
    "where", ["::1:9000", "a:b", "h:99999", "http://h:1", "h:1/metrics", "[::1", "a b:1", ":", "99999", "abc def",
     "host:port:x", "a..b:1", f"{'a' * 64}:1", "ü:1", "@:1"],
)  # fmt: skip
def test_where_nobody_can_listen(where):
    """Says what would do."""
    with pytest.raises(UsageError, match=r"give HOST:PORT, for example 127\.0\.0\.1:10466"):
        open_prometheus(where, Context())


def test_a_taken_port_is_named():
    """One line with the address, the port and what to do."""
    with serving() as output, pytest.raises(UsageError) as error:
        open_prometheus(output.address, Context())
    host, port = output.address.split(":")
    assert str(error.value) == (
        f"cannot listen on {host}:{port}: port {port} is in use; "
        "stop the program that listens there, or give another port"
    )


@pytest.mark.parametrize("where", ["192.0.2.1:0", "no-such-host.invalid:0"])
def test_an_address_of_somebody_else_is_refused(where):
    """One line that says so."""
    with pytest.raises(UsageError, match=r"cannot listen on \S+: .*127\.0\.0\.1"):
        open_prometheus(where, Context())


@pytest.mark.parametrize("where", ["127.0.0.1:0", "[::1]:0", ":0", "0"])
def test_it_says_where_it_listens(where):
    """The address that it got can be asked; the line names it."""
    if "::1" in where and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with serving(where=where) as output:
        assert get(output, "/-/healthy").status == 200
        assert output.listening.startswith("listening on http://")
        assert output.address.rpartition(":")[2] in output.listening
        assert ("all interfaces" in output.listening) == (where == ":0")


def ask(output, request):
    """The whole answer to bytes as they are."""
    host, port = output.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(request if isinstance(request, bytes) else request.encode())
        with client.makefile("rb") as answer:
            return answer.read()

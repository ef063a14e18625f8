"""The reader of a running exporter: restarts, outages, clocks, and what is no exporter."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import math
import re
import socket
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import free_port, wait_until
from support.exporter import certificates, found, sample, serving
from tpumon.analysis.history import Histories
from tpumon.collection.remote import RemoteFleet, exporter, exporter_client
from tpumon.errors import REASONS, UsageError
from tpumon.model import Change, ExporterSnapshot, Sample, Spread, StepTimes, Workers, bounded
from tpumon.model.documents import decoded
from tpumon.model.page import Page
from tpumon.outputs.metrics import METRICS, SampleMetric
from tpumon.system.background import Background

FULL = {
    "cores": 8,
    "device_type": "TPU v6 Lite",
    "mxu_method": "counter",
    "step_source": "steps",
    "slice": "s",
    "idle_ratio": 0.0,
    "step_time_s": StepTimes(avg=0.01, min=0.009, max=0.011, count=5),
    "infeed_ratio": Spread(avg=0.1, min=0.0, max=0.2),
    "step_parts_s": {"infeed": 0.001, "idle": 0.0},
    "per_core": ({"chip": 0, "core": 0, "idle_ratio": 0.1, "infeed_ratio": None},),
    "devices": ({"device": "0", "hbm_used_bytes": 17, "runtime_duty_cycle_ratio": 0.5},),
    "runtime": {"uptime_s": 12.0},
    "warnings": ("3 events dropped",),
    "absent": {"mxu_utilization_ratio": "no device plane"},
}


class Following:
    """What a RemoteFleet sends, in a thread as the commands run it."""

    def __init__(self, url, **options):
        self.events: deque[Workers | Sample | ExporterSnapshot] = deque()
        self._exporter = RemoteFleet(url, poll_s=0.01, **options)
        self._stack = contextlib.ExitStack()

    async def _main(self, _send):
        await self._exporter.feed(self.events.append)

    def __enter__(self):
        self._stack.enter_context(Background(self._main))
        return self

    def __exit__(self, *error):
        self._stack.close()

    def wait_for(self, condition, what="that event"):
        return wait_until(
            lambda: next((event for event in list(self.events) if condition(event)), None),
            20,
            lambda: f"{what}: {list(self.events)[-5:]}",
        )

    def wait_for_waiting(self, part):
        return self.wait_for(lambda event: isinstance(event, Workers) and part in (event.waiting or ""), part).waiting

    def wait_for_sample(self, **wanted):
        return self.wait_for(
            lambda event: isinstance(event, Sample) and event.to_json().items() >= wanted.items(),
            str(wanted),
        )

    @property
    def samples(self):
        return [event for event in list(self.events) if isinstance(event, Sample)]


class Scripted:
    """An HTTP server on a real port that answers what the test says: (status, body), or bytes as they are."""

    def __init__(self, *answers):
        self.answers = deque(answers)
        self.asked = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                script.asked.append((self.path, dict(self.headers)))
                answer = script.answers.popleft() if len(script.answers) > 1 else script.answers[0]
                if isinstance(answer, bytes):
                    self.wfile.write(answer)
                    return
                status, body, *headers = answer
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def workers_of(event):
    return [target.worker for target in event.targets]


def told(**more):
    return {
        "schema": 1,
        "tpumon": "0.1.0",
        "run": "one",
        "now_unix_s": 1000.0,
        "sequence": 1,
        "level": 2,
        "waiting": None,
        "targets": [{"worker": "w", "address": "w:9999", "slice": None}],
        "samples": [sample("w", time_unix_s=990.0).to_json()],
    } | more


def test_what_an_exporter_has_arrives_as_it_is():
    """Every field that is part of the Sample object, and what the exporter finds; workers first."""
    with serving("a", "b") as output:
        sent = [sample("a", **FULL), sample("b", reason="busy")]
        for each in sent:
            output.add(each)
        with Following(f"http://{output.address}") as following:
            following.wait_for_sample(worker="b")
            first = following.events[0].targets
            assert [(each.worker, each.address, each.exporter) for each in first] == [
                (each.worker, each.address, f"http://{output.address}") for each in found("a", "b").targets
            ]
            arrived = following.samples[:2]
            assert [each.findings for each in arrived] == [(), ()]
            judged = {name: None for name in sent[0].to_json() if name in {"findings", "judged", "job_kind"}}
            assert [each.to_json() | judged for each in arrived] == [each.to_json() for each in sent]


def test_each_sample_comes_once_and_workers_when_they_change():
    """However often it asks."""
    with serving("a") as output, Following(f"http://{output.address}") as following:
        for number in range(5):
            output.add(sample("a", idle_ratio=number / 10))
            following.wait_for_sample(idle_ratio=number / 10)
        output.add(Workers(waiting="no job here"))
        following.wait_for_waiting("no job here")
        output.add(found("a", "c"))
        following.wait_for(lambda event: isinstance(event, Workers) and workers_of(event) == ["a", "c"])
    assert [each.figures.idle_ratio for each in following.samples] == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert len([event for event in following.events if not isinstance(event, ExporterSnapshot)]) == 5 + 3


def test_a_restarted_exporter_is_followed_from_its_beginning():
    """Also when it has come further than the one before: all that it has counts anew."""
    second = told(run="two", sequence=9, samples=[sample("w", time_unix_s=1.0, idle_ratio=0.7).to_json()])
    with Scripted((200, told()), (200, second)) as server, Following(server.url) as following:
        following.wait_for_sample(idle_ratio=0.7)
        wait_until(lambda: len(server.asked) >= 4, 60, "it asks on")
        assert [path for path, _ in server.asked[:4]] == [
            "/samples?history=1", "/samples?after=1&changed=0", "/samples?history=1", "/samples?after=9&changed=0",
        ]  # fmt: skip


@pytest.mark.parametrize("settles_s", [30.0, 0.0])
def test_a_restarted_exporter_that_has_no_workers_yet_keeps_those_that_it_had(settles_s, monkeypatch):
    """For a while: it looks for them. Their figures over time would be lost otherwise."""
    monkeypatch.setattr(exporter, "_SETTLES_S", settles_s)
    looking = told(run="two", sequence=0, targets=[], samples=[], waiting="no job here")
    there = told(run="two", sequence=3, samples=[sample("w", time_unix_s=999.0, idle_ratio=0.7).to_json()])
    answers = [(200, told()), (503, b""), (503, b""), *[(200, looking)] * 3, (200, there)]
    with Scripted(*answers) as server, Following(server.url) as following:
        following.wait_for_sample(idle_ratio=0.7)
    without = [event for event in following.events if isinstance(event, Workers) and not event.targets]
    assert bool(without) is (not settles_s)


def test_an_exporter_that_goes_takes_its_workers_with_it():
    """Nothing is known of each, with the reason, once; and all is well again when it comes back."""
    port = free_port()
    histories = Histories()
    with serving("a", "b", where=f"127.0.0.1:{port}") as output:
        output.add(sample("a"))
        following = Following(f"http://me:secret@127.0.0.1:{port}/metrics")
        following.__enter__()
        following.wait_for_sample(worker="a")
    try:
        failed = following.wait_for(lambda event: isinstance(event, Sample) and event.worker == "b")
        assert failed.source is None
        assert (failed.errors[0].source, failed.errors[0].reason) == ("exporter", "unavailable")
        assert failed.errors[0].message == (
            f"exporter http://127.0.0.1:{port}: Connection refused; is `tpumon serve` running there?"
        )
        for event in list(following.events):
            if isinstance(event, Workers):
                histories.follow(event)
            elif isinstance(event, Sample):
                histories.add(event)
        assert [history.state(failed.time_unix_s) for history in histories.all()] == ["stale", "stale"]
        assert [history.is_up(failed.time_unix_s) for history in histories.all()] == [None, None]
        assert not any(history.errors for history in histories.all())
        with serving("a", "b", where=f"127.0.0.1:{port}") as output:
            output.add(sample("a", idle_ratio=0.5))
            following.wait_for_sample(idle_ratio=0.5)
        assert len([each for each in following.samples if each.worker == "b"]) in {1, 2}
    finally:
        following.__exit__()


def test_one_answer_that_fails_is_no_outage():
    """The workers are what they were; a second in a row is one."""
    later = told(sequence=2, samples=[sample("w", time_unix_s=1.0, idle_ratio=0.7).to_json()])
    with Scripted((200, told()), (503, b""), (200, later)) as server, Following(server.url) as following:
        following.wait_for_sample(idle_ratio=0.7)
        assert all(each.has_figures for each in following.samples)


def test_an_outage_is_told_once_and_its_end_too():
    """Afterwards everybody's last sample is asked for again: nobody stays down."""
    traced = told(samples=[sample("w", time_unix_s=990.0, traced_s=0.5).to_json()])
    with Scripted((200, traced), (503, b""), (503, b""), (503, b""), (503, b""), (200, traced)) as server:
        with Following(server.url) as following:
            wait_until(lambda: len(following.samples) >= 3, 60, "well, down, well again")
        assert [each.has_figures for each in following.samples[:3]] == [True, False, True]
        assert [each.traced_s for each in following.samples[:3]] == [0.5, 0, 0], "the same sample costs nothing again"
        new, everything = "/samples?after=1&changed=0", "/samples?history=1"
        assert [path for path, _ in server.asked[:6]] == [everything, new, new, everything, everything, everything]
    gone, back = (event for event in following.events if isinstance(event, Change))
    exporter = f"exporter {server.url.removeprefix('http://')}"
    assert (gone.worker, gone.sentence) == (exporter, "does not answer: its worker is not seen")
    assert (back.worker, back.title) == (exporter, "answers again")
    lost = next(each for each in following.samples if not each.has_figures)
    assert lost.time_unix_s == gone.time_unix_s
    assert re.fullmatch(r"it was away for \d+ s", back.words)


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
def test_another_clock_is_corrected(ahead_s):
    """A sample is as old here as it is there."""
    answer = told(now_unix_s=10_000.0 + ahead_s, samples=[sample("w", time_unix_s=9_990.0 + ahead_s).to_json()])
    with Scripted((200, answer)) as server, Following(server.url, clock=lambda: 10_000.0) as following:
        assert following.wait_for_sample(worker="w").time_unix_s == pytest.approx(9_990.0)


def test_a_sample_from_the_future_is_taken_for_one_of_now():
    """It would never become stale."""
    answer = told(samples=[sample("w", time_unix_s=1e9).to_json()])
    with Scripted((200, answer)) as server, Following(server.url, clock=lambda: 1000.0) as following:
        assert following.wait_for_sample(worker="w").time_unix_s == 1000.0


def test_a_clock_that_is_decades_off_makes_no_time_before_1970():
    answer = told(now_unix_s=3000.0, samples=[sample("w", time_unix_s=1500.0).to_json()])
    with Scripted((200, answer)) as server, Following(server.url, clock=lambda: 1000.0) as following:
        assert following.wait_for_sample(worker="w").time_unix_s == 0.0


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, b"<html>hello</html>"), "not a tpumon exporter"),
        ((200, b'{"status": "ok"}'), "not a tpumon exporter"),
        ((200, b"[" * 100_000), "not a tpumon exporter"),
        ((200, b'{"tpumon": ' + b"9" * 5000 + b"}"), "not a tpumon exporter"),
        ((404, b"not found"), "not a tpumon exporter"),
        ((302, b"", ("Location", "http://127.0.0.1:1/")), "not a tpumon exporter"),
        ((200, told(schema=2, tpumon="9\x1b[31m")), "it runs tpumon 9, whose samples this version cannot read"),
        (
            (200, told(sequence="1")),
            "cannot read (Expected `int | null`, got `str` - at `$.sequence`); update the older",
        ),
        ((401, b""), "wrong user or password; give https://USER:PASSWORD@HOST:PORT"),
        ((503, b""), "too busy"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not a tpumon exporter"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "the connection was closed early"),
        (b"", "is `tpumon serve` running there?"),
    ],
)
def test_what_is_no_exporter_is_said_so(answer, words):
    """In one safe line with the address, until there is one; no redirect is followed."""
    with Scripted(answer) as server, Following(server.url) as following:
        line = following.wait_for_waiting(words)
        assert line.startswith(f"exporter {server.url}: ")
        assert "\x1b" not in line
        server.answers.append((200, told()))
        following.wait_for_sample(worker="w")


def test_an_answer_without_end_is_cut_off(monkeypatch):
    """By size."""
    monkeypatch.setattr(exporter_client, "ANSWER_BYTES", 1 << 20)
    with Scripted((200, b"x" * (2 << 20))) as server, Following(server.url) as following:
        following.wait_for_waiting("its answer is larger than 1 MiB")


def test_a_server_that_does_not_answer_is_given_up(monkeypatch):
    """By time; leaving does not wait for it either."""
    monkeypatch.setattr(exporter_client, "READ_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with Following(f"http://127.0.0.1:{silent.getsockname()[1]}") as following:
            following.wait_for_waiting("no answer in time")
        monkeypatch.setattr(exporter_client, "READ_S", 20.0)
        with Following(f"http://127.0.0.1:{silent.getsockname()[1]}"):
            pass


def test_a_password_is_used_and_never_shown(tmp_path):
    """Nor is a certificate that nobody vouches for accepted."""
    files = certificates(tmp_path)
    hashed = bcrypt.hashpw(b"se:cret/", bcrypt.gensalt(4)).decode()
    (files / "web.yml").write_text(
        f"tls_server_config: {{cert_file: server.crt, key_file: server.key}}\nbasic_auth_users: {{me: '{hashed}'}}\n"
    )
    with serving("w", web_config=files / "web.yml") as output, pytest.MonkeyPatch.context() as patch:
        output.add(sample("w"))
        with Following(f"https://me:se%3Acret%2F@{output.address}") as following:
            assert "certificate is not trusted" in following.wait_for_waiting("SSL_CERT_FILE")
        patch.setenv("SSL_CERT_FILE", str(files / "ca.crt"))
        with Following(f"https://me:se%3Acret%2F@{output.address}") as following:
            following.wait_for_sample(worker="w")
        with Following(f"https://me:mistaken@{output.address}") as following:
            assert "mistaken" not in following.wait_for_waiting("wrong user or password")


@pytest.mark.parametrize(
    "url", ["", "ftp://h", "file:///etc/passwd", "http://", "http://h:99999", "http://[::1",
            "http://h/?q=1", "http://u:secret@h:port"],
)  # fmt: skip
def test_what_is_no_url_is_a_usage_error(url):
    """In one line that says what would do, without the password."""
    with pytest.raises(UsageError, match=r"--from: .*give --from http://HOST:10466") as error:
        RemoteFleet(url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("path", ["", "/", "/metrics", "/samples", "/metrics/"])
def test_the_page_that_people_know_will_do(path):
    """The address of a scrape."""
    with Scripted((200, told())) as server, Following(server.url + path) as following:
        following.wait_for_sample(worker="w")
        assert server.asked[0][0] == "/samples?history=1"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(REASONS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
WHOLE = sample("w", **FULL).to_json() | {"errors": [{"source": "a", "reason": "busy", "message": "m"}]}


@given(st.data())
def test_whatever_a_sample_holds_it_is_one_or_none(data):
    """One of another shape is none; in others, what is impossible is absent. Metrics and states take what is left."""
    raw = copy.deepcopy(WHOLE)
    for name in data.draw(st.lists(st.sampled_from(sorted(raw)), max_size=4, unique=True)):
        if isinstance(raw[name], dict) and raw[name] and data.draw(st.booleans()):
            raw[name][data.draw(st.sampled_from(sorted(raw[name])))] = data.draw(ANYTHING)
        elif isinstance(raw[name], list) and raw[name] and isinstance(raw[name][0], dict) and data.draw(st.booleans()):
            raw[name][0][data.draw(st.sampled_from(sorted(raw[name][0])))] = data.draw(ANYTHING)
        else:
            raw[name] = data.draw(ANYTHING)
    if data.draw(st.booleans()):
        raw.pop(data.draw(st.sampled_from(sorted(raw))))

    try:
        got = bounded(Sample.from_json(json.dumps(raw)))
    except ValueError:
        return
    json.dumps(got.to_json(), allow_nan=False)
    histories = Histories()
    histories.follow(found(got.worker))
    histories.add(got)
    for history in histories.all():
        history.state(got.time_unix_s)
    for metric in METRICS:
        if isinstance(metric, SampleMetric):
            for labels, value in metric.values(got):
                assert all(isinstance(label, str) and "\n" not in label for label in labels)
                assert math.isfinite(value)
                assert value >= 0


def test_a_sample_of_another_shape_is_a_failed_one():
    """It says what is wrong; those of others are taken."""
    targets = [{"worker": worker, "address": f"{worker}:9999"} for worker in ("odd", "w")]
    odd = sample("odd", time_unix_s=990.0).to_json() | {"idle_ratio": "0.5"}
    answer = told(targets=targets, samples=[odd, sample("w", time_unix_s=990.0).to_json()])
    with Scripted((200, answer)) as server, Following(server.url) as following:
        following.wait_for_sample(worker="w", source="trace")
        failed = next(each for each in following.samples if each.worker == "odd")
        (failure,) = failed.errors
        assert (failure.source, failure.reason) == ("exporter", "malformed")
        words = "a sample this version cannot read (Expected `float | null`, got `str` - at `$.idle_ratio`)"
        assert failure.message == f"exporter {server.url}: {words}; update the older of the two"


@given(ANYTHING)
def test_whatever_stands_for_a_sample_or_workers(value):
    """It is refused, and nothing else."""
    with pytest.raises(ValueError):
        Sample.from_json(json.dumps(value))
    for part in ({"targets": value}, {"waiting": value}):
        try:
            page = decoded(Page, json.dumps({"schema": 1, "tpumon": "0", **part}))
        except ValueError:
            continue
        assert all(target.worker and target.address for target in Workers.listed(page.targets, None).targets)


def test_workers_are_unique_and_safe():
    """Of two with a name the first; no escape sequences; not without end. Behind exporters, addresses repeat."""
    targets = [
        {"worker": "a\x1b[31m", "address": "h:1"},
        {"worker": "a", "address": "h:2"},
        {"worker": "b", "address": "h:1"},
        {"worker": "c", "address": "h:3", "job": "j\n", "slice": "s\n", "independent": True},
        {"worker": "x" * 100_000, "address": "h:4"},
        *({"worker": f"w{number}", "address": f"w{number}:1"} for number in range(20_000)),
    ]
    page = decoded(Page, json.dumps({"schema": 1, "tpumon": "0", "targets": targets}))
    workers = Workers.listed(page.targets, None).targets
    assert [(each.worker, each.address, each.job, each.slice, each.independent) for each in workers[:3]] == [
        ("a", "h:1", None, None, False),
        ("b", "h:1", None, None, False),
        ("c", "h:3", "j", "s", True),
    ]
    assert max(len(each.worker) for each in workers) <= 200
    assert len(workers) <= 10_000


def test_a_worker_that_is_not_followed_there_is_not_here():
    """Its samples are dropped."""
    answer = told(samples=[sample("other", time_unix_s=1.0).to_json(), sample("w", time_unix_s=1.0).to_json()])
    with Scripted((200, answer)) as server, Following(server.url) as following:
        following.wait_for_sample(worker="w")
        assert {each.worker for each in following.samples} == {"w"}


async def test_a_reader_that_is_cancelled_while_it_asks_ends():
    """The thread that asks holds nothing up."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        task = asyncio.create_task(RemoteFleet(f"http://127.0.0.1:{silent.getsockname()[1]}").feed(print))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

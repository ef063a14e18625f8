"""A server's own page of metrics over real HTTP: as it should be, and as no proper server has it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from fakes.tpu_node import Answer, Fail, TpuNode, closed_port
from fakes.tpu_node import Figures as NodeFigures
from tpumon.cli.commands.doctor import command as doctor
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sources import Client, server_metrics
from tpumon.collection.sources.server_metrics import ServerMetrics
from tpumon.discovery.finder import Fixed
from tpumon.discovery.selection import Selection
from tpumon.errors import Reason, SourceError
from tpumon.model import Query, Sample, Target

PAGE = b"""\
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_waiting{engine="0"} 2
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:generation_tokens_total{engine="0"} 100
"""


class Server:
    """An HTTP server with one answer, which a test may change.

    Attributes:
        paths: what was asked for.
        headers: of the last request.
    """

    def __init__(self, body: bytes = PAGE, status: int = 200, location: str = "") -> None:
        self.body, self.status, self.location = body, status, location
        self.paths: list[str] = []
        self.headers: dict[str, str] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.paths.append(self.path)
                server.headers = dict(self.headers)
                moved = server.location and self.path != server.location
                self.send_response(307 if moved else server.status)
                if moved:
                    self.send_header("Location", server.location)
                self.end_headers()
                self.wfile.write(b"" if moved else server.body)

            def log_message(self, *args: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/metrics"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error):
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def raw(first: bytes, again: bytes = b"") -> Iterator[str]:
    """The URL of a server that answers with these bytes, then with the others until its client is gone."""
    loop = asyncio.new_event_loop()

    async def answer(reader, writer):
        try:
            with contextlib.suppress(OSError):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(first)
                while again:
                    writer.write(again)
                    await writer.drain()
                if not first:
                    await reader.read()  # silent until the client goes
        finally:
            writer.close()

    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        for _ in range(3):  # until what they close is closed
            loop.run_until_complete(asyncio.sleep(0))
        server.close()
        loop.close()


def reader(url: str) -> ServerMetrics:
    return ServerMetrics(Target(worker="w", address="w:9999", server_metrics=url), Client)


def read(url: str):
    return asyncio.run(reader(url).read())


def failure(url: str) -> tuple[Reason, str]:
    with pytest.raises(SourceError) as failed:
        read(url)
    return failed.value.reason, failed.value.message


def test_a_page_is_read_in_one_plain_request():
    with Server() as server:
        figures = read(server.url).figures
    assert figures.server.requests_running == 3
    assert figures.server.tokens_per_s is None
    assert server.paths == ["/metrics"]
    assert server.headers["Connection"] == "close"
    assert "Authorization" not in server.headers


def test_rates_come_with_the_second_reading(monkeypatch):
    """A reading that comes too soon is compared with the one before the last."""
    clock_s = iter([10.0, 10.0, 10.0, 15.0, 15.0, 15.0, 15.2, 15.2, 15.2])
    monkeypatch.setattr(server_metrics, "time", SimpleNamespace(monotonic=lambda: next(clock_s)))
    monkeypatch.setattr(server_metrics, "get", lambda *_args, **_named: answers.pop(0))

    async def answer(tokens):
        return 200, PAGE.replace(b" 100\n", b" %d\n" % tokens)

    async def main():
        extra_source = reader("http://h:1/metrics")
        return [(await extra_source.read()).figures.server.tokens_per_s for _ in range(3)]

    answers = [answer(100), answer(600), answer(620)]
    assert asyncio.run(main()) == [None, pytest.approx(100), pytest.approx(100)]


def test_nothing_there_is_no_error():
    assert read(f"http://127.0.0.1:{closed_port()}/metrics") is None


def test_a_server_without_such_a_page_is_not_asked_again_soon():
    """Each question is a line in its log."""

    async def main(url):
        extra_source = reader(url)
        return [await extra_source.read() for _ in range(3)]

    with Server(b"", 404) as server:
        readings = asyncio.run(main(server.url))
    assert len(server.paths) == 1
    assert all(reading.figures.server is None for reading in readings)
    assert set(readings[2].figures.absent.values()) == {"the server has no metric of this"}


def test_only_its_own_path_with_a_slash_is_tried_when_it_moved():
    """As early vLLM 0.5 answers; where it points to is not looked at."""
    with Server(location="/metrics/") as server:
        assert read(server.url).figures.server.requests_running == 3
    with Server(location="/elsewhere") as server:
        assert failure(server.url) == ("malformed", "metrics of the server: HTTP 307 in place of metrics")
    assert server.paths == ["/metrics", "/metrics/"]


@pytest.mark.parametrize(
    ("status", "body", "reason", "words"),
    [
        (401, b"", "refused", "it wants a password"),
        (500, b"", "malformed", "HTTP 500"),
        (200, b"", "malformed", "empty"),
        (200, b"\x80\xff" * 1000, "malformed", "not text"),
        (200, b"<html>hello</html>", "malformed", "cut"),
        (200, PAGE + b"vllm:num_requests_running{\n", "malformed", "no sample"),
        (200, b"x" * (5 << 20), "too-large", "larger than 4 MiB"),
        (200, b"a 1\n" * 900_000, "malformed", "more than 100000 lines"),
    ],
)
def test_what_is_no_page_is_an_error_that_says_so(status, body, reason, words):
    with Server(body, status) as server:
        found, message = failure(server.url)
    assert found == reason
    assert words in message
    assert len(message) < 300


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("first", "again", "reason"),
    [
        (b"", b"", "deadline"),
        (OK + b"Content-Length: 1000\r\n\r\nvllm", b"", "malformed"),
        (OK + b"\r\n", b"x" * 65536, "too-large"),
        (OK + b"X: ", b"x" * 65536, "too-large"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 1000, "too-large"),
        (b"\x00\x01binary", b"", "malformed"),
        (b"SSH-2.0-OpenSSH_9\r\n", b"", "malformed"),
    ],
    ids=["silent", "cut", "endless body", "endless header", "endless chunks", "binary", "another protocol"],
)
def test_whoever_answers_otherwise_is_left_in_time(monkeypatch, first, again, reason):
    monkeypatch.setattr(server_metrics, "_ANSWER_S", 0.5 if reason == "deadline" else 30.0)
    with raw(first, again) as url:
        assert failure(url)[0] == reason


def sampled(node: str, url: str) -> Sample:
    samples: list[Sample] = []
    target = Target(worker="w", address=node, server_metrics=url)
    query, pace = Query(level=2, window_s=0.1), Pace(num_queries=1, attempts=1)
    asyncio.run(Sampler(Fixed([target]), query, pace, on_sample=samples.append).run())
    (sample,) = samples
    return sample


def test_its_figures_join_the_sample_of_the_profiler():
    with Server() as server, TpuNode(Answer(figures=NodeFigures(mxu=25.0))) as node:
        sample = sampled(node.address, server.url)
    assert (sample.source, sample.companions_only) == ("monitor", False)
    assert sample.figures.server is not None
    assert sample.figures.server.requests_waiting == 2
    assert "tokens_per_s" in sample.figures.absent


@pytest.mark.parametrize("node", [None, Fail()])
def test_a_server_that_answers_does_not_make_its_worker_live(node):
    """The process that uses the TPU is another one, and may have ended."""
    with Server() as server, contextlib.ExitStack() as stack:
        address = f"127.0.0.1:{closed_port()}" if node is None else stack.enter_context(TpuNode(node)).address
        sample = sampled(address, server.url)
    assert sample.source is None
    assert sample.figures.server is None


def test_doctor_says_whose_page_it_is(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TPUMON_PAUSE_DIR", str(tmp_path))
    with Server() as server, TpuNode(Answer(figures=NodeFigures(mxu=25.0))) as node:
        where = Selection(addresses=(node.address,), server_metrics={"": server.url})
        doctor.run(where=where, output="json")
        (report,) = json.loads(capsys.readouterr().out)["server_metrics"]
        doctor.run(where=where)
    assert report["address"] == server.url
    assert report["words"] == "vLLM: requests_running, requests_waiting, kv_used_ratio"
    assert "The server's own metrics\n" in capsys.readouterr().out

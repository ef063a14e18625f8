"""Where a server of models has its page of metrics: by its own command line, or as the user says."""

from __future__ import annotations

import asyncio

import pytest

from tpumon.discovery.finder import Fixed
from tpumon.discovery.host.processes import program_and_arguments
from tpumon.discovery.host.server_pages import page_port_of
from tpumon.discovery.server_metrics import WithServerMetrics, parse_server_metrics
from tpumon.errors import UsageError
from tpumon.model import ListedTarget, Target


@pytest.mark.parametrize(
    ("command", "port"),
    [
        ("python3 /opt/bin/vllm serve m", 8000),
        ("/opt/bin/vllm serve m --port 8001", 8001),
        ("python3.11 /opt/bin/vllm serve m --port=8001 --host 0.0.0.0", 8001),
        ("vllm serve m --port 1 --port 8002", 8002),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", 8000),
        ("VLLM::APIServer_0", 8000),
        ("vllm serve m --metrics-port 9000 --port 8001", 9000),
        ("python3 -m jetstream.entrypoints.http.api_server --port 8080", 9988),
        ("python3 -m jetstream.entrypoints.http.api_server --prometheus_port=9001", 9001),
        ("python3 MaxText/maxengine_server.py configs/base.yml prometheus_port=9090", 9090),
        ("python3 -m jetstream.core.implementations.mock.server --port 9000 --prometheus_port 9988", 9988),
        ("python3 -m sgl_jax.launch_server --port 30001 --enable-metrics", 30001),
        ("python3 -m sgl_jax.launch_server --enable-metrics", 30000),
    ],
)
def test_the_port_of_a_known_servers_page(command, port):
    assert port_of(command) == port


@pytest.mark.parametrize(
    "command",
    [
        "python3 train.py --port 8000",
        "python3 serving_loop.py --metrics-port 8012",
        "python3 train_vllm.py --port 8000",
        "nginx --port 8000",
        "vllm serve m --grpc --port 50051",
        "python3 -m vllm.entrypoints.grpc_server --port 50051",
        "vllm serve m --ssl-certfile c.pem --ssl-keyfile k.pem",
        "vllm serve m --uds /run/vllm.sock",
        "vllm serve m --port x",
        "vllm serve m --port",
        "vllm serve m --port 99999999999999999999",
        "python3 MaxText/maxengine_server.py configs/base.yml",
        "python3 MaxText/maxengine_server.py configs/base.yml prometheus_port=0",
        "python3 -m jetstream.core.implementations.mock.server --port 9000",
        "python3 -m sgl_jax.launch_server --port 30001",
    ],
)
def test_a_port_that_is_not_known_to_speak_http_is_no_page(command):
    assert port_of(command) is None


def port_of(command):
    return page_port_of(*program_and_arguments(command.encode().split(b" ")))


URL = "http://127.0.0.1:8000/metrics"


def with_pages(texts, *targets):
    async def first():
        discovery = WithServerMetrics(Fixed(targets), parse_server_metrics(texts))
        return [workers async for workers in discovery.watch(lambda: False)]

    (workers,) = asyncio.run(first())
    return [target.server_metrics for target in workers.targets]


A, B = Target(worker="a", address="10.0.0.2:9999"), Target(worker="b", address="[fd00::2]:9999", server_metrics="found")


@pytest.mark.parametrize(
    ("texts", "targets", "pages"),
    [
        ([URL], [A], [URL]),
        ([URL], [B], [URL]),
        (["b=http://h:1"], [A, B], [None, "http://h:1/metrics"]),
        (["a=http://h:1/", f"b={URL}"], [A, B], ["http://h:1/metrics", URL]),
        (["10.0.0.2:9999=https://h/x"], [A, B], ["https://h/x", "found"]),
        (["[fd00::2]:9999=http://h:1", URL], [B], ["http://h:1/metrics"]),
    ],
)
def test_a_page_is_of_the_worker_that_is_named_or_of_the_only_one(texts, targets, pages):
    assert with_pages(texts, *targets) == pages


def test_of_several_workers_one_must_be_named(said):
    """Nobody knows whose requests these are."""
    assert with_pages([URL], A, B) == [None, "found"]
    assert said == ["--server-metrics: there are several workers; say whose server it is: WORKER=URL"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["h:8000"], "not the URL of a server's metrics; give http://HOST:PORT/metrics"),
        (["=http://h:1"], "give http://HOST:PORT/metrics"),
        (["a="], "not the URL"),
        (["ftp://h/"], "not the URL"),
        (["http://h:1/metrics?x=1"], "not the URL"),
        (["http://h:1/#x"], "not the URL"),
        (["http://h:x/"], "not a URL"),
        (["http://h:0/"], "not the URL"),
        (["http://h:1/a\r\nX: y"], "not the URL"),
        (["http:///metrics"], "not the URL"),
        (["http://user:secret@h:1"], "the URL has a password"),
        (["a=http://user@h:1"], "the URL has a password"),
        ([URL, URL], "two pages of the only worker"),
        ([f"a={URL}", "a=http://h:1"], "two pages of worker a"),
    ],
)
def test_what_is_no_page(texts, message):
    with pytest.raises(UsageError, match=r"^--server-metrics: ") as error:
        parse_server_metrics(texts)
    assert message in str(error.value)
    assert "secret" not in str(error.value)


def test_readers_of_this_tpumon_do_not_see_it():
    assert "server_metrics" not in ListedTarget.__struct_fields__

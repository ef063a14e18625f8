"""The profiler servers of this host, for who asked at another port."""

from __future__ import annotations

import asyncio

import pytest

from tpumon.discovery.host import port_survey
from tpumon.discovery.host.listening import Listener, Owner
from tpumon.discovery.host.port_survey import Elsewhere, SurveyedPort
from tpumon.model import Process


class Host:
    """Ports that listen, those of them with a profiler server, and how often they were called."""

    def __init__(self):
        self.ports, self.profilers, self.calls = [], {}, 0

    def listeners(self):
        return [Listener(port=port, address=f"127.0.0.1:{port}", inodes=frozenset({port})) for port in self.ports]

    async def survey(self):
        self.calls += 1
        return [
            SurveyedPort(
                address=f"127.0.0.1:{port}",
                port=port,
                is_profiler=port in self.profilers,
                owner=self.profilers.get(port),
            )
            for port in self.ports
        ]

    def serve(self, port, pid, command):
        self.ports.append(port)
        self.profilers[port] = Owner(pid=pid, program="python3.11", process=Process(pid=pid, command=command))


@pytest.fixture
def host(monkeypatch):
    host = Host()
    monkeypatch.setattr(port_survey, "read_listeners", host.listeners)
    monkeypatch.setattr(port_survey, "survey", host.survey)
    return host


def said(*addresses, asked=(), elsewhere=None):
    elsewhere = elsewhere or Elsewhere()

    async def ask():
        return [await elsewhere.words(address, asked) for address in addresses]

    return asyncio.run(ask())


def test_the_one_that_answers_is_named_with_its_process_and_a_command(host):
    host.serve(9999, 42, "python train.py")
    host.ports.append(9998)
    assert (
        said("127.0.0.1:9998", "localhost:9997")
        == ["; a profiler server answers at 127.0.0.1:9999 (pid 42, train.py): `tpumon --service-addr 127.0.0.1:9999`"]
        * 2
    )


def test_of_several_the_first_are_named(host):
    for port in range(9001, 9006):
        host.serve(port, port, "python -m train")
    (words,) = said("127.0.0.1:8466")
    assert words.startswith("; profiler servers answer at 127.0.0.1:9001 (pid 9001, train), 127.0.0.1:9002 (")
    assert words.endswith(": `tpumon --service-addr 127.0.0.1:9001,127.0.0.1:9002,127.0.0.1:9003`")


def test_what_a_process_calls_itself_is_one_plain_word(host):
    host.serve(9999, 42, "python delete\x1b[31m;everything$(x)")
    assert "(pid 42, delete_everything_x_)" in said("127.0.0.1:1")[0]


@pytest.mark.parametrize("address", ["192.0.2.1:9998", "worker-3.example:9998"])
def test_of_another_host_nothing_is_said_and_nobody_is_called(host, address):
    host.serve(9999, 42, "python train.py")
    assert (said(address), host.calls) == ([""], 0)


def test_one_that_is_asked_anyway_and_none_are_not_worth_a_word(host):
    assert said("127.0.0.1:9998") == [""]
    host.serve(9999, 42, "python train.py")
    assert said("127.0.0.1:9998", asked=["localhost:9999", "127.0.0.1:9998"]) == [""]


def test_ports_are_called_again_only_when_something_else_listens(host):
    elsewhere = Elsewhere()
    host.ports.append(9000)
    assert said("127.0.0.1:9998", elsewhere=elsewhere) == [""]
    assert said("127.0.0.1:9998", elsewhere=elsewhere) == [""]
    assert host.calls == 1
    host.serve(9999, 42, "python train.py")
    assert "127.0.0.1:9999" in said("127.0.0.1:9998", elsewhere=elsewhere)[0]
    assert host.calls == 2


@pytest.mark.parametrize("error", [PermissionError, ValueError])
def test_where_the_listeners_cannot_be_read_nothing_is_said(host, monkeypatch, error):
    def unreadable():
        raise error

    monkeypatch.setattr(port_survey, "read_listeners", unreadable)
    assert said("127.0.0.1:9998") == [""]

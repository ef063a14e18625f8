"""Names with several addresses, by a name server that tells what it likes."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter

import pytest

from support.watching import watching
from tpumon.discovery.dns import DnsNames
from tpumon.system.threads import resolve_host


class NameServer:
    """Attributes:
    answers: by name, addresses or an error; no other name is known.
    """

    def __init__(self, **answers):
        self.answers = answers
        self.asked = Counter()

    async def resolve(self, host):
        self.asked[host] += 1
        answer = self.answers.get(host, socket.gaierror("no such name"))
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, list) else []

    def finder(self, *addresses, every_s=0.01, soon_s=0.005):
        return DnsNames(addresses, resolve=self.resolve, resolve_every_s=every_s, soon_s=soon_s)

    async def asked_again(self, watch, host, times):
        seen = self.asked[host]
        await watch.until(lambda: self.asked[host] > seen + times)


async def test_each_address_of_a_name_is_a_worker():
    """By its address, which is what is known of it; in one order, whatever order they come in."""
    server = NameServer(svc=["10.0.0.7", "10.0.0.10", "10.0.0.9"])
    async with watching(server.finder("svc:9999")) as watch:
        await watch.shows({f"10.0.0.{n}:9999": f"10.0.0.{n}:9999" for n in (7, 9, 10)})
        assert [target.address for target in watch.found[0].targets][2] == "10.0.0.10:9999"
        server.answers["svc"] = ["10.0.0.9", "10.0.0.7", "10.0.0.10"]
        await server.asked_again(watch, "svc", 3)
    assert len(watch.found) == 1


@pytest.mark.parametrize("ips", [["10.0.0.7"], ["10.0.0.7", "fd00::7"], ["fd00::7"], [], OSError()])
async def test_a_name_of_one_place_stays_a_name(ips):
    """gRPC resolves it; IPv4 and IPv6 of one host are one worker."""
    async with watching(NameServer(host=ips).finder("host:9999")) as watch:
        await watch.shows({"host": "host:9999"})


async def test_of_both_families_one_is_followed():
    """Else each worker of a service would be two."""
    server = NameServer(svc=["fd00::7", "fd00::8", "10.0.0.7", "10.0.0.8"], six=["fd00::1", "fd00::2"])
    async with watching(server.finder("svc:1", "six:1")) as watch:
        await watch.until(lambda: watch.found)
        assert list(watch.now) == ["10.0.0.7:1", "10.0.0.8:1", "[fd00::1]:1", "[fd00::2]:1"]
        server.answers["svc"] = ["fd00::7", "fd00::8"]  # a part of the truth
        await server.asked_again(watch, "svc", 6)
    assert len(watch.found) == 1


async def test_one_place_that_moves_is_the_same_worker():
    """A pod that restarts, or round robin with one address an answer: the name says where, and stays."""
    server = NameServer(**{"w-0": ["10.0.0.1"], "w-1": ["10.0.0.2"]})
    async with watching(server.finder("w-0:9999", "w-1:9999")) as watch:
        await watch.shows({"w-0": "w-0:9999", "w-1": "w-1:9999"})
        for n in (7, 8, 2) * 3:
            server.answers["w-1"] = [f"10.0.0.{n}"]
            await server.asked_again(watch, "w-1", 0)
        assert len(watch.found) == 1
        server.answers["w-1"] = ["10.0.0.7", "10.0.0.8"]
        await watch.shows({"w-0": "w-0:9999"} | {f"10.0.0.{n}:9999": f"10.0.0.{n}:9999" for n in (7, 8)})


async def test_what_comes_is_followed_and_what_goes_is_not_at_once():
    """An address that is missing from one answer, or from two, is still there."""
    server = NameServer(svc=["10.0.0.1", "10.0.0.2"])
    async with watching(server.finder("svc:1")) as watch:
        await watch.until(lambda: watch.found)
        server.answers["svc"] = ["10.0.0.1", "10.0.0.3"]
        await watch.until(lambda: len(watch.now) == 3)
        await watch.until(lambda: list(watch.now) == ["10.0.0.1:1", "10.0.0.3:1"])
        server.answers["svc"] = ["10.0.0.3"]
        await watch.until(lambda: list(watch.now) == ["10.0.0.3:1"])  # one now, but not under another name
    assert len(watch.found) == 4


async def test_a_name_server_that_flaps_changes_nothing():
    """No answer is no news; parts of the answer are made up for."""
    server = NameServer(svc=["10.0.0.1", "10.0.0.2"])
    async with watching(server.finder("svc:1")) as watch:
        await watch.until(lambda: watch.found)
        for answer in (OSError(), ["10.0.0.1"], TimeoutError(), ["10.0.0.2"], UnicodeError(), OSError()) * 3:
            server.answers["svc"] = answer
            await server.asked_again(watch, "svc", 0)
        server.answers["svc"] = OSError()
        await server.asked_again(watch, "svc", 10)
        assert watch.finders[-1] == {"dns": False}
        server.answers["svc"] = ["10.0.0.1"]
        await watch.until(lambda: watch.finders[-1] == {"dns": True})
    assert len(watch.found) == 1


async def test_when_all_are_gone_new_ones_take_their_place_at_once():
    """A job that was moved as a whole: its name is asked for sooner, and nobody waits for what is gone."""
    server = NameServer(svc=["10.0.0.1", "10.0.0.2"])
    async with watching(server.finder("svc:1", every_s=3600)) as watch:
        await watch.until(lambda: watch.found)
        server.answers["svc"] = ["10.0.9.1", "10.0.9.2"]
        await asyncio.sleep(0.05)
        assert server.asked["svc"] == 1
        watch.gone = True
        await watch.shows({"10.0.9.1:1": "10.0.9.1:1", "10.0.9.2:1": "10.0.9.2:1"})
    assert len(watch.found) == 2


async def test_the_last_addresses_stay_to_be_shown_as_down():
    """A name that stands for nothing any more does not make its workers unseen."""
    server = NameServer(svc=["10.0.0.1", "10.0.0.2"])
    async with watching(server.finder("svc:1")) as watch:
        await watch.until(lambda: watch.found)
        server.answers["svc"] = []
        await server.asked_again(watch, "svc", 10)
    assert len(watch.found) == 1


async def test_the_first_result_does_not_wait_for_a_name_server(monkeypatch):
    """A name that is not answered for is as it was given, until it is."""
    monkeypatch.setattr("tpumon.discovery.dns._FIRST_S", 0.01)
    late = asyncio.Event()
    server = NameServer(svc=late, other=["10.0.0.1", "10.0.0.2"])
    async with watching(server.finder("svc:1", "other:1")) as watch:
        await watch.until(lambda: watch.found)
        assert list(watch.now) == ["svc", "10.0.0.1:1", "10.0.0.2:1"]
        server.answers["svc"] = ["10.0.1.1", "10.0.1.2"]
        late.set()
        await watch.until(lambda: len(watch.now) == 4)


async def test_addresses_in_numbers_are_told_once_and_nobody_is_asked():
    """Nothing about them can change."""
    server = NameServer()
    found = [found async for found in server.finder("10.0.0.1:1", "[fd00::1]:1", "localhost:1").watch(lambda: False)]
    assert len(found) == 1
    assert [target.address for target in found[0].targets] == ["10.0.0.1:1", "[fd00::1]:1", "localhost:1"]
    assert not server.asked


async def test_what_is_named_twice_is_one_worker():
    """By its name and by its address."""
    server = NameServer(svc=["10.0.0.1", "10.0.0.2"])
    async with watching(server.finder("10.0.0.2:1", "svc:1")) as watch:
        await watch.until(lambda: watch.found)
    assert list(watch.now) == ["10.0.0.2:1", "10.0.0.1:1"]


def test_this_machines_resolver():
    """It knows its own loopback, and says of other names that it does not know them."""
    assert "127.0.0.1" in asyncio.run(resolve_host("localhost"))
    with pytest.raises(OSError):
        asyncio.run(resolve_host("no-such-host.invalid"))

"""How often exporters are asked, how many at once, and what is asked of them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import json
import socket
import time

import pytest

from support.exporter import found, sample, serving
from tpumon.analysis import Analysis
from tpumon.collection import http_get
from tpumon.collection.remote import RemoteFleet, fleet
from tpumon.collection.remote.exporter import RemoteExporter, SamplesPage
from tpumon.collection.remote.exporter_client import ExchangeError, Secret
from tpumon.collection.remote.fleet import Pacer
from tpumon.model import ExporterSnapshot, Sample, Workers
from tpumon.model.documents import decoded
from tpumon.model.page import Page
from tpumon.outputs import Context
from tpumon_exporters.pages import Pages
from tpumon_exporters.web import Request

BEGIN = 1_800_000_000.0


def read(page):
    """As it comes over the network."""
    return decoded(Page, json.dumps(page))


def page(*samples, workers=("w",), **more):
    return {
        "schema": 1,
        "tpumon": "1",
        "run": "one",
        "sequence": 1,
        "now_unix_s": BEGIN,
        "targets": [{"worker": worker, "address": f"{worker}:1"} for worker in workers],
        "samples": [one.to_json() for one in samples],
    } | more


def exporter(now=None, **options):
    return RemoteExporter(
        SamplesPage("http://h:1"), clock=lambda: BEGIN, monotonic_s=lambda: (now or [0.0])[0], **options
    )


def answered(remote, *samples, **more):
    asyncio.run(remote._answered(read(page(*samples, **more)), BEGIN, lambda _event: None))


def taken(worker="w", *, age_s, interval_s=10.0):
    return sample(worker, time_unix_s=BEGIN - age_s, took_s=1.0, interval_s=interval_s)


@pytest.mark.parametrize(
    ("age_s", "interval_s", "wanted_s"), [(1.2, 10.0, 10.0), (4.0, 10.0, 7.7), (9.9, 10.0, 1.8), (1.0, 600.0, 10.0)]
)
def test_an_exporter_of_one_worker_is_asked_when_its_next_sample_should_be_there(age_s, interval_s, wanted_s):
    """The next one begins an interval after this one, and is there once it is taken."""
    remote = exporter()
    answered(remote, taken(age_s=age_s, interval_s=interval_s))
    assert remote.pause_s(60.0) == pytest.approx(wanted_s)
    assert remote.pause_s(1.0) == 1.0, "a few exporters are asked each second"


def test_while_nothing_new_comes_an_exporter_is_asked_less_and_less():
    """First soon: the sample may be a little late."""
    remote, pauses_s = exporter(), []
    answered(remote, taken(age_s=1.0))
    for _ in range(6):
        answered(remote)
        pauses_s.append(remote.pause_s(60.0))
    assert pauses_s == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    answered(remote, taken(age_s=12.0), taken(age_s=2.0))
    assert remote.pause_s(60.0) == pytest.approx(9.7)
    for _ in range(4):
        answered(remote, taken(age_s=2.5, interval_s=1.0))
        assert remote.pause_s(60.0) == 1.0, "samples come back to back"


@pytest.mark.parametrize(("ahead_s", "asking_s", "corrected"), [(0.4, 1.0, 0.0), (0.4, 0.1, 0.4), (-0.6, 1.0, -0.6)])
def test_a_clock_is_corrected_only_if_it_differs(ahead_s, asking_s, corrected):
    """Not by less than a slow answer leaves unsure."""
    events = []
    said = page(taken(age_s=2.0), now_unix_s=BEGIN + ahead_s)
    asyncio.run(exporter()._answered(read(said), BEGIN, events.append, asking_s))
    assert events[-1].time_unix_s == pytest.approx(BEGIN - 2.0 - corrected)


def test_an_exporter_of_many_workers_is_asked_as_often_as_they_are_sampled():
    """Between 1 and 10 s."""
    names = [f"w{number}" for number in range(20)]
    remote = exporter()
    answered(remote, *(taken(name, age_s=1.0) for name in names[:4]), workers=names[:4])
    assert remote.pause_s(60.0) == pytest.approx(2.5)
    answered(remote, *(taken(name, age_s=1.0) for name in names), workers=names)
    assert remote.pause_s(60.0) == 1.0


def test_one_that_fails_is_tried_again_soon_then_with_pauses():
    """And one of large answers less often, whatever it says."""
    remote = exporter()
    for wanted_s in (1.0, 7.0, 7.0):
        remote._failed(ExchangeError("unavailable", "gone"), BEGIN, lambda _event: None)
        assert remote.pause_s(7.0) == wanted_s
    remote = exporter()
    remote._page.last_bytes = 32 << 20
    assert remote.pause_s(1.0) == pytest.approx(8.4, abs=0.1)


def test_what_came_through_this_process_is_refused_for_a_while():
    """Also when it no longer does: it may have refused ours since, and both would begin again for ever."""
    now = [0.0]
    remote = exporter(now, own_run="me")
    remote._refuse_own(read(page(via=["other"])))
    for said in (page(via=["a", "me"]), page(via=[]), page(run="me")):
        with pytest.raises(ExchangeError, match="leave it out of --from"):
            remote._refuse_own(read(said))
    remote._refuse_own(read(page(run="restarted")))
    remote._refuse_own(read(page(via=[])))
    with pytest.raises(ExchangeError):
        remote._refuse_own(read(page(via=["me"])))
    now[0] = 121.0
    remote._refuse_own(read(page(via=[])))


@pytest.mark.virtual_time
async def test_few_exchanges_begin_at_once_and_who_is_silent_makes_room():
    """In virtual time: 300 exchanges, of which each third gets no answer for 10 s."""
    pacer, loop = Pacer(), asyncio.get_running_loop()
    began_s, busy, most = loop.time(), 0, 0
    done_s = {}

    async def ask(number):
        nonlocal busy, most
        async with pacer.turn():
            busy, most = busy + 1, max(most, busy + 1)
            await asyncio.sleep(10.0 if number % 3 == 0 else 0.05)
            busy -= 1
        done_s[number] = loop.time() - began_s

    async with asyncio.TaskGroup() as group:
        for number in range(300):
            group.create_task(ask(number))
    answered_s = max(at for number, at in done_s.items() if number % 3)
    assert most <= 64 + 100
    assert answered_s < 4.0


@pytest.mark.virtual_time
async def test_all_exchanges_together_are_paced():
    """Of 1,000 that are due at once, 250 a second."""
    pacer, loop = Pacer(), asyncio.get_running_loop()
    began_s = loop.time()

    async def ask():
        async with pacer.turn():
            pass

    async with asyncio.TaskGroup() as group:
        for _ in range(1000):
            group.create_task(ask())
    assert (loop.time() - began_s) == pytest.approx(4.0, abs=0.3)


class Silent:
    """A server that takes connections and never answers."""

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *error):
        self._listener.close()


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_silent_exporters_hold_up_no_other(said):
    """300 of them; the first workers do not wait for all of their deadlines, and a line says who is missing."""
    events = []

    def ratios():
        return [event.figures.idle_ratio for event in events if isinstance(event, Sample) and event.worker == "w"]

    async def main(silent, output):
        where = ",".join([*(f"{silent}/{number}" for number in range(300)), output.address])
        following = asyncio.create_task(RemoteFleet(where).feed(events.append))
        began_s = time.monotonic()
        await until(lambda: ratios() == [0.1])
        assert time.monotonic() - began_s < 4.5
        assert said == [
            f"exporter {silent}/0 has not answered yet, nor have 299 more exporters; their workers are missing"
        ]
        for ratio in (0.2, 0.3, 0.4):
            output.add(sample("w", idle_ratio=ratio, interval_s=1.0))
            await until(lambda wanted=ratio: ratios()[-1] == wanted)
        assert time.monotonic() - began_s < 15
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following

    with Silent() as silent, serving("w") as output:
        output.add(sample("w", idle_ratio=0.1, interval_s=1.0))
        asyncio.run(main(silent, output))


def test_an_error_in_the_stream_ends_it():
    """It is not lost in some task."""

    def broken(_event):
        raise RuntimeError("an output is broken")

    with serving("w") as output, pytest.raises(RuntimeError, match="an output is broken"):
        asyncio.run(RemoteFleet(output.address).feed(broken))


async def test_a_token_is_read_again_and_one_thread_hangs_at_most(tmp_path, monkeypatch):
    """Tokens expire; a file of another host may hang."""
    file = tmp_path / "token"
    monkeypatch.setattr("tpumon.collection.remote.exporter_client._SECRET_S", 0.0)
    secret = Secret(str(file))
    file.write_text("abc\n")
    assert await secret.header() == "Bearer abc"
    file.write_text("me:pw")
    assert await secret.header() == "Basic bWU6cHc="
    file.write_text("two\nlines")
    with pytest.raises(ValueError, match="token: give one line in it"):
        await secret.header()
    file.unlink()
    with pytest.raises(ValueError, match="token: No such file"):
        await secret.header()
    reads = []
    monkeypatch.setattr(secret, "_read", lambda: reads.append(1) or time.sleep(0.5))
    monkeypatch.setattr("tpumon.collection.remote.exporter_client.READ_S", 0.05)
    for _ in range(3):
        with pytest.raises(ValueError, match="cannot be read in time"):
            await secret.header()
    assert len(reads) == 1


def test_history_is_as_large_as_its_reader_asks():
    """It is coarser, with fewer samples; 1, as earlier versions ask, means all."""
    fleet = Analysis()
    fleet.remember()
    fleet.add(found("a", "b"))
    pages = Pages(Context(analysis=fleet, clock=lambda: BEGIN))
    for number in range(1000):
        ratio = number * 37 % 997 / 997
        fleet.add(sample("a", time_unix_s=BEGIN - 10_000 + 10 * number, idle_ratio=ratio, mxu_utilization_ratio=ratio))

    def sizes(history):
        body = pages.answer(Request(path="/samples", query={"history": [history]})).body
        return {worker: len(json.dumps(known)) for worker, known in json.loads(body)["history"].items()}

    whole = sizes("1")
    assert sizes("99999999999") == whole
    assert 0 < sizes("3000")["a"] < whole["a"] * 2 / 3, whole


def test_several_share_the_history_that_is_handed_on(monkeypatch):
    """One gets all of it."""
    monkeypatch.setattr(fleet, "_HISTORY_BYTES", 3000)
    asked = []

    async def fetch(_page, after, changed=None, history_bytes=None):
        asked.append((after, changed, history_bytes))
        return read(page(workers=()))

    monkeypatch.setattr(SamplesPage, "fetch", fetch)

    async def main(where, exchanges):
        asked.clear()
        events = []
        following = asyncio.create_task(RemoteFleet(where, poll_s=60).feed(events.append))
        await until(lambda: len(asked) == exchanges)
        following.cancel()
        assert not any(isinstance(event, (ExporterSnapshot, Sample)) for event in events)
        assert all(isinstance(event, Workers) for event in events)

    asyncio.run(main("a:1", 1))
    assert asked == [(None, None, None)]
    asyncio.run(main("a:1,b:1,c:1", 3))
    assert asked == [(None, None, 1000)] * 3


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK + b"content-length: 2\r\n\r\n{}", b"{}"),
        (OK + b"Content-Length: 0\r\n\r\n", b""),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n1\r\n \r\n0\r\n\r\n", b"{} "),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b""),
        (b"SSH-2.0-OpenSSH_9.2\r\n", None),
    ],
)
async def test_an_answer_ends_where_it_says_though_the_connection_stays_open(answer, body):
    """Proxies keep connections open, whatever they are asked."""

    ended = asyncio.Event()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(answer), 7):
                writer.write(answer[at : at + 7])
                await writer.drain()
                await asyncio.sleep(0)
            await reader.read()
        writer.close()
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        place = http_get.Endpoint(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
        asking = http_get.get(
            place,
            "/",
            {},
            http_get.AddressCache(),
            read_s=5,
            most_bytes=1000,
            is_large=pytest.fail,
        )
        began_s = time.monotonic()
        if body is None:
            with pytest.raises(http.client.HTTPException):
                await asking
        else:
            assert await asking == (200, body)
        assert time.monotonic() - began_s < 4
        await ended.wait()


def test_a_host_that_does_not_answer_is_looked_up_again():
    """Its address may be another one by now; one that does is looked up twice a minute."""
    asked, answers = [], ["127.0.0.2"]

    async def resolve(host):
        asked.append(host)
        return answers

    async def main(port):
        names = http_get.AddressCache(resolve)
        place = http_get.Endpoint(host="exporter.example", port=port)
        ask = functools.partial(
            http_get.get,
            place,
            "/",
            {"Host": "localhost"},
            names,
            read_s=5,
            most_bytes=1000,
            is_large=pytest.fail,
        )
        with pytest.raises(OSError, match="Connection refused"):
            await ask()
        answers[:] = ["127.0.0.2", "127.0.0.1"]
        for _ in range(3):
            assert (await ask())[0] == 200

    with serving("w") as output:
        asyncio.run(main(int(output.address.rpartition(":")[2])))
    assert len(asked) == 2

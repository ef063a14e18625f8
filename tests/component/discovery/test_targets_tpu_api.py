"""Workers of TPUs by name: a fake TPU API and a fake metadata server by real HTTP, with google-auth in between."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from fakes.google import Google, node
from support.watching import watching
from tpumon.discovery import tpu_api
from tpumon.discovery.google_api import ApiError, TpuApi
from tpumon.discovery.tpu_api import NamedTpus
from tpumon.errors import NoTargetError, SourceError, TpumonError, UsageError

ONCE = lambda: False  # noqa: E731


@pytest.fixture
def google(monkeypatch, tmp_path):
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCE_METADATA_IP", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with Google() as google:
        for name, value in google.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("GCE_METADATA_IP", google.host)  # google-auth reads the other once, when it is imported
        monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", google.host)
        yield google


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    for name in ("_SHORTEST_PAUSE_S", "_KNOCK_AGAIN_S"):
        monkeypatch.setattr(tpu_api, name, 0.02)


class Slices:
    """What answers at the workers' ports.

    Attributes:
        answers: by address, None for a profiler server or a reason; nothing listens elsewhere.
    """

    def __init__(self, *profilers):
        self.answers = dict.fromkeys(profilers)
        self.calls = Counter()

    async def call(self, address):
        self.calls[address] += 1
        reason = self.answers.get(address, "unavailable")
        return None if reason is None else SourceError(reason, f"{address}: {reason}")

    def finder(self, *names, **options):
        return NamedTpus(names, call=self.call, poll_s=0.01, **options)


def first(finder):
    async def main():
        async for found in finder.watch(ONCE):
            return found
        return None

    return asyncio.run(main())


def addresses(found):
    return {target.worker: target.address for target in found.targets}


def test_all_workers_of_a_slice_by_their_internal_addresses(google):
    """In the API's order, which is theirs; zone and project are this machine's."""
    google.nodes["tpu"] = node("tpu", ["10.0.0.2", "10.0.0.3", "10.0.0.1"])
    found = first(NamedTpus(["tpu"], port=9999))
    assert addresses(found) == {"tpu-w-0": "10.0.0.2:9999", "tpu-w-1": "10.0.0.3:9999", "tpu-w-2": "10.0.0.1:9999"}
    assert {target.slice for target in found.targets} == {"tpu"}
    assert google.lookups == ["tpu"]


def test_slices_of_one_queued_resource_are_one_job(google):
    """One that has no other slices is no job: the queue is only how it was asked for."""
    queued = {"queuedResource": "projects/p/locations/z/queuedResources/train"}
    google.nodes["a"] = node("a", ["10.0.0.2"], multisliceNode=True, **queued)
    google.nodes["b"] = node("b", ["10.0.0.3"], **queued)
    found = first(NamedTpus(["a", "b"], port=9999))
    assert [(target.job, target.slice) for target in found.targets] == [("train", "a"), (None, "b")]


def test_zone_and_project_may_be_given(google):
    """They are used as they are."""
    with pytest.raises(NoTargetError, match=r"no TPU tpu in zone europe-west4-a of project other"):
        first(NamedTpus(["tpu"], zone="europe-west4-a", project="other"))
    assert google.requests == ["/v2/projects/other/locations/europe-west4-a/nodes/tpu"]


def test_a_tpu_node_has_its_profiler_where_google_put_it(google):
    """No port is tried."""
    slices = Slices()
    google.nodes["old"] = node("old", ["10.0.0.2"], apiVersion="V1")
    assert addresses(first(slices.finder("old"))) == {"old-w-0": "10.0.0.2:8466"}
    assert not slices.calls


def test_the_usual_ports_are_tried_on_every_worker(google):
    """The first in order that answers; a worker where none does is taken to be as most of the others are."""
    slices = Slices("10.0.0.1:9012", "10.0.0.2:9999", "10.0.0.2:9012", "10.0.0.3:9999")
    google.nodes["tpu"] = node("tpu", [f"10.0.0.{n}" for n in range(1, 5)])
    found = addresses(first(slices.finder("tpu")))
    assert [found[f"tpu-w-{n}"].partition(":")[2] for n in range(4)] == ["9012", "9999", "9999", "9999"]
    assert set(slices.calls.values()) == {1}


async def test_while_no_worker_answers_it_is_said_and_tried_again(google, said):
    """Its workers are there for their runtime metrics. The line says what to add; a stranger is not called again."""
    slices = Slices()
    slices.answers["10.0.0.1:9999"] = "not-a-profiler"
    google.nodes["tpu"] = node("tpu", ["10.0.0.1", "10.0.0.2"])
    async with watching(slices.finder("tpu")) as watch:
        await watch.shows({"tpu-w-0": "10.0.0.1:8466", "tpu-w-1": "10.0.0.2:9999"})
        await watch.until(lambda: slices.calls["10.0.0.1:9012"] > 3)
        slices.answers["10.0.0.2:9012"] = None
        await watch.shows({"tpu-w-0": "10.0.0.1:9012", "tpu-w-1": "10.0.0.2:9012"})
        calls = slices.calls.copy()
        await asyncio.sleep(0.1)
        assert slices.calls == calls
    assert slices.calls["10.0.0.1:9999"] == 1
    (line,) = said
    for words in ("TPU tpu is READY", "8466, 9999, 9012", "jax.profiler.start_server(9999)", "--port"):
        assert words in line


def test_where_strangers_have_all_ports_no_profiler_is_awaited(google):
    """Whoever awaited it would call them on and on."""
    slices = Slices()
    slices.answers |= {f"10.0.0.1:{port}": "not-a-profiler" for port in tpu_api.PORTS}
    google.nodes["tpu"] = node("tpu", ["10.0.0.1"])
    assert "none of its 1 workers" in first(slices.finder("tpu")).waiting


def test_who_wants_profilers_gets_none_but_them(google):
    """What there is to know comes instead of the workers."""
    google.nodes["tpu"] = node("tpu", ["10.0.0.1"])
    assert "none of its 1 workers" in first(Slices().finder("tpu", runtime_only=False)).waiting


def test_what_is_remembered_of_strangers_goes_with_their_hosts(google):
    """A TPU that is made anew day after day leaves nothing behind."""
    slices = Slices()
    slices.answers |= {f"10.0.{n}.1:8466": "not-a-profiler" for n in range(3)}
    finder = slices.finder("tpu")

    async def main():
        async with watching(finder) as watch:
            watch.gone = True
            for n in range(3):
                google.nodes["tpu"] = node("tpu", [f"10.0.{n}.1"])
                await watch.shows({"tpu-w-0": f"10.0.{n}.1:9999"})
            assert list(finder._slices[0].not_before_s) == [("10.0.2.1", 8466)]

    google.nodes["tpu"] = node("tpu", ["10.0.0.1"])
    asyncio.run(main())

    asyncio.run(main())


def test_several_names_are_several_slices(google):
    """Given one by one or with commas; names are unique across them."""
    google.nodes |= {"a": node("a", ["10.0.0.1", "10.0.0.2"]), "b": node("b", ["10.0.1.1", "10.0.1.2"])}
    found = first(NamedTpus(["a", "b", "b"], port=1))
    assert [(target.worker, target.slice) for target in found.targets] == [
        ("a-w-0", "a"), ("a-w-1", "a"), ("b-w-0", "b"), ("b-w-1", "b"),
    ]  # fmt: skip
    assert google.lookups == ["a", "b"]


@pytest.mark.parametrize("state", [*tpu_api._STATES, "SOMETHING_NEW"])
async def test_a_tpu_that_is_not_ready_is_waited_for_with_a_line_that_says_why(google, state):
    """One for every state; then it is ready, and followed."""
    google.nodes["tpu"] = node("tpu", ["10.0.0.1"], state)
    async with watching(Slices().finder("tpu", port=9999)) as watch:
        await watch.until(lambda: watch.found)
        assert "TPU tpu" in watch.found[0].waiting
        assert state in watch.found[0].waiting
        assert "{" not in watch.found[0].waiting
        google.nodes["tpu"] = node("tpu", ["10.0.0.1"])
        await watch.shows({"tpu-w-0": "10.0.0.1:9999"})


async def test_a_slice_that_is_preempted_and_made_anew_is_followed(google):
    """Its workers keep their names at new addresses; in between nobody is shown, but why."""
    google.nodes["tpu"] = node("tpu", ["10.0.0.1", "10.0.0.2"])
    async with watching(Slices().finder("tpu", port=9999)) as watch:
        await watch.until(lambda: watch.found)
        google.nodes["tpu"] = node("tpu", [], "PREEMPTED")
        watch.gone = True
        await watch.until(lambda: "preempted" in (watch.found[-1].waiting or ""))
        del google.nodes["tpu"]
        await watch.until(lambda: "there is no TPU tpu" in (watch.found[-1].waiting or ""))
        google.nodes["tpu"] = node("tpu", ["10.0.9.1", "10.0.9.2"])
        await watch.shows({"tpu-w-0": "10.0.9.1:9999", "tpu-w-1": "10.0.9.2:9999"})


async def test_a_slice_that_is_made_anew_may_have_its_profilers_at_another_port(google, said):
    """What was known of the old workers' ports says nothing about the new ones."""
    google.nodes["tpu"] = node("tpu", ["10.0.0.1", "10.0.0.2"])
    slices = Slices("10.0.0.1:9999", "10.0.0.2:9999")
    async with watching(slices.finder("tpu")) as watch:
        await watch.shows({"tpu-w-0": "10.0.0.1:9999", "tpu-w-1": "10.0.0.2:9999"})
        google.nodes["tpu"] = node("tpu", ["10.0.9.1", "10.0.9.2"])
        watch.gone = True
        await watch.until(lambda: said)
        assert "none of its 2 workers" in said[0]
        slices.answers |= {"10.0.9.1:9012": None, "10.0.9.2:9012": None}
        await watch.shows({"tpu-w-0": "10.0.9.1:9012", "tpu-w-1": "10.0.9.2:9012"})
    assert len(watch.found) == 3


async def test_one_preempted_slice_of_two_stays_to_be_shown_as_down(google, said):
    """And it is said, once."""
    google.nodes |= {"a": node("a", ["10.0.0.1"]), "b": node("b", ["10.0.1.1"])}
    slices = Slices()
    async with watching(slices.finder("a", "b", port=9999)) as watch:
        await watch.until(lambda: watch.found)
        google.nodes["b"]["state"] = "PREEMPTED"
        watch.gone = True
        await watch.until(lambda: said)
        await asyncio.sleep(0.1)
    assert len(watch.found) == 1
    (line,) = said
    assert "TPU b was preempted" in line


async def test_while_workers_answer_the_api_is_left_alone(google):
    """It is asked again only when all of them are gone, and then less and less often."""
    google.nodes["tpu"] = node("tpu", ["10.0.0.1"])
    async with watching(Slices().finder("tpu", port=9999)) as watch:
        await watch.until(lambda: watch.found)
        await asyncio.sleep(0.1)
        assert len(google.lookups) == 1
        watch.gone = True
        await watch.until(lambda: len(google.lookups) > 3)
    assert len(watch.found) == 1


async def test_a_job_that_comes_back_at_another_port_is_found(google):
    """When all are gone the ports are tried again; until one answers, the workers stay where they were."""
    google.nodes["tpu"] = node("tpu", ["10.0.0.1"])
    slices = Slices("10.0.0.1:9999")
    async with watching(slices.finder("tpu")) as watch:
        await watch.shows({"tpu-w-0": "10.0.0.1:9999"})
        slices.answers.clear()
        watch.gone = True
        await watch.until(lambda: slices.calls["10.0.0.1:9999"] > 3)
        assert len(watch.found) == 1
        slices.answers["10.0.0.1:9012"] = None
        await watch.shows({"tpu-w-0": "10.0.0.1:9012"})


async def test_ill_health_is_said(google, said):
    """Once, beside the workers."""
    google.nodes["tpu"] = node(
        "tpu", ["10.0.0.1"], health="UNHEALTHY_MAINTENANCE", healthDescription="soon\x1b[2J over"
    )
    slices = Slices()
    async with watching(slices.finder("tpu", port=1)) as watch:
        await watch.until(lambda: said)
    assert watch.now
    assert said == ["TPU tpu is READY, but its health is UNHEALTHY_MAINTENANCE: soon over"]


@pytest.mark.parametrize(("status", "words"), [(403, r"tpu\.nodes\.get"), (404, "there is no TPU tpu"), (400, "400")])
def test_what_asking_again_does_not_change_ends_it_in_one_line(google, status, words):
    """No right to look, no such TPU."""
    google.failures = [status]
    with pytest.raises(NoTargetError, match=words) as caught:
        first(NamedTpus(["tpu"], port=1))
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(("status", "words"), [(429, "quota"), (500, "500"), (503, "503"), (302, "302")])
async def test_what_may_pass_is_waited_for(google, status, words):
    """The API's own troubles; nothing is followed to elsewhere, where a token has no business."""
    google.nodes["tpu"] = node("tpu", ["10.0.0.1"])
    google.failures = [status]
    async with watching(Slices().finder("tpu", port=9999)) as watch:
        await watch.shows({"tpu-w-0": "10.0.0.1:9999"})
    assert words in watch.found[0].waiting


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b"{}", b'{"name": "x", "networkEndpoints": [{"ipAddress": "a b"}]}'])
def test_an_answer_that_is_none(google, raw):
    """Whatever stands at the endpoint."""
    google.raw = raw
    assert "not the TPU API" in first(NamedTpus(["tpu"], port=1)).waiting


async def test_trouble_later_changes_nothing(google, said):
    """Workers stay while the API fails; it is said."""
    google.nodes["tpu"] = node("tpu", ["10.0.0.1"])
    slices = Slices()
    async with watching(slices.finder("tpu", port=1)) as watch:
        await watch.until(lambda: watch.found)
        google.failures = [503] * 1000
        watch.gone = True
        await watch.until(lambda: said)
        assert watch.finders == [{"tpu-api": True}, {"tpu-api": False}]
    assert len(watch.found) == 1
    assert "503" in said[0]


@pytest.mark.parametrize("trouble", [401, 403, 404, 500, "REPAIRING", "HIDING", "SOMETHING_NEW"])
async def test_workers_that_answer_stay_whatever_the_api_says(google, monkeypatch, trouble, said):
    """It is said, once; only when none of them answers any more, nobody is followed."""
    monkeypatch.setattr(tpu_api, "_REFRESH_S", 0.02)
    slices = Slices()
    google.nodes["tpu"] = node("tpu", ["10.0.0.1", "10.0.0.2"])
    async with watching(slices.finder("tpu", port=9999)) as watch:
        await watch.until(lambda: watch.found)
        if isinstance(trouble, int):
            google.failures = [trouble] * 1000
        else:
            google.nodes["tpu"]["state"] = trouble
        await watch.until(lambda: said)
        asked = len(google.lookups)
        await watch.until(lambda: len(google.lookups) > asked + 4)
        assert len(watch.found) == 1
        assert watch.finders[-1] == {"tpu-api": not isinstance(trouble, int)}
        watch.gone = True
        if trouble != 500:  # which may pass
            await watch.until(lambda: watch.found[-1].waiting == said[0])
    assert len(said) == 1


def test_an_expired_token_is_renewed_and_a_refused_one_once(google):
    """google-auth's way: before it expires, and once after a 401."""
    google.nodes["tpu"] = node("tpu", ["10.0.0.1"])
    api = TpuApi(zone=None, project=None)
    api.node("tpu")
    api.node("tpu")
    assert len(google.tokens) == 1
    google.valid.clear()  # withdrawn
    api.node("tpu")
    assert len(google.tokens) == 2
    google.token_lasts_s = 1
    hasty = TpuApi(zone=None, project=None)
    counts = []
    for _ in range(3):
        hasty.node("tpu")
        counts.append(len(google.tokens))
    assert counts == sorted(set(counts))


def test_credentials_that_are_refused_are_not_tried_for_ever(google):
    """Two requests, then one line with the way out."""
    google.failures = [401] * 10
    with pytest.raises(NoTargetError, match="gcloud auth application-default login"):
        first(NamedTpus(["tpu"], port=1))
    assert len(google.lookups) == 2


def test_no_token_is_ever_shown(google):
    """Not by any trouble, nor in what an exception carries along."""
    for status in (400, 401, 401, 403, 404, 429, 500):
        google.failures = [status, status]
        with pytest.raises(TpumonError) as caught:
            TpuApi(zone=None, project=None).node("tpu")
        assert "secret" not in str(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert google.tokens


@pytest.mark.parametrize("content", [None, "", "{}", '{"type": "authorized_user"}', "\xff"])
def test_no_credentials(google, monkeypatch, tmp_path, content):
    """A file of them that is missing or broken: one line that says how to get some."""
    file = tmp_path / "credentials.json"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(NoTargetError, match=r"none found.*gcloud auth application-default login"):
        first(NamedTpus(["tpu"], port=1))


def test_a_machine_that_gives_no_tokens(google):
    """Its service account is gone: one line, and nothing of what google-auth was told."""
    google.gives_tokens = False
    with pytest.raises(ApiError, match="gcloud auth application-default login") as caught:
        TpuApi(zone=None, project=None).node("tpu")
    assert caught.value.__suppress_context__
    assert not caught.value.passing


def test_no_api_to_be_reached(google):
    """Waited for, with the endpoint."""
    finder = NamedTpus(["tpu"], port=1, endpoint="http://127.0.0.1:9")
    assert "cannot be reached" in first(finder).waiting


def test_without_a_metadata_server_the_zone_must_be_given(google, monkeypatch):
    """Asked before anything else."""
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(UsageError, match="--zone"):
        first(NamedTpus(["tpu"], port=1))
    assert google.requests == []


def test_a_token_is_not_sent_through_the_open(google):
    """An endpoint without TLS that is not on this machine."""
    with pytest.raises(UsageError, match="https"):
        first(NamedTpus(["tpu"], endpoint="http://tpu.example.com"))
    assert google.tokens == []


@pytest.mark.parametrize("names", [["My_TPU"], ["a/b"], ["../x"], ["a b"], [","], [""], ["-a"]])
def test_names_that_cannot_be(names):
    """Refused before anything is asked."""
    with pytest.raises(UsageError, match="--tpu"):
        NamedTpus(names)


@pytest.mark.parametrize("missing", ["google.auth.transport.requests", "requests"])
def test_without_the_extra_it_is_named(monkeypatch, missing):
    """What to install."""
    import sys

    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=r"pip install .*\[gcp\]"):
        NamedTpus(["tpu"])

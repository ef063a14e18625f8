"""What `--from SOURCE[,SOURCE...]` names, and how lists of exporters change while they are followed."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from tpumon.cli.resolve import source_from
from tpumon.collection.event_sources import ExportersSource, RecordingSource
from tpumon.collection.remote import shown
from tpumon.collection.remote.exporter_list import ExporterList, Place, sources_of
from tpumon.discovery.identity import JobNames
from tpumon.errors import UsageError

FIRST, SECOND = "10.0.0.1", "10.0.0.2"


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("h:1", ["http://h:1"]),
        ("[fd00::2]:1", ["http://[fd00::2]:1"]),
        ("http://a:1, https://me:pw@b ,c:3,", ["http://a:1", "https://me:pw@b", "http://c:3"]),
        ("a:1,http://a:1", ["http://a:1"]),
        ("dns:tpumon.jobs:10466", ["dns:tpumon.jobs:10466"]),
        ("dns:tpumon,hosts.json,h:1", ["dns:tpumon:10466", "hosts.json", "http://h:1"]),
        ("lists/hosts.yaml", ["lists/hosts.yaml"]),
    ],
)
def test_what_is_taken(text, sources):
    assert list(sources_of(text)) == sources


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" , ", "give --from http://HOST:10466"),
        ("nodir", r"--from nodir: no such file or directory; for an exporter, give its port, such as nodir:10466"),
        ("h:1,no/dir", "--from no/dir: no such file or directory"),
        ("h:1,ftp://h", "not the URL of an exporter; give"),
        ("dns:", "--from: cannot use the address"),
        ("dns:h:99999", "its port is not between"),
        ("h:1,{here}", "recorded samples cannot be combined"),
        ("http://u:sec,ret@h:1", "in a password, write a comma as %2C"),
        ("http://u:secret@h:x,b:1", "its host or port is none"),
        ("u:secret@h", "not the URL"),
    ],
)
def test_what_is_not_is_said_in_one_line(text, words, tmp_path):
    """Without a password."""
    with pytest.raises(UsageError, match=words) as error:
        sources_of(text.replace("{here}", str(tmp_path)))
    assert not any(part in str(error.value) for part in ("\n", "secret", "ret@"))


def test_exporters_recordings_and_lists_are_told_apart(tmp_path):
    """A file that ends as those of file_sd do is a list, unless lines of samples are in it."""
    listed, recorded, named = tmp_path / "hosts.json", tmp_path / "samples.json", tmp_path / "a,b"
    listed.write_text('[{"targets": ["h:1"]}]')
    recorded.write_text('{"schema": 1}\n')
    named.mkdir()

    def source(where):
        return source_from(str(where))

    assert source(listed) == ExportersSource(str(listed))
    assert source(recorded) == RecordingSource(str(recorded))
    assert source(named) == RecordingSource(str(named))
    assert source(f"h:1,{listed}") == ExportersSource(f"http://h:1,{listed}")
    assert source("no/such.yml") == ExportersSource("no/such.yml")
    with pytest.raises(UsageError, match="no such file or directory"):
        source("nodir")
    with pytest.raises(UsageError, match="cannot be combined"):
        source(f"h:1,{recorded.parent}")


def test_one_password_is_enough():
    """In the URL, or in the file."""
    assert source_from("a:1,https://b", "f") == ExportersSource("http://a:1,https://b", "f")
    with pytest.raises(UsageError, match="--from-auth: the URL has a password already"):
        source_from("a:1,https://me:pw@b", "f")


def test_what_is_shown_of_it_has_no_password():
    assert shown("https://me:secret@h:1,b:2,dns:c:3") == "https://h:1 and 2 more"
    assert shown("dns:c:3") == "dns:c:3"


async def test_lists_change_while_they_are_followed(tmp_path, quiet):
    """Addresses of a name, rows of a file; each exporter once, with the labels of its row."""
    answers = {"fleet": [FIRST]}
    file = tmp_path / "hosts.json"
    row = {"targets": [f"{SECOND}:1", "h:2"], "labels": {"tpu_job": "j", "tpu_slice": "s"}}
    file.write_text(json.dumps([row]))

    async def resolve(host):
        return answers[host]

    exporters = ExporterList(f"http://first:1,dns:fleet:1,{file}", resolve=resolve, look_s=0.01, resolve_every_s=0.06)
    async with aclosing(exporters.watch(lambda _url: True)) as changes:

        async def until(*urls):
            async with asyncio.timeout(20):
                async for places in changes:
                    if [place.url for place in places.places] == [f"http://{url}" for url in urls]:
                        return places
            raise AssertionError

        places = await until("first:1", "fleet:1", f"{SECOND}:1", "h:2")
        assert places.places[2] == Place(url=f"http://{SECOND}:1", job="j", slice="s")
        assert places.finders == {"dns": True, "targets-file": True}
        answers["fleet"] = [FIRST, SECOND]
        places = await until("first:1", f"{FIRST}:1", f"{SECOND}:1", "h:2")
        assert places.places[2].job is None, "it is in both; the first counts"
        file.write_text(json.dumps([{"targets": ["h:3"]}]))
        await until("first:1", f"{FIRST}:1", f"{SECOND}:1", "h:3")


def test_options_fill_in_what_labels_leave_unknown(tmp_path, quiet):
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps([{"targets": ["h:1"], "labels": {"tpu_job": "j"}}]))
    exporters = ExporterList(f"http://first:1,{file}", given=JobNames(job="given", slice="s"))

    async def first():
        async with aclosing(exporters.watch(lambda _url: True)) as changes:
            return await anext(changes)

    places = asyncio.run(first()).places
    assert [(place.job, place.slice) for place in places] == [("given", "s"), ("j", "s")]


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file or directory"), ("[1]", "group 1 is not"), ('{"a": 1}', "not a list of groups")],
)
def test_a_file_that_cannot_be_used_at_the_start_is_a_mistake(content, words, tmp_path):
    """Of whoever typed it."""
    file = tmp_path / "hosts.json"
    if content is not None:
        file.write_text(content)

    async def first():
        async with aclosing(ExporterList(str(file)).watch(lambda _url: True)) as changes:
            await anext(changes)

    with pytest.raises(UsageError, match=f"--from {file}: .*{words}"):
        asyncio.run(first())


def test_a_service_waits_for_its_file(tmp_path):
    """Nobody may be there to put it right."""
    file = tmp_path / "hosts.yml"
    exporters = ExporterList(f"{file}", waits=True, look_s=0.01)

    async def main():
        async with aclosing(exporters.watch(lambda _url: True)) as changes:
            places = await anext(changes)
            assert (places.places, places.finders) == ((), {"targets-file": False})
            assert "No such file or directory; it is read again when it changes" in places.waiting
            file.write_text("- targets: [h]\n")
            async with asyncio.timeout(20):
                return await anext(changes)

    assert asyncio.run(main()).places == (Place(url="http://h:10466"),)

"""Workers from a file that changes while it is followed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading

import pytest

from support.watching import watching
from tpumon.discovery import target_file
from tpumon.discovery.target_file import TargetFile
from tpumon.errors import UsageError


@pytest.fixture
def file(tmp_path):
    return tmp_path / "targets.json"


def put(file, groups):
    """Written beside it and moved there, as careful programs do."""
    new = file.with_suffix(".new")
    new.write_text(groups if isinstance(groups, str) else json.dumps(groups))
    new.replace(file)


def group(*targets, **labels):
    return {"targets": list(targets), "labels": labels}


def first(file, **options):
    async def main():
        async for found in TargetFile(str(file), **options).watch(lambda: False):
            return found
        return None

    return asyncio.run(main())


def workers(found):
    return [(target.worker, target.address, target.slice) for target in found.targets]


def test_groups_name_slices_and_workers(file):
    """A slice for all of a group, a worker where a group has one; other labels are Prometheus' own business."""
    put(file, [group("10.0.0.1:9999", "10.0.0.2", slice="a", env="prod"), group("h:1", worker="first", slice="b")])
    assert workers(first(file, port=9012)) == [
        ("10.0.0.1:9999", "10.0.0.1:9999", "a"), ("10.0.0.2:9012", "10.0.0.2:9012", "a"), ("first", "h:1", "b"),
    ]  # fmt: skip


def test_yaml_says_the_same(tmp_path):
    """By its name, or because it is no JSON; labels may be left out."""
    text = "- targets: [10.0.0.1:9999]\n  labels: {slice: a}\n- targets:\n  - h\n"
    for name in ("targets.yml", "targets.yaml", "targets"):
        (tmp_path / name).write_text(text)
        assert workers(first(tmp_path / name)) == [("10.0.0.1:9999", "10.0.0.1:9999", "a"), ("h", "h:8466", None)]


def test_names_are_unique_and_each_address_is_one_worker(file):
    """Two with one name go by their addresses; of two labels for one address the first counts."""
    put(file, [group("a:1", worker="w"), group("b:1", worker="w"), group("c:1", "c:2", "a:1", slice="s")])
    names = [target.worker for target in first(file).targets]
    assert names == ["a:1", "b:1", "c:1", "c:2"]


def test_a_thousand_workers(file):
    """Their order stays."""
    put(file, [group(*(f"tpu-w-{n}:9999" for n in range(1000)), slice="s")])
    assert [target.worker for target in first(file).targets] == [f"tpu-w-{n}" for n in range(1000)]


@pytest.mark.parametrize("text", ["", " \n", "[]", "null", '[{"targets": []}]'])
def test_an_empty_file_is_waited_for(file, text):
    """With the file's name and what to do."""
    file.write_text(text)
    found = first(file.rename(file.with_suffix(".yml")) if text == "null" else file)
    assert found.targets == ()
    assert "targets." in found.waiting
    assert "names no workers" in found.waiting


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[{", "no JSON.*line 1"),
        ("{}", "not a list"),
        ("- a: b: c", "no YAML"),
        ("just words", "not a list"),
        ("[1]", "group 1"),
        ('[{"targets": "a:1"}]', "group 1"),
        ('[{"targets": ["a:1"]}, {"labels": {}}]', "group 2"),
        ('[{"targets": ["a:99999"]}]', "group 1.*99999.*port"),
        ('[{"targets": [null]}, {}]', "group 1.*not text"),
        ('[{"targets": ["a:1", "b:1"], "labels": {"worker": "w"}}]', "group 1.*worker"),
        ('[{"targets": ["a:1"], "labels": [1]}]', "labels of group 1"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_a_file_that_is_none_of_these_is_a_usage_error(file, text, why):
    """One line: which file, what is wrong with it, and where."""
    file.write_text(text)
    with pytest.raises(UsageError, match=rf"--targets .*targets\.json: .*{why}") as caught:
        first(file)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_file_that_is_not_there(file, tmp_path):
    """Nor a directory in its place."""
    with pytest.raises(UsageError, match="No such file"):
        first(file)
    with pytest.raises(UsageError, match="directory"):
        first(tmp_path)


def test_what_never_ends_is_not_read(tmp_path):
    """A pipe that nobody writes to, a device."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(UsageError, match="not a regular file"):
            first(path)


async def test_a_file_system_that_hangs_has_one_thread_hang_and_not_more(file, monkeypatch, said):
    """It is said once; when it comes back, what it holds counts."""
    entered, back = [], threading.Event()
    put(file, [group("a:1")])
    finder = TargetFile(str(file), poll_s=0.005)
    read = finder._read

    def hang():
        entered.append(threading.current_thread())
        assert back.wait(60)
        return read()

    async with watching(finder) as watch:
        await watch.shows({"a": "a:1"})
        monkeypatch.setattr(target_file, "_READ_S", 0.02)
        monkeypatch.setattr(finder, "_read", hang)
        await watch.until(lambda: said)
        put(file, [group("b:1")])
        await asyncio.sleep(0.3)
        assert len(entered) == len(said) == 1
        monkeypatch.undo()  # a loaded machine may need longer than 0.02 s for a read that does not hang
        back.set()
        await watch.shows({"b": "b:1"})
    assert "cannot be read within" in said[0]


def test_a_huge_file_is_not_read(file):
    """It is somebody else's."""
    with file.open("wb") as sparse:
        sparse.truncate(5 << 20)
    with pytest.raises(UsageError, match="4 MiB"):
        first(file)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a file that is longer than it says")
def test_a_file_that_is_longer_than_it_says_is_not_read_to_its_end(monkeypatch):
    """As one that grows meanwhile."""
    monkeypatch.setattr(target_file, "_MAX_BYTES", 10)
    with pytest.raises(UsageError, match="it is larger than"):
        first("/proc/self/status")


def test_labels_cannot_drive_a_terminal(file):
    """Names from a file are shown."""
    put(file, [group("a:1", worker="w\x1b[2J\n1", slice="\x07"), group("b:1", worker="\x1b[0m")])
    assert workers(first(file)) == [("w 1", "a:1", None), ("b", "b:1", None)]


async def test_changes_are_followed(file):
    """However they are written; a worker that stays keeps its name though its host has another one now."""
    put(file, [group("h:1")])
    async with watching(TargetFile(str(file), poll_s=0.01)) as watch:
        await watch.shows({"h": "h:1"})
        put(file, [group("h:1", "h:2")])
        await watch.shows({"h": "h:1", "h:2": "h:2"})
        file.write_text(json.dumps([group("h:2")]))
        await watch.shows({"h:2": "h:2"})
        put(file, [])
        await watch.until(lambda: watch.found[-1].waiting)
        put(file, [group("i:1")])
        await watch.shows({"i": "i:1"})
    assert len(watch.found) == 5


async def test_a_link_that_is_turned_is_a_change(tmp_path):
    """As Kubernetes does with its ConfigMaps; same size, same times."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(json.dumps([group(f"{name}:1")]))
        os.utime(tmp_path / name, (1e9, 1e9))
    link = tmp_path / "targets.json"
    link.symlink_to("a")
    async with watching(TargetFile(str(link), poll_s=0.01)) as watch:
        await watch.shows({"a": "a:1"})
        (tmp_path / "new").symlink_to("b")
        (tmp_path / "new").replace(link)
        await watch.shows({"b": "b:1"})


async def test_a_bad_change_is_said_once_and_the_last_good_workers_stay(file, said):
    """Broken, gone, forbidden: until it is good again, and then that counts."""
    put(file, [group("a:1")])
    async with watching(TargetFile(str(file), poll_s=0.01)) as watch:
        await watch.shows({"a": "a:1"})
        put(file, "[{")
        await watch.until(lambda: said)
        await asyncio.sleep(0.1)
        file.unlink()
        await watch.until(lambda: len(said) == 2)
        put(file, [group("b:1")])
        await watch.shows({"b": "b:1"})
        aside = file.rename(file.with_suffix(".aside"))
        await watch.until(lambda: len(said) == 3)
        aside.rename(file)
        await watch.until(lambda: watch.finders[-1]["targets-file"])
    assert len(watch.found) == 2
    assert [told["targets-file"] for told in watch.finders] == [True, False, True, False, True]
    assert "no JSON" in said[0]
    assert "No such file" in said[1]
    assert all("known workers" in line for line in said)


async def test_a_file_that_is_being_written_is_not_an_empty_one(file, monkeypatch):
    """`> file` empties it first. Empty for longer, it means it."""
    monkeypatch.setattr(target_file, "_SETTLES_S", 1e9)
    put(file, [group("a:1")])
    async with watching(TargetFile(str(file), poll_s=0.005)) as watch:
        await watch.shows({"a": "a:1"})
        file.write_text("")
        await asyncio.sleep(0.1)
        assert len(watch.found) == 1
        monkeypatch.setattr(target_file, "_SETTLES_S", 0.0)
        await watch.until(lambda: watch.found[-1].waiting)

"""A pause holds whatever else is in its directory, whoever was there first, and whatever becomes of the clock."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

import pytest

from tpumon.system import pausing
from tpumon.system.pausing import LONGEST_S, PauseWatch, current_pause, pause_for

OTHER_UID = 54321
FOREIGN_FILES = 50_000
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's files")


@pytest.fixture(autouse=True)
def directory(monkeypatch):
    """In memory where that can be: a busy disk takes minutes to make 50,000 files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        monkeypatch.setenv("TPUMON_PAUSE_DIR", path)
        yield Path(path)


@pytest.fixture
def crowded(directory):
    """Another user has filled the directory with files that look like pauses but are none."""
    for i in range(FOREIGN_FILES):
        descriptor = os.open(directory / f"tpumon-pause-{os.getuid()}-{i}", os.O_CREAT | os.O_WRONLY, 0o644)
        os.fchown(descriptor, OTHER_UID, OTHER_UID)
        os.close(descriptor)


@needs_root
def test_a_crowded_directory_neither_holds_up_sampling_nor_hides_a_pause(crowded):
    """The look takes place beside the loop, and finds the one real pause among 50,000 files."""

    async def look_around():
        watch, beats, ended = PauseWatch(), 0, asyncio.Event()

        async def beat():
            nonlocal beats
            while not ended.is_set():
                await asyncio.sleep(0.005)
                beats += 1

        heart = asyncio.create_task(beat())
        while (seen := await watch()) is None:  # it is not waited for longer than 2 s
            pass
        ended.set()
        await heart
        return seen, beats

    pause_for(60)
    seen, beats = asyncio.run(look_around())
    assert seen
    assert beats > 5  # in the loop, there would be one
    assert len(pausing._FILES.listed()) <= 2 * 10  # of two users


@needs_root
def test_a_slow_look_is_not_repeated_all_the_time(crowded):
    """However often workers ask, looking takes a twentieth of a core at most."""

    async def ask():
        watch, looks = PauseWatch(), 0
        begun_s = time.monotonic()
        await watch()
        while watch._look is not None:
            await watch()
        took_s = time.monotonic() - begun_s
        while time.monotonic() - begun_s < 5 * took_s:
            before = watch._next_s
            await watch()
            looks += watch._next_s != before
            await asyncio.sleep(0.01)
        return looks

    assert asyncio.run(ask()) == 0


@needs_root
def test_nobody_can_take_another_users_place(directory):
    """Files in my name that are another's neither block my pause nor end it, and a pause names its real owner."""
    squatted = directory / f"tpumon-pause-{os.getuid()}"
    squatted.write_text(f"{time.time() + 60}\n")
    os.chown(squatted, OTHER_UID, OTHER_UID)
    assert current_pause().who == f"user {OTHER_UID}"
    mine = pause_for(600)
    assert current_pause().who == mine.who
    assert pause_for(0) is None
    assert squatted.exists()


def test_a_new_pause_leaves_one_file(directory):
    """Names are random; what this user had before is removed, in whatever version it was written."""
    (directory / f"tpumon-pause-{os.getuid()}").write_text(f"{time.time() + 600} me\n")
    pause_for(60)
    pause_for(60)
    assert len(list(directory.iterdir())) == 1
    pause_for(0)
    assert not list(directory.iterdir())


@pytest.mark.parametrize("set_by_s", [-2, -3600, -400 * 86400, 3600, 400 * 86400])
def test_a_pause_of_a_day_survives_the_clock_being_set(set_by_s, monkeypatch):
    """It lasts as long as it was meant to, and not a day more."""
    pause_for(LONGEST_S)
    real, since_boot = time.time, time.clock_gettime
    monkeypatch.setattr(time, "time", lambda: real() + set_by_s)
    pause = current_pause()
    assert pause is not None
    assert pause.until_unix_s == pytest.approx(time.time() + LONGEST_S, abs=5)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: since_boot(clock) + LONGEST_S + 1)
    assert current_pause() is None


def test_after_a_restart_of_the_machine_the_wall_clock_decides(monkeypatch):
    """The time since boot begins anew and says nothing about an older pause."""
    pause_for(60)
    monkeypatch.setattr(pausing, "boot", lambda: "another")
    assert current_pause() is not None
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 61)
    assert current_pause() is None


def test_a_directory_that_hangs_does_not_stop_sampling(monkeypatch):
    """A file system that does not answer: what was known last holds."""
    monkeypatch.setattr(pausing, "_LOOK_S", 0.05)
    answer = asyncio.run(_ask_while_hanging(monkeypatch))
    assert answer is None


async def _ask_while_hanging(monkeypatch):
    import threading

    released, before = threading.Event(), threading.active_count()
    monkeypatch.setattr(pausing, "current_pause", lambda: released.wait(30))
    watch = PauseWatch()
    answers = [await asyncio.wait_for(watch(), 5) for _ in range(3)]
    assert threading.active_count() <= before + 1
    released.set()
    return answers[-1]

"""A pause for every tpumon of this host."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import time
from pathlib import Path

import pytest

from tpumon.cli.commands import pause as command
from tpumon.errors import TpumonError, UsageError
from tpumon.system import host_files
from tpumon.system.pausing import LONGEST_S, Pause, PauseWatch, current_pause, pause_for


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TPUMON_PAUSE_DIR", str(tmp_path))
    return tmp_path


def test_a_pause_holds_until_its_time_and_says_whose_it_is():
    """Without one there is none; with one, everybody sees who asked and until when."""
    assert current_pause() is None
    asked = pause_for(60)
    seen = current_pause()
    assert seen is not None
    assert seen.until_unix_s == pytest.approx(time.time() + 60, abs=5)
    assert seen.who == asked.who
    assert f"paused by {asked.who} until" in str(seen)


def test_zero_ends_ones_own_pause():
    """The pause is over at once."""
    pause_for(60)
    assert pause_for(0) is None
    assert current_pause() is None


def test_a_second_pause_replaces_the_first():
    """A user has one pause; asking again sets it anew."""
    pause_for(600)
    pause_for(60)
    assert current_pause().until_unix_s == pytest.approx(time.time() + 60, abs=5)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_the_longest_of_all_users_pauses_counts(directory):
    """Everyone's pause holds for all; another user's file is read, never written or removed."""
    pause_for(60)
    theirs = directory / "tpumon-pause-99999"
    theirs.write_text(f"{time.time() + 600}\n")
    os.chown(theirs, 54321, 54321)
    assert current_pause().who == "user 54321"
    pause_for(0)
    assert current_pause().who == "user 54321"


@pytest.mark.parametrize(
    "content", ["", "soon bob", "nan bob", "inf bob", "1e300 bob", "{too_far} bob", "0 bob", "\x00" * 500]
)
def test_nonsense_pauses_nobody(directory, content):
    """A file that is no pause, is over, or would last for ever, is ignored."""
    too_far = time.time() + 3 * LONGEST_S
    (directory / "tpumon-pause-99999").write_text(content.replace("{too_far}", str(too_far)))
    assert current_pause() is None


def test_what_is_no_file_pauses_nobody(directory):
    """Links, pipes and directories put there by anyone neither pause nor hang."""
    (directory / "target").write_text(f"{time.time() + 60} bob")
    (directory / "tpumon-pause-1").symlink_to(directory / "target")
    os.mkfifo(directory / "tpumon-pause-2")
    (directory / "tpumon-pause-3").mkdir()
    assert current_pause() is None


def test_who_paused_is_the_files_owner(directory):
    """Neither its name nor its content can blame another user, or drive a terminal."""
    (directory / "tpumon-pause-99999").write_text(f"{time.time() + 60} \x1b[2Jbob\n")
    assert current_pause().who == pwd.getpwuid(os.getuid()).pw_name


def test_a_pause_is_looked_up_now_and_then_only(directory, monkeypatch):
    """A thousand workers do not read the directory a thousand times."""
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    async def look():
        watch = PauseWatch()
        assert await watch() is None
        pause_for(60)
        assert await watch() is None
        now_s[0] += 1.1
        assert await watch() is not None

    asyncio.run(look())


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("0", 0)])
def test_durations_as_people_write_them(text, seconds):
    """Seconds, minutes, hours."""
    assert command.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "5d", "25h", "nan", "1e9"])
def test_other_durations_are_usage_errors(text):
    """A bad time, or one longer than a day, is refused in one line."""
    with pytest.raises(UsageError):
        command.parse_duration(text)


def test_the_command_says_what_holds_now(capsys):
    """`tpumon pause` prints the pause that is on, or that there is none."""
    for asked_s, left in ((10, "10 s"), (60, "60 s"), (600, "10 min"), (5400, "90 min")):
        assert command.run(asked_s) == 0
        assert re.search(rf" is paused by .* until [\d:]+, for {left}; ", capsys.readouterr().out)
    assert command.run(0) == 0
    assert "not paused" in capsys.readouterr().out


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_the_command_says_who_alone_can_end_the_pause_of_another(directory, capsys):
    """Ending one's own leaves it: by a command that works, for a user without a name, too."""
    theirs = directory / "tpumon-pause-99999"
    theirs.write_text(f"{time.time() + 600}\n")
    os.chown(theirs, 54321, 54321)
    command.run(60)
    command.run(0)
    assert "in progress" in capsys.readouterr().out.splitlines()[0]
    command.run(0)
    said = capsys.readouterr().out
    assert re.fullmatch(
        r"sampling on this host is paused by user 54321 until [\d:]{8}, for 10 min; "
        r"`sudo -u '#54321' tpumon pause 0` ends that\n",
        said,
    )


@pytest.mark.parametrize(
    ("who", "account", "words"),
    [
        ("bob", "bob", "only bob can end that, or root: `sudo -u bob tpumon pause 0`"),
        ("root", "root", "only root can end that: `sudo tpumon pause 0`"),
    ],
)
def test_a_user_is_told_who_can_end_the_pause_of_another(monkeypatch, capsys, who, account, words):
    pause = Pause(until_unix_s=time.time() + 60, who=who, account=account)
    monkeypatch.setattr(command, "current_pause", lambda: pause)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    command.run(0)
    assert capsys.readouterr().out.rstrip().endswith(words)


def test_a_directory_that_cannot_be_written_is_one_clear_line(monkeypatch):
    """No traceback where the pause cannot be written down."""
    monkeypatch.setenv("TPUMON_PAUSE_DIR", "/proc/self/nowhere")
    with pytest.raises(TpumonError, match=r"^cannot pause: .*: No such file or directory; TPUMON_PAUSE_DIR is to "):
        command.run(60)
    monkeypatch.delenv("TPUMON_PAUSE_DIR")
    monkeypatch.setattr(host_files, "_DIRECTORY", Path("/proc/self/nowhere"))
    with pytest.raises(TpumonError, match=r"^cannot pause: .*: No such file or directory$"):
        command.run(60)


def test_everyone_can_see_a_pause_whatever_the_umask(directory):
    """A pause that others cannot read would be none for them."""
    before = os.umask(0o077)
    try:
        pause_for(60)
    finally:
        os.umask(before)
    (path,) = directory.iterdir()
    assert path.stat().st_mode & 0o777 == 0o644

"""Where profiles go."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tpumon.errors import TpumonError, UsageError
from tpumon.system.logdir import LocalLogDir, RemoteLogDir, open_logdir, trace_file_name


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("10.0.0.1:8466", "10.0.0.1_8466.xplane.pb"),
        ("tpu-w-0:9999", "tpu-w-0_9999.xplane.pb"),
        ("[::1]:9999", "___1__9999.xplane.pb"),
    ],
)
def test_a_trace_is_named_after_its_worker(address, name):
    """The name that TensorBoard shows as the host; nothing in it can leave the directory."""
    assert trace_file_name(address) == name


def test_a_file_appears_whole_where_tensorboard_looks(tmp_path):
    """LOGDIR/plugins/profile/SESSION/FILE, and nothing else is left behind."""
    logdir = open_logdir(str(tmp_path / "new" / "log"))
    logdir.prepare()
    path = logdir.save("s", "w.xplane.pb", b"trace")
    assert path == str(tmp_path / "new/log/plugins/profile/s/w.xplane.pb")
    assert logdir.load("s", "w.xplane.pb") == b"trace"
    assert logdir.load("s", "other") is None
    assert [file.name for file in (tmp_path / "new/log/plugins/profile/s").iterdir()] == ["w.xplane.pb"]


def test_a_relative_directory_is_made_absolute(tmp_path, monkeypatch):
    """A server that writes the file itself has another working directory than we."""
    monkeypatch.chdir(tmp_path)
    assert LocalLogDir("log").root == str(tmp_path / "log/plugins/profile")


def test_sessions_never_share_a_name(tmp_path):
    """Two captures within a second get two directories."""
    logdir = LocalLogDir(str(tmp_path))
    names = set()
    for _ in range(3):
        session = logdir.new_session()
        logdir.save(session, "w", b"x")
        names.add(session)
    assert len(names) == 3


def test_a_failed_write_leaves_no_part_and_says_why(tmp_path, monkeypatch):
    """A disk that fills up in the middle leaves neither a part nor a broken file."""

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TpumonError, match="No space left on device"):
        LocalLogDir(str(tmp_path)).save("s", "w.xplane.pb", b"trace")
    assert list((tmp_path / "plugins/profile/s").iterdir()) == []


def test_a_directory_that_cannot_be_written_is_found_out_first(tmp_path):
    """A file in the way is told before any worker is troubled."""
    (tmp_path / "file").write_text("")
    with pytest.raises(TpumonError, match="cannot write"):
        LocalLogDir(str(tmp_path / "file")).prepare()


def test_an_empty_file_is_discarded_with_its_session_but_not_other_workers_files(tmp_path):
    """What holds nothing goes; what holds something stays."""
    logdir = LocalLogDir(str(tmp_path))
    logdir.save("s", "a", b"")
    logdir.save("s", "b", b"x")
    logdir.discard("s", "a")
    assert logdir.load("s", "b") == b"x"
    logdir.discard("s", "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["", "log", "log/plugins", "log/plugins/profile"])
def test_only_what_was_made_goes_again_if_nothing_is_in_it(there, tmp_path):
    """However much of LOGDIR/plugins/profile the user made; what others left in it stays, too."""
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    before = set(tmp_path.rglob("*"))
    logdir = LocalLogDir(str(tmp_path / "log"))
    logdir.prepare()
    logdir.close()
    assert set(tmp_path.rglob("*")) == before
    logdir.discard(logdir.new_session())
    assert set(tmp_path.rglob("*")) == before
    LocalLogDir(str(tmp_path / "log")).save("theirs", "w", b"x")
    logdir.close()
    assert logdir.load("theirs", "w") == b"x"


def test_a_bucket_without_tensorflow_is_a_usage_error_that_names_the_extra(monkeypatch):
    """gs:// needs the extra; that is said before anything else happens."""
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(UsageError, match=r"install .*\[tensorflow\]"):
        open_logdir("gs://bucket/log")


class FakeGfile:
    """A bucket in memory, with the functions of tf.io.gfile that are used."""

    def __init__(self, *, broken=False):
        self.files = {}
        self.broken = broken

    def exists(self, path):
        return path in self.files or any(name.startswith(f"{path}/") for name in self.files)

    def makedirs(self, path):
        if self.broken:
            raise RuntimeError("bucket says no")

    def remove(self, path):
        del self.files[path]

    def GFile(self, path, mode):  # noqa: N802
        bucket = self

        class File:
            def __enter__(self):
                return self

            def __exit__(self, *exc):
                pass

            def write(self, content):
                bucket.files[path] = content

            def read(self):
                return bucket.files[path]

        return File()


def test_a_bucket_has_the_same_layout():
    """gs://BUCKET/DIR/plugins/profile/SESSION/FILE."""
    gfile = FakeGfile()
    logdir = RemoteLogDir("gs://bucket/dir/", gfile)
    logdir.prepare()
    session = logdir.new_session()
    assert logdir.save(session, "w", b"x") == f"gs://bucket/dir/plugins/profile/{session}/w"
    assert logdir.load(session, "w") == b"x"
    assert logdir.load(session, "none") is None
    assert logdir.new_session() != session
    logdir.discard(session, "w")
    assert gfile.files == {}


def test_a_bucket_that_refuses_is_one_clear_line():
    """TensorFlow's errors become ours."""
    with pytest.raises(TpumonError, match=r"cannot write gs://bucket/plugins/profile: bucket says no"):
        RemoteLogDir("gs://bucket", FakeGfile(broken=True)).prepare()


def test_captures_that_begin_in_the_same_second_have_a_session_each(tmp_path, monkeypatch):
    """Another one may make a directory of the same name after it was looked for."""
    monkeypatch.setattr(Path, "exists", lambda _path: False)
    names = [LocalLogDir(str(tmp_path)).new_session() for _ in range(3)]
    assert len(set(names)) == 3

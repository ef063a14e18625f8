"""The comparison with golden files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from support import REPOSITORY
from support.golden import Golden


def test_equal_text_passes(tmp_path):
    """A newline at the end is the file's own."""
    (tmp_path / "a.txt").write_text("one\n")
    Golden(update=False, directory=tmp_path).check("a.txt", "one")


@pytest.mark.parametrize("before", [None, "one\ntwo\n", "one\r\n"])
def test_a_difference_fails_with_a_diff(tmp_path, before):
    """Also of a missing file, and of line ends."""
    if before is not None:
        (tmp_path / "a.txt").write_text(before, newline="")
    with pytest.raises(pytest.fail.Exception, match=r"--update-golden\n(?s:.*)"):
        Golden(update=False, directory=tmp_path).check("a.txt", "one\nthree\n")


def test_a_name_may_be_compared_once_only(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    golden = Golden(update=False, directory=tmp_path)
    golden.check("a.txt", "one")
    with pytest.raises(AssertionError, match="two tests"):
        golden.check("a.txt", "one")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "fails"),
    [((), True), (("-p", "xdist", "-n", "2"), True), (("-k", "test_a"), False), (("--collect-only",), False)],
    ids=["one process", "two processes", "some of the tests", "none of them"],
)
def test_a_file_that_no_test_compares_fails_the_session(tmp_path, options, fails):
    """Also where several processes have compared the files between them; not where tests are left out."""
    tests = tmp_path / "tests"
    shutil.copytree(REPOSITORY / "tests" / "support", tests / "support")
    shutil.copy(REPOSITORY / "tests" / "conftest.py", tests)
    (tests / "golden").mkdir()
    for name in "abc":
        (tests / "golden" / f"{name}.txt").write_text(f"{name}\n")
    (tests / "test_two.py").write_text(
        "".join(f"def test_{name}(golden):\n    golden.check('{name}.txt', '{name}')\n" for name in "ab")
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "--rootdir", tmp_path, "tests"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tests), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, "no test compares c.txt" in done.stdout) == ((1, True) if fails else (0, False)), done


def test_updating_writes_what_differs_and_removes_what_is_stale(tmp_path):
    """Files that are equal are left alone."""
    (tmp_path / "same.txt").write_text("same\n")
    (tmp_path / "stale.txt").touch()
    golden = Golden(update=True, directory=tmp_path)
    golden.check("same.txt", "same")
    golden.check("new/a.txt", "one")
    assert golden.stale() == []
    assert (tmp_path / "new" / "a.txt").read_text() == "one\n"
    assert golden.changed == ["new/a.txt", "stale.txt"]
    assert not (tmp_path / "stale.txt").exists()

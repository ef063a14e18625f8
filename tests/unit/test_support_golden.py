"""The comparison with golden files."""

from __future__ import annotations

import pytest

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


def test_a_file_that_no_test_compares_fails(tmp_path):
    """A name may be compared once only."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "b.txt").touch()
    golden = Golden(update=False, directory=tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"no test compares old/b\.txt"):
        golden.check_stale()
    (tmp_path / "a.txt").write_text("one\n")
    golden.check("a.txt", "one")
    with pytest.raises(AssertionError, match="two tests"):
        golden.check("a.txt", "one")


def test_updating_writes_what_differs_and_removes_what_is_stale(tmp_path):
    """Files that are equal are left alone."""
    (tmp_path / "same.txt").write_text("same\n")
    (tmp_path / "stale.txt").touch()
    golden = Golden(update=True, directory=tmp_path)
    golden.check("same.txt", "same")
    golden.check("new/a.txt", "one")
    golden.check_stale()
    assert (tmp_path / "new" / "a.txt").read_text() == "one\n"
    assert golden.changed == ["new/a.txt", "stale.txt"]
    assert not (tmp_path / "stale.txt").exists()

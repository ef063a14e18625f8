"""Processes of this Python that tpumon starts: the same tpumon, and nothing from the working directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import REPOSITORY

STARTS = """
import os, sys, tpumon
from tpumon.system import own_python
print({shown}, flush=True)
own_python.start(["shows"], os.environ).wait()
"""


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for PYTHONPATH."""
    return tmp_path_factory.mktemp("elsewhere")


def shown_by_both(what: str, directory: Path, elsewhere: Path, path: str) -> list[str]:
    """What an expression is in a process in a directory, with this PYTHONPATH, and in the one that it starts."""
    (elsewhere / "shows.py").write_text(f"import sys, tpumon\nprint({what})")
    done = subprocess.run(
        [sys.executable, "-c", STARTS.format(shown=what)],
        cwd=directory,
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_checkout_in_the_working_directory_starts_itself(tmp_path: Path, elsewhere: Path) -> None:
    """`python -m tpumon` there runs that one, whatever is installed; so do its processes."""
    (tmp_path / "tpumon").symlink_to(REPOSITORY / "tpumon")
    one, another = shown_by_both("tpumon.__file__", tmp_path, elsewhere, str(elsewhere))
    assert one == another == f"{tmp_path}/tpumon/__init__.py"


@pytest.mark.parametrize("path", ["{}", "{}:", ":{}"])
def test_the_working_directory_is_not_searched(tmp_path: Path, elsewhere: Path, path: str) -> None:
    """Nor does an empty entry of PYTHONPATH name it."""
    (tmp_path / "sitecustomize.py").write_text("")
    what = "getattr(sys.modules.get('sitecustomize'), '__file__', None)"
    *_, another = shown_by_both(what, tmp_path, elsewhere, path.format(elsewhere))
    assert another == "None"


def test_modules_are_found_in_the_same_order(tmp_path: Path, elsewhere: Path) -> None:
    """What lies beside an installed tpumon does not come before the standard library."""
    one, another = shown_by_both("list(filter(None, sys.path))", tmp_path, elsewhere, f"{elsewhere}:/nowhere")
    assert one == another

"""docs/support.md names what the tests run against, and nothing else."""

from __future__ import annotations

import re

import pytest

from support import REPOSITORY
from tpumon.model.chips import CHIPS

PAGE = (REPOSITORY / "docs" / "support.md").read_text()
NIGHTLY = (REPOSITORY / "tests" / "bench" / "compatibility.py").read_text()
LOCKED = (REPOSITORY / "pyproject.toml").read_text()


def rows(title):
    """First and second cells of the table under a heading."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| ([^|]+) \| ([^|]+) \|", section, re.MULTILINE)


def test_chips_are_those_of_the_table():
    named = [name for cell, _ in rows("Chips")[1:] for name in re.findall(r"v\d\w*|7x", cell)]
    assert sorted(named) == sorted(CHIPS)


@pytest.mark.parametrize(
    ("word", "package"), [("JAX", "jax"), ("TensorFlow", "tensorflow"), ("PyTorch/XLA", "torch_xla")]
)
def test_versions_are_those_that_run(word, package):
    """Each time: those of the lock. Before a release: those of compatibility.py."""
    ran = 0
    for cell, checked in rows("Frameworks and their profiler servers"):
        for version in re.findall(r"\d+(?:\.\d+)+", cell) if cell.startswith(word) else ():
            where = LOCKED if "each time" in checked else NIGHTLY
            assert re.search(rf"\b{package}(?:-cpu)?=={re.escape(version)}", where), (cell, version)
            ran += 1
    assert ran


def test_tools_are_those_of_the_lock():
    for version in re.findall(r"XProf ([\d., ]+\d)", PAGE)[-1].split(", "):
        assert f'"xprof=={version}"' in LOCKED

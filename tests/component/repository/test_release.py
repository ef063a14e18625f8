"""`make publishable` holds back what may not go out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from support import REPOSITORY

PLACEHOLDER = "placeholder." + "invalid"
AUTHOR = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@pytest.fixture
def project(tmp_path):
    """A small one with the script."""

    def git(*words):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True, env={**os.environ, **AUTHOR})

    def publishable():
        git("add", "--all")
        git("commit", "--quiet", "--allow-empty", "--message", "all")
        done = subprocess.run(
            [sys.executable, "scripts/release.py", "publishable"], cwd=tmp_path, capture_output=True, text=True
        )
        return done.returncode, done.stderr.splitlines()[1:], git

    (tmp_path / "scripts").mkdir()
    (tmp_path / "grafana").mkdir()
    for name in ("scripts/release.py", "grafana/config.py"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    (tmp_path / "version.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "pyproject.toml").write_text(
        '[project.urls]\nRepository = "https://a.example/b"\n[tool.hatch.version]\npath = "version.py"\n'
    )
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## 1.2.3 (2026-01-31)\n")
    git("init", "--quiet")
    return tmp_path, publishable


def test_what_is_complete_and_tagged_may_go_out(project):
    _, publishable = project
    status, reasons, git = publishable()
    assert (status, reasons) == (1, ["no tag: git tag v1.2.3"])
    git("tag", "v1.2.3")
    (project[0] / "version.py").write_text('__version__ = "1.2.4"\n')  # not committed, so it is of no release
    done = subprocess.run([sys.executable, "scripts/release.py", "publishable"], cwd=project[0], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_every_place_that_has_to_be_filled_in_is_named(project):
    """Placeholders in any file, and the day in the changelog."""
    where, publishable = project
    (where / "SECURITY.md").write_text(f"# Security\nwrite to a@{PLACEHOLDER}\n")
    (where / "CHANGELOG.md").write_text("# Changes\n\n## 1.2.3 (unreleased)\n")
    status, reasons, _ = publishable()
    assert status == 1
    assert reasons == [
        f"SECURITY.md:2: replace {PLACEHOLDER}",
        "CHANGELOG.md: make its first heading `## 1.2.3 (YYYY-MM-DD)`, the day of the release",
        "no tag: git tag v1.2.3",
    ]

"""The documentation as a site, which `make docs` makes."""

from __future__ import annotations

import subprocess

import pytest

from support import REPOSITORY, require

pytestmark = pytest.mark.slow

ZENSICAL = REPOSITORY / ".venvs" / "docs" / "bin" / "zensical"


def test_the_site_is_built_and_a_broken_link_fails_it(tmp_path):
    require(ZENSICAL.exists(), "Zensical in .venvs/docs")
    built = tmp_path / "built"
    done = subprocess.run([REPOSITORY / "scripts" / "site", ZENSICAL, built], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {str(path.relative_to(built / "site")) for path in (built / "site").rglob("*.html")}
    assert {"index.html", "docs/why.html", "docs/tasks/bug.html", "grafana/runbooks/TpuHang.html"} <= pages
    assert "//fonts." not in (built / "site" / "index.html").read_text()
    assert "straggler" in (built / "site" / "search.json").read_text()
    for link in ("nowhere.md", "why.md#nowhere"):
        (built / "pages" / "docs" / "broken.md").write_text(f"# Broken\n\n[a link]({link})\n")
        build = [ZENSICAL, "build", "--strict", "--config-file", built / "zensical.toml"]
        done = subprocess.run(build, capture_output=True, text=True)
        assert done.returncode == 1
        assert "does not exist" in done.stderr + done.stdout

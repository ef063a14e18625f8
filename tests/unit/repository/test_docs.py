"""The pages: their links lead somewhere, their command lines are understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from support import REPOSITORY
from tpumon.cli.app import app
from tpumon.cli.group import ENVIRONMENT

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "grafana/*.md", "grafana/runbooks/*.md", "deploy/*.md")
    for path in REPOSITORY.glob(pattern)
)
PATHS = [str(path.relative_to(REPOSITORY)) for path in PAGES]


def _prose(path: Path) -> str:
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def _anchors(path: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", _prose(path), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PATHS)
def test_links_lead_somewhere(page):
    path = REPOSITORY / page
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", _prose(path)):
        if not link.startswith(("http://", "https://")):
            name, _, anchor = link.partition("#")
            target = path.parent / name if name else path
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append(link)
    assert broken == []


def test_paths_in_backticks_exist():
    """A page may leave out the first folders of a path: `traces/readers.py`."""
    files = [
        f"/{path.relative_to(REPOSITORY)}"
        for top in REPOSITORY.iterdir()
        if not top.name.startswith(".") and top.is_dir()
        for path in top.rglob("*")
    ]
    wrong = [
        (page, path)
        for page, text in zip(PATHS, map(_prose, PAGES), strict=True)
        for path in re.findall(
            r"`((?:\w[\w.-]*/)+[\w.-]+\.(?:py|md|proto|sh|toml|yml|yaml)|(?:tpumon|tests|docs|deploy)/[\w./-]+)`", text
        )
        if not any(file.endswith(f"/{path.removesuffix('/')}") for file in files)
    ]
    assert wrong == []


def test_links_in_the_code_lead_somewhere():
    """Findings have such addresses."""
    sources = (
        *REPOSITORY.glob("tpumon/**/*.py"),
        *REPOSITORY.glob("grafana/*.py"),
        *REPOSITORY.glob("deploy/**/*.yaml"),
    )
    links = {link for path in sources for link in re.findall(r"docs/[a-z-]+\.md(?:#[\w-]+)?", path.read_text())}
    assert links
    for link in links:
        name, _, anchor = link.partition("#")
        assert not anchor or anchor in _anchors(REPOSITORY / name), link


def test_how_to_install_an_extra_is_said_in_one_place():
    """`how_to_install` knows what works where the user is."""
    sources = [path for root in ("tpumon", "exporters") for path in (REPOSITORY / root).rglob("*.py")]
    assert [path.name for path in sources if "pip install" in path.read_text()] == ["extras.py"]


def _command_lines() -> list[str]:
    """Lines of code that begin with `tpumon`, without comments, redirections and what stands for something else."""
    lines = [
        line.strip().partition(" #")[0].partition(" > ")[0].strip()
        for path in PAGES
        for block in re.findall(r"^```sh\n(.*?)^```|((?:^    \S[^\n]*\n)+)", path.read_text(), re.DOTALL | re.MULTILINE)
        for line in "".join(block).splitlines()
    ]
    return sorted({line for line in lines if line.startswith("tpumon ") and "|" not in line.partition("'")[0]})


@pytest.mark.parametrize("line", _command_lines())
def test_command_lines_are_understood(line):
    """They are parsed, not run."""
    group = typer.main.get_command(app)
    _, *words = shlex.split(line)
    with typer.Context(group, info_name="tpumon", **ENVIRONMENT) as context:
        if words and words[0] in group.commands:
            group.commands[words[0]].make_context(words[0], words[1:], parent=context)
        else:
            group.make_context("tpumon", words)


def test_runbooks_name_metrics_and_panels_that_exist():
    runbooks = "\n".join(path.read_text() for path in (REPOSITORY / "grafana" / "runbooks").glob("*.md"))
    metrics = set(re.findall(r"(?<![\w/])tpu(?:mon)?_\w+", runbooks))
    assert metrics - set(re.findall(r"tpu(?:mon)?_\w+", (REPOSITORY / "docs" / "metrics.md").read_text())) == set()
    panels = set(re.findall(r"(?:[Dd]ashboard|panel|table)\s+\*([^*]+)\*", runbooks))
    titles = {
        title
        for path in (REPOSITORY / "grafana" / "dashboards").glob("*.json")
        for title in re.findall(r'"title": "([^"]+)"', path.read_text())
    }
    assert metrics
    assert panels
    assert panels - titles == set()

"""The pages: the site lists them, their links lead somewhere, their command lines are understood."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

import pytest
import typer

from support import REPOSITORY
from support.documented import command_lines, command_names, parse
from support.samples import sample
from tpumon.analysis import Update
from tpumon.model import StepTimes
from tpumon.outputs import Context

PAGES = sorted(
    path
    for pattern in ("*.md", ".github/**/*.md", "docs/**/*.md", "grafana/*.md", "grafana/runbooks/*.md", "deploy/*.md")
    for path in REPOSITORY.glob(pattern)
)
PATHS = [str(path.relative_to(REPOSITORY)) for path in PAGES]


TEXTS = {name: path.read_text() for name, path in zip(PATHS, PAGES, strict=True)}
LINES = sorted(set().union(*map(command_lines, TEXTS.values())))
NAMES = sorted(set().union(*map(command_names, TEXTS.values())) - {*LINES})


def _leaves(nav):
    """Pages of a part of the site's navigation."""
    if isinstance(nav, str):
        return [nav]
    return [page for entry in nav for each in entry.values() for page in _leaves(each)]


def test_the_site_lists_every_page_once():
    """Runbooks are listed by the page of the dashboards."""
    nav = _leaves(tomllib.loads((REPOSITORY / "zensical.toml").read_text())["project"]["nav"])
    runbooks = {f"grafana/{name}" for name in re.findall(r"\]\((runbooks/\w+\.md)\)", TEXTS["grafana/README.md"])}
    assert sorted([*nav, *runbooks]) == sorted(page for page in PATHS if not page.startswith(".github/"))


def _prose(path: Path) -> str:
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def _anchors(path: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", _prose(path), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_what_architecture_says_is_in_a_file_is_in_it():
    """Each `Class.method` (`folder/file.py`)."""
    named = re.findall(r"`([\w.]+)`\s\(`([\w/]+\.py)`", TEXTS["docs/architecture.md"])
    assert len(named) > 20
    for name, where in named:
        texts = [path.read_text() for top in ("tpumon", "exporters", "grafana") for path in _files(top, where)]
        for word in name.split("."):
            defined = re.compile(rf"^\s*(async def|class|def) {word}\b", re.MULTILINE)
            assert any(map(defined.search, texts)), (name, where)


def _files(top: str, where: str) -> list[Path]:
    return [path for path in (REPOSITORY / top).rglob("*.py") if str(path).endswith(f"/{where}")]


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


@pytest.mark.parametrize("page", PATHS)
def test_lists_follow_an_empty_line(page):
    """Or the site shows them as a part of the paragraph before."""
    prose = _prose(REPOSITORY / page)
    assert re.findall(r"^(?!- |\d+\. |[\s|<#]).+\n(?:- |\d+\. ).*", prose, re.MULTILINE) == []


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


def test_command_lines_are_found():
    """In blocks, in lists, behind other programs, in backticks; not in what is printed."""
    page = """Run `tpumon why
--brief` or:

    TPUMON_DEBUG=1 tpumon once | head    # comment

1. Then

    ```sh
    kubectl exec p -- tpumon events \\
        --follow > file
    ```

```
tpumon: listening on http://127.0.0.1:1
```
"""
    assert command_lines(page) == {"tpumon once", "tpumon events --follow"}
    assert command_names(page) == {"tpumon why --brief"}


def test_how_to_install_an_extra_is_said_in_one_place():
    """`how_to_install` knows what works where the user is."""
    sources = [path for root in ("tpumon", "exporters") for path in (REPOSITORY / root).rglob("*.py")]
    assert [path.name for path in sources if "pip install" in path.read_text()] == ["extras.py"]


@pytest.mark.parametrize("line", LINES)
def test_command_lines_are_understood(line):
    """They are parsed, not run."""
    parse(line)


@pytest.mark.parametrize("line", NAMES)
def test_what_stands_in_a_sentence_is_understood(line):
    """A value or an argument may be missing there, at the end."""
    try:
        parse(line)
    except typer.TyperException as error:
        if not re.match("Missing parameter|Option .* requires an argument", str(error)):
            raise


@pytest.mark.parametrize("line", [*LINES[::10], *NAMES[::10], "tpumon", "capture_tpu_profile --monitoring_level=1"])
def test_a_wrong_option_is_not_understood(line):
    words = line.split()
    at = 2 if words[1:2] == ["run"] else 1  # behind it stands the program's own
    with pytest.raises(typer.TyperException, match="No such option"):
        parse(" ".join([*words[:at], "--no-such-option", *words[at:]]))


@pytest.mark.parametrize(
    "line", ["tpumon why --breif", "tpumon wyh", "tpumon once --fail-on bad", "tpumon --interval", "tpumon pause"]
)
def test_a_wrong_command_line_is_not_understood(line):
    with pytest.raises(typer.TyperException):
        parse(line)


def test_targets_of_make_exist():
    made = set(re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = {target for text in TEXTS.values() for target in re.findall(r"(?:^|`)make ([\w-]+)", text, re.MULTILINE)}
    assert named
    assert named - made == set()


def test_the_plug_in_of_the_docs_works(tmp_path, capsys):
    text = TEXTS["docs/tasks/plug-in.md"]
    toml, code = (
        textwrap.dedent(re.search(rf"^ +```{kind}\n(.*?)^ +```", text, re.DOTALL | re.MULTILINE)[1])
        for kind in ("toml", "python")
    )
    (point,) = tomllib.loads(toml)["project"]["entry-points"]["tpumon.exporters"].values()
    names = {}
    exec(code, names)
    for where in (str(tmp_path / "steps"), "-"):
        output = names[point.partition(":")[2]](where, Context())
        output.on_update(
            Update(time_unix_s=1000.0, sample=sample(step_time_s=StepTimes(avg=0.5, min=0.5, max=0.5, count=1)))
        )
        output.on_update(Update(time_unix_s=1000.0))
        output.close()
    print("stdout stays open")
    assert capsys.readouterr().out == "1000 w0 0.5\nstdout stays open\n"
    assert (tmp_path / "steps").read_text() == "1000 w0 0.5\n"


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

"""The help pages, as people see them in 80 columns."""

from __future__ import annotations

import pytest
import typer

from fakes.run import each
from tpumon.cli.app import app


def commands(group, *path):
    """Words of every command, that of `tpumon` itself (none) first; hidden ones are left out."""
    yield path
    for name, command in sorted(getattr(group, "commands", {}).items()):
        if not command.hidden:
            yield from commands(command, *path, name)


def test_help_pages(golden):
    """Of `tpumon` and each of its commands."""
    paths = list(commands(typer.main.get_command(app)))
    assert ("serve",) in paths
    results = each([[*path, "--help"] for path in paths], env={"COLUMNS": "80", "TERM": "xterm", "LC_ALL": "C.UTF-8"})
    pages = {"-".join(["tpumon", *path]): result.ended(0).out for path, result in zip(paths, results, strict=True)}
    for name, page in pages.items():
        golden.check(f"help/{name}.txt", "\n".join(line.rstrip() for line in page.splitlines()))
    assert max(len(line) for page in pages.values() for line in page.splitlines()) <= 80


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"LC_ALL": "C"}, {"LC_ALL": "C", "COLUMNS": "30"}], ids=str)
def test_help_is_ascii_where_a_terminal_may_not_show_more(env):
    assert all(result.ended(0).out.isascii() for result in each([["--help"], ["once", "--help"]], env=env))

"""The reference pages are made from the tables in the code."""

from __future__ import annotations

import runpy

import pytest
import typer

from support import REPOSITORY
from tpumon.cli.app import app

MADE = runpy.run_path(str(REPOSITORY / "scripts" / "reference_docs.py"))
PAGES = MADE["pages"]()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_is_current(page):
    assert page.read_text() == PAGES[page], "run .venv/bin/python scripts/reference_docs.py"


def test_every_table_is_on_a_page():
    texts = "".join(PAGES.values())
    assert [name for name in MADE["TABLES"] if f"<!-- table: {name} -->" not in texts] == []


def test_the_manual_has_every_command_and_option():
    group = typer.main.get_command(app)
    (path,) = (path for path in PAGES if path.name == "tpumon.1")
    manual = PAGES[path].replace("\\-", "-")
    names = {f'.SS "tpumon {name} ' for name in group.commands}
    options = {
        option
        for command in (group, *group.commands.values())
        for one in command.params
        if one.param_type_name == "option" and not one.hidden
        for option in one.opts
    }
    assert {name for name in names if name not in manual} == set()
    assert {option for option in options if f"\\fB{option}\\fR" not in manual} == set()
    assert ".B 129, 130, 143" in manual

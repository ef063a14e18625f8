"""The reference pages are made from the tables in the code, and each row of the page on faults names its tests."""

from __future__ import annotations

import ast
import runpy

import pytest

from support import REPOSITORY

MADE = runpy.run_path(str(REPOSITORY / "scripts" / "reference_docs.py"))
PAGES = MADE["pages"]()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_is_current(page):
    assert page.read_text() == PAGES[page], "run .venv/bin/python scripts/reference_docs.py"


def test_every_table_is_on_a_page():
    assert [
        name for name in MADE["_TABLES"] if not any(f"<!-- table: {name} -->" in text for text in PAGES.values())
    ] == []


def functions_in(file):
    for top in ("faults", "unit", "integration"):
        path = REPOSITORY / "tests" / top / file
        if path.exists():
            tree = ast.parse(path.read_text())
            return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return set()


@pytest.mark.parametrize("part", ["harm", "wire", "edge", "inside"])
def test_every_row_names_a_test(part):
    for *_, names in MADE["faults"](part):
        for name in names.replace(", ", " ").split():
            file, _, test = name.partition("::")
            assert test.partition("[")[0] in functions_in(file.rpartition("/")[2]), name

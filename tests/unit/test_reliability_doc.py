"""docs/reliability.md is made from the tables of faults, and each row's test is there."""

from __future__ import annotations

import ast
import runpy

import pytest

from support import REPOSITORY

MADE = runpy.run_path(str(REPOSITORY / "scripts" / "reliability_doc.py"))


def test_the_page_is_current():
    assert MADE["PAGE"].read_text() == MADE["page"](), "run .venv/bin/python scripts/reliability_doc.py"


def functions_in(file):
    for top in ("faults", "unit", "integration"):
        path = REPOSITORY / "tests" / top / file
        if path.exists():
            tree = ast.parse(path.read_text())
            return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return set()


@pytest.mark.parametrize("part", ["harm", "wire", "edge", "inside"])
def test_every_row_names_a_test(part):
    for *_, names in MADE["rows"](part):
        for name in names.replace(", ", " ").split():
            file, _, test = name.partition("::")
            assert test.partition("[")[0] in functions_in(file.rpartition("/")[2]), name

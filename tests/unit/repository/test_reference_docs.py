"""The reference pages are made from the tables in the code."""

from __future__ import annotations

import runpy

import pytest

from support import REPOSITORY

MADE = runpy.run_path(str(REPOSITORY / "scripts" / "reference_docs.py"))
PAGES = MADE["pages"]()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_is_current(page):
    assert page.read_text() == PAGES[page], "run .venv/bin/python scripts/reference_docs.py"


def test_every_table_is_on_a_page():
    texts = "".join(PAGES.values())
    assert [name for name in MADE["TABLES"] if f"<!-- table: {name} -->" not in texts] == []

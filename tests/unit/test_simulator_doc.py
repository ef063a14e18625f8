"""docs/simulator.md is made from the table of faults."""

from __future__ import annotations

import runpy

from support import REPOSITORY


def test_the_page_is_current():
    """Who changes the table runs the script."""
    made = runpy.run_path(str(REPOSITORY / "scripts" / "simulator_doc.py"))
    assert made["PAGE"].read_text() == made["page"](), "run .venv/bin/python scripts/simulator_doc.py"

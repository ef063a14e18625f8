"""Writes docs/schemas/ from the types of what tpumon prints, and of options: `.venv/bin/python scripts/schemas.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import schema
from typer.main import get_command

from tpumon.analysis.fleet_verdict import WhyDocument
from tpumon.cli.app import app
from tpumon.cli.commands.once import OnceDocument
from tpumon.cli.commands.why import WhyRequestDocument
from tpumon.cli.config_file import configuration_type
from tpumon.model.sample import SampleDocument
from tpumon.model.state import Event
from tpumon.report.comparison import Comparison
from tpumon.report.sections import ReportDocument

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"

DOCUMENTS: Mapping[str, type[Struct]] = {
    "sample": SampleDocument,
    "event": Event,
    "once": OnceDocument,
    "why": WhyDocument,
    "why-request": WhyRequestDocument,
    "report": ReportDocument,
    "report-against": Comparison,
}
"""What tpumon prints, by the names of the files."""


def files() -> dict[Path, str]:
    """The contents of all files."""
    group: Any = get_command(app)
    kinds = {**DOCUMENTS, "configuration": configuration_type(group)}
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {FOLDER / f"{name}.json": json.dumps(draft | schema(kind), indent=1) + "\n" for name, kind in kinds.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text)

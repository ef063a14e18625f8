"""Writes docs/schemas/ from the types of what tpumon prints, and of options: `.venv/bin/python scripts/schemas.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_origin

import typer.main
from msgspec import Struct
from msgspec.json import schema

from tpumon.analysis.answer import WhyDocument
from tpumon.cli.app import app
from tpumon.cli.commands.once import OnceDocument
from tpumon.cli.config_file import options_of
from tpumon.model.sample import SampleDocument
from tpumon.model.state import Event
from tpumon.report.compare import Comparison
from tpumon.report.section_table import ReportDocument

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"

DOCUMENTS: Mapping[str, type[Struct]] = {
    "sample": SampleDocument,
    "event": Event,
    "once": OnceDocument,
    "why": WhyDocument,
    "report": ReportDocument,
    "report-against": Comparison,
}
"""What tpumon prints, by the names of the files."""


def files() -> dict[Path, str]:
    """The contents of all files."""
    made = {name: schema(kind) for name, kind in DOCUMENTS.items()} | {"configuration": _configuration()}
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {FOLDER / f"{name}.json": json.dumps(draft | each, indent=1) + "\n" for name, each in made.items()}


def _configuration() -> dict[str, Any]:
    """The schema of a configuration file: options of all commands, and a table for each command."""
    group: Any = typer.main.get_command(app)
    tables = {name: _options(command) for name, command in group.commands.items()}
    shared = {name: value for options in (*tables.values(), _options(group)) for name, value in options.items()}
    return {
        "title": "Configuration",
        "type": "object",
        "additionalProperties": False,
        "properties": shared
        | {
            name: {"type": "object", "additionalProperties": False, "properties": options}
            for name, options in tables.items()
            if options
        },
    }


def _options(command: Any) -> dict[str, Any]:
    return {name: _option(parameter) for name, parameter in options_of(command)}


def _option(parameter: Any) -> dict[str, Any]:
    kind = parameter.type_descriptor.annotation
    # A text is taken as it would be typed, so that a number will do.
    one = schema(kind) if kind in {bool, int, float} or get_origin(kind) is Literal else {"type": ["string", "number"]}
    several = {"anyOf": [one, {"type": "array", "items": one}]} if parameter.multiple else one
    return {**several, "description": parameter.help or ""}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text)

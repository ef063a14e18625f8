"""Tables of the fields of the Sample object and of the options, made of the types that define them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args, get_type_hints

import typer
from msgspec import Struct

from tpumon.cli.app import app
from tpumon.model import Figures, Sample
from tpumon.model.figure_table import FIGURES

_SCALARS = {bool, int, float, str, type(None)}
_OTHERWISE = {
    "schema": "1",
    "warnings": "what to know about the figures: messages",
    "warning_codes": "a [code](#warning-codes) for each message, in the same order",
    "companions_only": "only there, as `true`, if another companion of the profiler was all that answered; `source` is "
    "then its name",
}
"""Fields that the JSON has and the types have not, or have otherwise."""


def sample_fields() -> str:
    """The fields of every sample, but for its figures."""
    names = {*_plain_sample(), *_OTHERWISE} - set(Figures.__struct_fields__)
    rows = [*_rows(Sample, names - set(_OTHERWISE)), *((name, about) for name, about in _OTHERWISE.items())]
    return _table(("field", "meaning"), rows)


def figure_fields() -> str:
    """The figures that are more than one number, or that are no row of the table of figures."""
    known = {name for figure in FIGURES for name in figure.fields}
    hints = get_type_hints(Figures)
    names = {name for name in _plain_sample() if name in hints and (name not in known or not _is_scalar(hints[name]))}
    return _table(("field", "meaning"), _rows(Figures, names))


def options() -> str:
    """All options, by the panels of `--help`; after them those that only some commands have."""
    group: Any = typer.main.get_command(app)
    seen: dict[str, tuple[str, str, str]] = {}
    for command, its in (("", group), *group.commands.items()):
        for one in its.params:
            if one.param_type_name == "option" and not one.hidden and one.name != "help":
                name = max(one.opts, key=len)
                panel = getattr(one, "rich_help_panel", None) or ("Other" if not command else command)
                seen.setdefault(name, (panel if not command else f"`tpumon {command}`", _spelled(one), one.help or ""))
    panels: dict[str, list[tuple[str, str]]] = {}
    for panel, spelled, about in seen.values():
        panels.setdefault(panel, []).append((spelled, about))
    return "\n".join(
        f"**{panel}**\n\n{_table(('option', 'meaning'), rows)}" for panel, rows in panels.items()
    )


TABLES: Mapping[str, Callable[[], str]] = {
    "fields of a sample": sample_fields,
    "figures of a sample": figure_fields,
    "options": options,
}


def _plain_sample() -> Mapping[str, Any]:
    return Sample(worker="", address="", time_unix_s=0.0, window_s=None, took_s=0.0).to_json()


def _rows(kind: type[Struct], names: set[str], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The fields of a type and, as jq writes their paths, of the types within it."""
    hints = get_type_hints(kind)
    about = dict(_attributes(kind))
    for name in kind.__struct_fields__:
        if name in names:
            yield f"`{prefix}{name}`", about.get(name, "")
            inner = _struct_in(hints[name])
            if inner is not None:
                many = "[]" if "tuple" in str(hints[name]) else ""
                fields = {each for each in inner.__struct_fields__ if "not part of the JSON" not in dict(_attributes(inner)).get(each, "")}
                yield from _rows(inner, fields, f"{prefix}{name}{many}.")


def _attributes(kind: type[Struct]) -> Iterator[tuple[str, str]]:
    """The meanings of a type's fields, from its docstring; words of Python as JSON has them."""
    _, _, text = (kind.__doc__ or "").partition("Attributes:\n")
    for names, about in re.findall(r"^ {8}(\w[\w, ]*): (.*(?:\n {12}.*)*)", text, re.MULTILINE):
        line = " ".join(about.split()).rstrip(".")
        for name in names.split(", "):
            yield name, line.replace("None", "`null`").replace("True", "`true`")


def _struct_in(hint: Any) -> type[Struct] | None:
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint
    return next((found for part in get_args(hint) if (found := _struct_in(part)) is not None), None)


def _is_scalar(hint: Any) -> bool:
    return hint in _SCALARS or (bool(get_args(hint)) and all(_is_scalar(part) for part in get_args(hint)))


def _spelled(one: Any) -> str:
    names = ", ".join(f"`{each}`" for each in (*sorted(one.opts, key=len, reverse=True), *one.secondary_opts))
    return names if one.is_flag else f"{names} `{one.metavar or one.type.name.upper()}`"


def _table(titles: tuple[str, ...], rows: Any) -> str:
    escaped = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows)
    lines = [" | ".join(titles), " | ".join("---" for _ in titles), *escaped]
    return "".join(f"| {line} |\n" for line in lines)

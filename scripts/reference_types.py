"""Tables of the fields of a Sample object, made from the types that define them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from msgspec import Struct

from tpumon.model import Figures, Sample
from tpumon.model.figure_table import FIGURES
from tpumon.model.figures import DeviceFigures, OpCategoryFigures, OpFigures, RuntimeFigures

Row = tuple[str, str]

_NOT_IN_JSON = "not part of the JSON"
_OTHERWISE = (
    ("`warnings`", "what to know about the figures: messages"),
    ("`warning_codes`", "a [code](#warning-codes) for each message, in the same order"),
    (
        "`companions_only`",
        "only there, as `true`, if only extra sources answered, not the profiler, and `source` does not say so already",
    ),
)
"""Fields that are other in the JSON than in the types."""
_OPS, _RUNTIME = "[reports](report.md#operations)", "[metrics](metrics.md#from-libtpus-runtime-metric-service)"
_ELSEWHERE = {OpFigures: _OPS, OpCategoryFigures: _OPS, DeviceFigures: _RUNTIME, RuntimeFigures: _RUNTIME}
"""Pages that explain the fields of a type: here only their names stand."""


def sample_fields() -> list[Row]:
    """The fields of every sample, figures apart."""
    names = _in_json() - set(Figures.__struct_fields__)
    return [("`schema`", "1"), *_rows(Sample, names - {"warnings"}), *_OTHERWISE]


def figure_fields() -> list[Row]:
    """The figures that are more than one number, and those that are no row of the table of figures."""
    known = {name for figure in FIGURES for name in figure.fields}
    hints = get_type_hints(Figures)
    names = {name for name in hints if name not in known or _struct_in(hints[name])}
    return list(_rows(Figures, names & _in_json()))


def _in_json() -> set[str]:
    return set(Sample(worker="", address="", time_unix_s=0.0, window_s=None, took_s=0.0).to_json())


def _rows(kind: type[Struct], names: set[str], prefix: str = "") -> Iterator[Row]:
    """The fields of a type and of those within it, by their paths; what needs no words stands beside its parent."""
    hints = get_type_hints(kind)
    about = _attributes(kind)
    for name in kind.__struct_fields__:
        if name not in names:
            continue
        inner = _struct_in(hints[name])
        explained = None if inner is None else _ELSEWHERE.get(inner)
        within = {} if inner is None or explained else _attributes(inner)
        fields = () if inner is None else inner.__struct_fields__
        plain = ", ".join(f"`{each}`" for each in fields if each not in within)
        meaning = about.get(name, "") + (f"; see {explained}" if explained else "")
        yield f"`{prefix}{name}`{plain and ': '}{plain}", meaning
        if inner is not None:
            shown = {each for each, words in within.items() if _NOT_IN_JSON not in words}
            yield from _rows(inner, shown, f"{prefix}{name}{'[]' if 'tuple' in str(hints[name]) else ''}.")


def _attributes(kind: type[Struct]) -> dict[str, str]:
    """Meanings of a type's fields, from its docstring, with JSON's words for Python's."""
    _, _, text = (kind.__doc__ or "").partition("Attributes:\n")
    about = {}
    for names, words in re.findall(r"^ {8}(\w[\w, ]*): (.*(?:\n {12}.*)*)", text, re.MULTILINE):
        line = " ".join(words.split()).rstrip(".").replace("None", "`null`").replace("True", "`true`")
        about.update(dict.fromkeys(names.split(", "), line))
    return about


def _struct_in(hint: Any) -> type[Struct] | None:
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint
    return next((inner for part in get_args(hint) if (inner := _struct_in(part)) is not None), None)

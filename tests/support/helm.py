"""Renders the chart of deploy/helm: the part of Helm's template language that it uses, and an error for any other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from support.deploy import DEPLOY

CHART = DEPLOY / "helm" / "tpumon"


def chart() -> dict[str, Any]:
    """Chart.yaml."""
    return yaml.safe_load((CHART / "Chart.yaml").read_text())


def default_values() -> dict[str, Any]:
    """values.yaml."""
    return yaml.safe_load((CHART / "values.yaml").read_text())


def rendered(**changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All objects of the chart; `changes` are merged into the sections of values.yaml."""
    values = {name: section | changes.get(name, {}) for name, section in default_values().items()}
    scope = {"Values": values, "Chart": {"AppVersion": chart()["appVersion"]}}
    texts = (_rendered(path.read_text(), scope) for path in sorted((CHART / "templates").glob("*.yaml")))
    return [made for text in texts for made in yaml.safe_load_all(text) if made]


def _rendered(template: str, scope: Mapping[str, Any]) -> str:
    parts = re.split(r"(\s*\{\{-.*?\}\}|\{\{.*?\}\})", template)  # a dash takes the space before
    return "".join(_walk(iter(parts), scope, None, shown=True))


def _walk(parts: Iterator[str], scope: Mapping[str, Any], dot: Any, *, shown: bool) -> Iterator[str]:
    """Up to the `end` of this block."""
    for part in parts:
        action = re.fullmatch(r"\s*\{\{-? ?(.*?) ?\}\}", part)
        if action is None:
            if shown:
                yield part
            continue
        word, _, rest = action[1].partition(" ")
        if word == "end":
            return
        if word == "else":
            shown = not shown
        elif word == "if":
            inside = list(_walk(parts, scope, dot, shown=bool(_value(rest, scope, dot))))
            yield from inside if shown else ()
        elif word == "range":
            yield from _repeated(parts, scope, _value(rest, scope, dot) if shown else [])
        elif shown:
            yield str(_value(action[1], scope, dot))


def _repeated(parts: Iterator[str], scope: Mapping[str, Any], items: list[Any]) -> Iterator[str]:
    body = []
    for part in parts:
        if re.search(r"\{\{-? end", part):
            break
        body.append(part)
    for item in items:
        yield from _walk(iter(body), scope, item, shown=True)


def _value(expression: str, scope: Mapping[str, Any], dot: Any) -> Any:
    first, *filters = (part.strip() for part in expression.split("|"))
    name, _, argument = first.rpartition(" ")
    value = _looked_up(argument, scope, dot)
    if name:
        value = {"toYaml": _to_yaml, "toJson": json.dumps}[name](value)
    for each in filters:
        match each.split():
            case ["quote"]:
                value = json.dumps(str(value))
            case ["nindent", width]:
                value = "".join(f"\n{' ' * int(width)}{line}" for line in value.splitlines())
            case ["default", other]:
                value = value or _looked_up(other, scope, dot)
            case _:
                raise ValueError(f"not known here: {each}")
    return value


def _looked_up(path: str, scope: Mapping[str, Any], dot: Any) -> Any:
    if path == ".":
        return dot
    value: Any = scope
    for name in path.removeprefix(".").split("."):
        value = value[name]
    return value


def _to_yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False)

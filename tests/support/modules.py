"""What modules import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that a module imports, wherever in it that is."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write the whole name"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)

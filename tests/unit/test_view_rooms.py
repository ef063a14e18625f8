"""The rooms of the view import one way."""

from __future__ import annotations

import ast

import pytest

from support import REPOSITORY

VIEW = REPOSITORY / "tpumon" / "view"

# room: the other rooms and modules of the view that it may import
ALLOWED = {
    "text": set(),
    "notices": set(),
    "drawing": {"text"},
    "parts": {"drawing", "notices"},
    "screens": {"drawing", "parts"},
    "display": {"drawing", "parts", "screens", "loop.keys"},
    "loop": {"display", "screens"},
}


@pytest.mark.parametrize("path", sorted(VIEW.rglob("*.py")), ids=lambda path: str(path.relative_to(VIEW)))
def test_rooms_of_the_view_import_one_way(path):
    """Drawing, then parts, screens, the display, the loop; `loop.keys` names keys and imports nothing."""
    room = path.relative_to(VIEW).with_suffix("").parts[0]
    if room == "__init__":
        return
    imported = [node.module for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tpumon.view")]  # fmt: skip
    for name in imported:
        rest = name.removeprefix("tpumon.view").removeprefix(".")
        other = rest.split(".")[0]
        assert other in {"", room} or other in ALLOWED[room] or rest in ALLOWED[room], f"{path} imports {name}"

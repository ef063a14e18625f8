"""The rooms of the view import one way."""

from __future__ import annotations

import pytest

from support import REPOSITORY
from support.modules import imports

VIEW = REPOSITORY / "tpumon" / "view"

# room: the other rooms and modules of the view that it may import
ALLOWED = {
    "text": set(),
    "notices": set(),
    "progress": set(),
    "drawing": {"text"},
    "parts": {"drawing", "notices"},
    "screens": {"drawing", "parts"},
    "explained": {"text", "parts"},
    "settings": {"drawing", "parts"},
    "display": {"drawing", "parts", "screens", "loop.keys", "settings"},
    "loop": {"display", "screens", "settings"},
    "replay": {"display", "settings", "drawing", "parts", "screens"},
}


def wrong(path, room):
    """What a module of this room imports, but may not."""
    allowed = {room, *ALLOWED[room]}
    for line, name in imports(path):
        rest = name.removeprefix("tpumon.view").removeprefix(".")
        if rest == name.removeprefix("."):
            continue  # not of the view
        if not any(rest == each or rest.startswith(f"{each}.") for each in allowed):
            yield f"{path.name}:{line} imports {name}"


@pytest.mark.parametrize("path", sorted(VIEW.rglob("*.py")), ids=lambda path: str(path.relative_to(VIEW)))
def test_rooms_of_the_view_import_one_way(path):
    """Drawing, then parts, screens, the display, the loop; `loop.keys` names keys and imports nothing."""
    room = path.relative_to(VIEW).with_suffix("").parts[0]
    if room == "__init__":
        assert not list(imports(path))
        return
    assert room in ALLOWED, f"no row for {room}"
    assert not list(wrong(path, room))


@pytest.mark.parametrize(
    "line",
    [
        "import tpumon.view.display",
        "import tpumon.view.loop.keys as keys",
        "from tpumon.view import display",
        "from tpumon.view.loop import keys",
        "from tpumon.view.screens.table import SCREENS",
        "import tpumon.view",
    ],
)
def test_every_spelling_of_an_import_counts(tmp_path, line):
    """What is below may not import what is above, however it is written."""
    path = tmp_path / "module.py"
    path.write_text(line)
    assert list(wrong(path, "parts"))
    path.write_text("import numpy\nfrom tpumon.view.drawing import cells\nimport tpumon.view.parts.rows")
    assert not list(wrong(path, "parts"))

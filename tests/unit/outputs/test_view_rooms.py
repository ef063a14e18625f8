"""The rooms of the view import one way."""

from __future__ import annotations

import pytest

from support import REPOSITORY
from support.modules import imports

VIEW = REPOSITORY / "tpumon" / "outputs" / "live"
DRAWING = VIEW.parent / "drawing"

# room: the other rooms and modules of the view that it may import
ALLOWED = {
    "drawing": set(),
    "parts": {"view_settings"},
    "worker": {"parts", "view_settings"},
    "screens": {"parts", "view_settings", "worker"},
    "view_settings": set(),
    "display": {"parts", "screens", "loop.keys", "view_settings"},
    "loop": {"display", "screens", "view_settings"},
    "player": {"display", "view_settings", "parts", "screens"},
}


def wrong(path, room):
    """What a module of this room imports, but may not."""
    allowed = {room, *ALLOWED[room]}
    for line, name in imports(path):
        rest = name.removeprefix("tpumon.outputs.live").removeprefix(".")
        if rest == name.removeprefix("."):
            continue  # not of the view
        if not any(rest == each or rest.startswith(f"{each}.") for each in allowed):
            yield f"{path.name}:{line} imports {name}"


@pytest.mark.parametrize(
    "path", sorted([*DRAWING.rglob("*.py"), *VIEW.rglob("*.py")]), ids=lambda path: str(path.relative_to(VIEW.parent))
)
def test_rooms_of_the_view_import_one_way(path):
    """Drawing, then parts, screens, the display, the loop; `loop.keys` names keys and imports nothing."""
    room = path.relative_to(VIEW if path.is_relative_to(VIEW) else VIEW.parent).with_suffix("").parts[0]
    if room == "__init__":
        assert not list(imports(path))
        return
    assert room in ALLOWED, f"no row for {room}"
    assert not list(wrong(path, room))


@pytest.mark.parametrize(
    "line",
    [
        "import tpumon.outputs.live.display",
        "import tpumon.outputs.live.loop.keys as keys",
        "from tpumon.outputs.live import display",
        "from tpumon.outputs.live.loop import keys",
        "from tpumon.outputs.live.screens.screen_table import SCREENS",
        "import tpumon.outputs.live",
    ],
)
def test_every_spelling_of_an_import_counts(tmp_path, line):
    """What is below may not import what is above, however it is written."""
    path = tmp_path / "module.py"
    path.write_text(line)
    assert list(wrong(path, "parts"))
    path.write_text("import numpy\nfrom tpumon.outputs.drawing import cells\nimport tpumon.outputs.live.parts.rows")
    assert not list(wrong(path, "parts"))

"""The keys of graphs: how much time they show, and until when."""

from __future__ import annotations

from tpumon.outputs.live.screens.screen import Key

SPAN_KEYS: tuple[Key, ...] = (
    Key(
        names=("+", "=", "-"),
        hint=lambda controls: "longer" if controls.screens or len(controls.rows) == 1 else "",
        words="show a longer time in graphs (+), or a shorter one (-): a minute to a week",
        press=lambda controls, key: controls.change_span(longer=key != "-"),
    ),
    Key(
        names=("left", "right"),
        words="show an earlier time in graphs, or a later one",
        press=lambda controls, key: controls.move_span(later=key == "right"),
    ),
    Key(
        names=("0",),
        hint=lambda controls: "" if controls.end_unix_s is None else "now",
        words="show graphs until now again",
        press=lambda controls, _: controls.show_now(),
    ),
)

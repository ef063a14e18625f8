"""The table of figures is the one place that knows a figure, besides the model and whatever computes it."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
from msgspec.structs import fields

from support import REPOSITORY
from tpumon.model import Figures
from tpumon.model.figure_spec import FigureSpec, Unit
from tpumon.model.figure_table import FIGURES, csv_columns, of_level
from tpumon.model.figures import ServerFigures
from tpumon.report import overview_section

COMPUTED_IN = {"tpumon/xspace/trace_figures.py", "tpumon/collection/sources/monitor_rpc.py"}
AT_HOME = {"tpumon/model/figure_table.py", "tpumon/model/figures.py"}


def modules_that_name(word: str) -> set[str]:
    """Our modules with this word in them; a metric's name is another word."""
    pattern = re.compile(rf"(?<![\w]){word}\b")
    return {
        str(path.relative_to(REPOSITORY))
        for top in ("tpumon", "exporters")
        for path in (REPOSITORY / top).rglob("*.py")
        if pattern.search(path.read_text())
    }


@pytest.mark.parametrize("name", ["mxu_utilization_ratio", "hbm_bandwidth_utilization_ratio"])
def test_a_figure_is_named_where_it_is_declared_and_computed_only(name):
    assert modules_that_name(name) <= AT_HOME | COMPUTED_IN


def test_every_row_is_made_of_fields_of_figures():
    known = {item.name for item in fields(Figures)} | {f"server.{item.name}" for item in fields(ServerFigures)}
    assert {name for figure in FIGURES for name in figure.fields} <= known
    assert len({figure.key for figure in FIGURES}) == len(FIGURES)


@pytest.mark.parametrize("unit", get_args(Unit))
def test_a_figure_of_any_unit_is_in_reports(unit, monkeypatch):
    names: dict[str, Any] = {"key": "new", "fields": ("new",), "label": "New", "about": "New."}
    row = FigureSpec(**names, origin="device", unit=unit, value=lambda _: 0.5)
    monkeypatch.setattr(overview_section, "FIGURES", (row,))

    assert [label for label, _ in overview_section._figure_rows(Figures())] == ["New"]


def test_every_field_of_a_row_has_its_columns():
    columns = csv_columns()
    for figure in FIGURES:
        for name in figure.fields:
            column = name.replace(".", "_").replace("_families", "_decode_")
            stem = column.rpartition("_")[0].removesuffix("_time").removesuffix("_parts")
            assert any(column.startswith(stem) for column in columns), name


def test_level_1_keeps_only_the_figures_of_level_1():
    figures = Figures(
        mxu_utilization_ratio=0.4, mxu_method="flops", idle_ratio=0.1, absent={"idle_ratio": "x", "step_time_s": "y"}
    )
    assert of_level(figures, 1) == Figures(mxu_utilization_ratio=0.4, mxu_method="flops")
    assert of_level(figures, 2) is figures

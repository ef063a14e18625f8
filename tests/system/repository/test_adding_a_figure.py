"""A figure added the way CONTRIBUTING.md says, to a copy of the program: one field, one computation, one row.

It is then in JSON, in CSV, on the metrics page and in `--help`; test_view_new_figure.py has it on the screen.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import urllib.request

import pytest

from fakes.run import Tpumon, tpumon
from support import REPOSITORY

EDITS = {
    "tpumon/model/figures.py": (
        "    infeed_ratio: Spread | None = None\n    step_parts_s",
        "    infeed_ratio: Spread | None = None\n    outfeed_ratio: float | None = None\n    step_parts_s",
    ),
    "tpumon/xspace/step_figures.py": (
        "            infeed_ratio=infeed,\n",
        """            infeed_ratio=infeed,
            outfeed_ratio=step_parts_s(shared)["outfeed"] / float(durations_s.mean()),
""",
    ),
    "tpumon/model/figure_table.py": (
        "FIGURES: tuple[FigureSpec, ...] = (MXU,",
        """OUTFEED = FigureSpec(
    key="outfeed",
    fields=("outfeed_ratio",),
    label="Outfeed share",
    title="OUTFEED",
    about="Share of a step spent on outfeed.",
    origin="device",
    value=lambda figures: figures.outfeed_ratio,
    compared=True,
    metric="tpu_outfeed_ratio",
)

FIGURES: tuple[FigureSpec, ...] = (OUTFEED, MXU,""",
    ),
}


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """The environment in which the changed copy is what `tpumon` means."""
    copy = tmp_path_factory.mktemp("copy")
    for package in ("tpumon", "exporters"):
        shutil.copytree(REPOSITORY / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (before, after) in EDITS.items():
        text = (copy / name).read_text()
        assert before in text, f"{name} no longer reads as this exercise expects"
        (copy / name).write_text(text.replace(before, after, 1))
    return {"PYTHONPATH": os.pathsep.join([str(copy), str(copy / "exporters")])}


def test_it_is_in_json_and_csv_and_can_be_sorted_by(changed):
    once = ("--simulate", "v5e-8", "--num-queries", "1", "--output")
    (sample,) = tpumon(*once, "jsonl", env=changed).ended(0).samples
    assert 0 < sample["outfeed_ratio"] < 0.1
    (row,) = csv.DictReader(io.StringIO(tpumon(*once, "csv", env=changed).ended(0).out))
    assert 0 < float(row["outfeed_ratio"]) < 0.1
    assert "outfeed" in tpumon("--help", env=changed).ended(0).out


def test_it_is_on_the_metrics_page(changed):
    with Tpumon("serve", "--simulate", "v5e-8", "--listen", "127.0.0.1:0", env=changed) as command:
        command.wait_for(lambda: "listening on" in command.err)
        url = re.search(r"listening on (http://\S+)", command.err)[1]

        def page():
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.read().decode()

        assert "# HELP tpu_outfeed_ratio Share of a step spent on outfeed." in page()
        command.wait_for(lambda: 'tpu_outfeed_ratio{worker="' in page())

"""The command that makes the pictures of the live view."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from support import REPOSITORY

SVG = "{http://www.w3.org/2000/svg}"


WANTED = {
    "one": "sim-v5e-8-w0",
    "eight": "sim-v5e-32-w7",
    "fleet": "256 workers",
    "cpu": "No TPU in its trace",
    "worker": "DEVICE",
    "server": "kv-pressure",
    "why": "straggler",
    "ops": "convolution_fusion.1",
}


@pytest.mark.slow
@pytest.mark.timeout(300)  # they show hours of 256 workers
@pytest.mark.parametrize(
    "names",
    [("eight", "why", "cpu", "ops", "worker"), pytest.param((), marks=pytest.mark.nightly)],
    ids=["some", "all"],
)
def test_pictures_are_made_and_are_those_in_the_repository(tmp_path, names):
    """Each shows what it is named for and that it is simulated, and loads nothing; those committed are up to date."""
    subprocess.run([sys.executable, REPOSITORY / "scripts/screens.py", tmp_path, *names], check=True, timeout=600)

    made = {path.stem: path.read_text() for path in tmp_path.iterdir()}
    assert made.keys() == set(names or WANTED)
    for name, picture in made.items():
        parts = [part.text or "" for part in ET.fromstring(picture).iter(f"{SVG}text")]
        assert not [part for part in parts if " " in part], "programs without xml:space join these: columns are lost"
        text = " ".join(parts).replace("\xa0", " ")
        assert WANTED[name] in text
        assert "SIMULATED" in text
        assert not re.search(r"(href|url)\s*[=(]\s*.?https?:", picture)
    committed = {path.stem: path.read_text() for path in (REPOSITORY / "docs/screens").glob("*.svg")}
    assert committed.keys() == set(WANTED)
    assert {name: committed[name] for name in made} == made, "run scripts/screens.py"

"""The command that makes the pictures of the live view."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from support import REPOSITORY

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.slow
@pytest.mark.timeout(300)  # they show hours of 256 workers
def test_pictures_are_made_and_are_those_in_the_repository(tmp_path):
    """Each shows what it is named for and that it is simulated, and loads nothing; those committed are up to date."""
    subprocess.run([sys.executable, REPOSITORY / "scripts/screens.py", tmp_path], check=True, timeout=600)

    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    wanted = {
        "one.svg": "sim-v5e-8-w0",
        "eight.svg": "sim-v5e-32-w7",
        "fleet.svg": "256 workers",
        "cpu.svg": "No TPU in its trace",
        "worker.svg": "DEVICE",
        "server.svg": "kv-pressure",
        "why.svg": "straggler",
        "ops.svg": "convolution_fusion.1",
    }
    assert made.keys() == wanted.keys()
    for name, words in wanted.items():
        parts = [part.text or "" for part in ET.fromstring(made[name]).iter(f"{SVG}text")]
        assert not [part for part in parts if " " in part], "programs without xml:space join these: columns are lost"
        text = " ".join(parts).replace("\xa0", " ")
        assert words in text
        assert "SIMULATED" in text
        assert not re.search(r"(href|url)\s*[=(]\s*.?https?:", made[name])
    committed = {path.name: path.read_text() for path in (REPOSITORY / "docs/screens").glob("*.svg")}
    assert committed == made, "run scripts/screens.py"

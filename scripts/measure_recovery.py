"""Runs the tests that note how soon something was well again, and writes that to tests/faults/recovery.json."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

_ROOT = Path(__file__).parents[1]
_MEASURED = _ROOT / "tests" / "faults" / "recovery.json"
_NOTES = "record_testsuite_property"


def main() -> None:
    """Runs the command.

    Raises:
        subprocess.CalledProcessError: a test failed.
    """
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        tests = [str(file) for file in _MEASURED.parent.glob("test_*.py") if _NOTES in file.read_text()]
        subprocess.run([sys.executable, "-m", "pytest", "-q", *tests, f"--junitxml={report}"], cwd=_ROOT, check=True)
        noted = {each.attrib["name"]: each.attrib["value"] for each in ET.parse(report).iter("property")}  # noqa: S314
    noted = {test: value for test, value in noted.items() if test.startswith("test_")}  # Hypothesis notes, too
    _MEASURED.write_text(json.dumps(noted, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

"""Builds what a release consists of into dist/ and checks it: `make release`, or says why it may not go out yet.

dist/ gets the wheel, the sdist, the SBOM of the locked packages, dashboards with rules and runbooks, and checksums. All
of it comes from the last commit, so the same commit and tools make the same bytes. The wheel is installed into a new
environment, by the Python that runs this; there two commands and tests/unit run, with no other tpumon in sight.

    python3 scripts/release.py [build|publishable]

`build` leaves out the checks. `publishable` builds nothing; it ends with 1 and the reasons if a placeholder is left, no
tag `vVERSION` is on the commit, or the changelog has no date for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))

from grafana.config import PLACEHOLDER  # noqa: E402

DIST = HERE / "dist"
UV = HERE / ".uv/bin/uv"
TESTING = ("hypothesis", "jsonschema", "pyte", "pytest", "pytest-timeout", "pytest-xdist")
NOT_OF_THE_WHEEL = ("tests/unit/repository", "tests/unit/collection/test_wire.py")  # about the checkout
GRAFANA = ("grafana/README.md", "grafana/dashboards", "grafana/prometheus", "grafana/runbooks")


def main() -> None:
    """Runs the command."""
    match sys.argv[1:]:
        case ["publishable"]:
            reasons = list(unpublishable())
            sys.exit("\n".join(["not to be published:", *reasons]) if reasons else 0)
        case [] | ["build"] as words:
            release(checked=not words)
        case _:
            sys.exit(__doc__)


def release(*, checked: bool) -> None:
    """Builds and checks; says where everything is, and what keeps it from being published."""
    with tempfile.TemporaryDirectory(prefix="tpumon-release-") as name:
        source = Path(name, "source")
        source.mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=HERE, check=True, capture_output=True).stdout
        subprocess.run(["tar", "--extract", "--directory", source], input=archive, check=True)
        build(source)
        if checked:
            check(source, Path(name))
    sys.stdout.write((DIST / "SHA256SUMS").read_text())
    sys.stderr.writelines(f"not to be published yet: {reason}\n" for reason in unpublishable())


def build(source: Path) -> None:
    """Writes dist/ from the files of the last commit in `source`."""
    shutil.rmtree(DIST, ignore_errors=True)
    epoch = _git("log", "-1", "--format=%ct")
    constraints = ("--build-constraints", "deploy/build-requirements.txt", "--require-hashes")
    _run(UV, "build", "--quiet", *constraints, "--out-dir", DIST, cwd=source, SOURCE_DATE_EPOCH=epoch)
    (DIST / ".gitignore").unlink()  # uv's
    name = f"tpumon-{_version()}"
    what = ("--frozen", "--no-dev", "--no-emit-project", "--format=cyclonedx1.5")
    exported = _run(UV, "export", "--quiet", *what, cwd=source)
    (DIST / f"{name}.cdx.json").write_text(_reproducible(exported, int(epoch)))
    bundle = DIST / f"tpumon-grafana-{_version()}.tar.gz"
    _git("archive", f"--prefix=tpumon-grafana-{_version()}/", f"--output={bundle}", "HEAD", *GRAFANA)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(DIST.iterdir())]
    (DIST / "SHA256SUMS").write_text("".join(sums))


def _reproducible(sbom: str, epoch_s: int) -> str:
    """An SBOM with the commit's time in place of today's, no random number, and the version of tpumon."""
    document = json.loads(sbom)
    del document["serialNumber"]
    document["metadata"]["timestamp"] = datetime.fromtimestamp(epoch_s, UTC).isoformat()
    document["metadata"]["component"] |= {"version": _version(), "purl": f"pkg:pypi/tpumon@{_version()}"}
    return json.dumps(document, indent=2) + "\n"


def check(source: Path, directory: Path) -> None:
    """Installs the wheel into a new environment and tries it; a failure ends the program with 1."""
    (wheel,) = DIST.glob("*.whl")
    environment = directory / "venv"
    python = environment / "bin/python"
    _run(UV, "venv", "--quiet", "--python", sys.executable, environment, cwd=directory)
    _run(UV, "pip", "install", "--quiet", "--python", python, wheel, cwd=directory)
    tpumon = environment / "bin/tpumon"
    if (said := _run(tpumon, "--version", cwd=directory)) != f"tpumon {_version()}\n":
        sys.exit(f"tpumon --version: {said!r}")
    _run(tpumon, "--simulate", "v5e-8", "--num-queries", "1", cwd=directory)
    pins = directory / "pins.txt"
    pins.write_text(_run(UV, "export", "--quiet", "--frozen", "--only-group=dev", "--no-hashes", cwd=source))
    _run(UV, "pip", "install", "--quiet", "--python", python, "--constraints", pins, *TESTING, cwd=directory)
    for package in ("tpumon", "exporters"):
        shutil.rmtree(source / package)
    ignored = [f"--ignore={path}" for path in NOT_OF_THE_WHEEL]
    pytest = [environment / "bin/pytest", "-q", "-n", str(os.cpu_count() or 1), "-m", "not nightly", *ignored]
    ended = subprocess.run([*pytest, "tests/unit"], check=False, cwd=source, env=_environment())
    if ended.returncode:
        sys.exit(f"tests/unit failed with the installed wheel, by Python {sys.version.split()[0]}")


def unpublishable() -> Iterator[str]:
    """Reasons why the last commit may not be published, each in a line."""
    grep = ["git", "grep", "--line-number", "--fixed-strings", PLACEHOLDER, "HEAD"]
    found = subprocess.run(grep, check=False, cwd=HERE, capture_output=True, text=True)
    for line in found.stdout.splitlines():
        _, path, number, _ = line.split(":", 3)
        yield f"{path}:{number}: replace {PLACEHOLDER}"
    heading = re.search(r"^## .*", _committed("CHANGELOG.md"), re.MULTILINE)
    if heading is None or not re.fullmatch(rf"## {re.escape(_version())} \(\d{{4}}-\d\d-\d\d\)", heading[0]):
        yield f"CHANGELOG.md: make its first heading `## {_version()} (YYYY-MM-DD)`, the day of the release"
    tags = _git("tag", "--points-at", "HEAD").split()
    if f"v{_version()}" not in tags:
        yield f"no tag: git tag v{_version()}"


def _version() -> str:
    where = tomllib.loads(_committed("pyproject.toml"))["tool"]["hatch"]["version"]["path"]
    found = re.search(r'^__version__ = "(.+)"$', _committed(where), re.MULTILINE)
    assert found
    return found[1]


def _committed(path: str) -> str:
    """A file of the last commit, of which all is built."""
    return _git("show", f"HEAD:{path}")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=HERE, check=True, capture_output=True, text=True).stdout.strip()


def _environment(**more: str) -> dict[str, str]:
    """This process' without what is meant for other tpumons and Pythons."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TPUMON_", "VIRTUAL_"))}
    return kept | {"UV_PYTHON_DOWNLOADS": "never"} | more


def _run(*words: str | Path, cwd: Path, **variables: str) -> str:
    """Runs a command that has to end with 0, else ends this program; returns what it printed."""
    environment = _environment(**variables)
    ended = subprocess.run(words, check=False, cwd=cwd, env=environment, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"{' '.join(map(str, words))}: status {ended.returncode}\n{ended.stderr}")
    return ended.stdout


if __name__ == "__main__":
    main()

"""The wheel and the sdist, installed and run on every supported Python with the newest and the oldest dependencies.

Everything is built and installed in a temporary directory; packages come from uv's cache or the index. A dependency
without a wheel for a Python counts as a failure: who installs tpumon need not have a compiler. Ends with 1 if any
fails.

python tests/bench/packages.py [--python 3.12]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from compatibility import interpreter

from support import REAL_TRACE, REPOSITORY

UV = REPOSITORY / ".uv/bin/uv"
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = ("gcp", "parquet", "mcp")  # TensorFlow sets limits of its own
RESOLUTIONS = ("highest", "lowest-direct")
SHOWN = ("grpcio", "numpy", "protobuf", "prometheus-client", "rich", "typer")
LIMIT_S = 300


class FailedError(Exception):
    """A check that did not hold."""


@dataclass(frozen=True)
class Installed:
    """An environment with tpumon in it.

    Attributes:
        python: its interpreter.
        directory: an empty one, in which commands run.
    """

    python: Path
    directory: Path

    def run(self, *words: str) -> str:
        """What a command prints; it must end with 0 and say nothing of a bug."""
        ended = subprocess.run([self.python.with_name("tpumon"), *words], cwd=self.directory, env=_environment(),
                               capture_output=True, text=True, timeout=LIMIT_S)  # fmt: skip
        if ended.returncode or "a bug in" in ended.stderr or "Warning" in ended.stderr:
            raise FailedError(f"tpumon {' '.join(words)}: {ended.returncode}: {ended.stderr.strip()[-300:]}")
        return ended.stdout

    def versions(self) -> dict[str, str]:
        """Its packages."""
        rows = json.loads(_uv("pip", "list", "--format", "json", "--python", str(self.python)))
        return {row["name"]: row["version"] for row in rows}


def _environment() -> dict[str, str]:
    """Warnings of libraries are shown; nothing else that is set here matters there."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TPUMON", "VIRTUAL_ENV"))
    }
    return kept | {"PYTHONWARNINGS": "default::DeprecationWarning:tpumon", "UV_PYTHON_DOWNLOADS": "never"}


def _uv(*words: str) -> str:
    ended = subprocess.run([UV, "--quiet", *words], cwd=REPOSITORY, env=_environment(), capture_output=True, text=True)
    if ended.returncode:
        raise FailedError(f"uv {words[0]}: {ended.stderr.strip()[-600:]}")
    return ended.stdout


def version(here: Installed) -> None:
    if not re.fullmatch(r"tpumon \d+\.\d+\.\S+\n", shown := here.run("--version")):
        raise FailedError(f"--version: {shown!r}")


def monitor(here: Installed) -> None:
    lines = here.run("--level", "2", "--simulate", "v5e-8", "--num-queries", "2", "--output", "jsonl").splitlines()
    samples = [json.loads(line) for line in lines]
    if len(samples) != 2 or any(not sample["step_time_s"] or not sample["hbm_used_bytes"] for sample in samples):
        raise FailedError(f"{len(samples)} samples: {lines[:1]}")


def analyze(here: Installed) -> None:
    here.run("--level", "0", "--simulate", "v5e-8", "--logdir", "logs", "--duration-ms", "300")
    for path in ("logs", *([str(REAL_TRACE)] if REAL_TRACE.exists() else ())):
        if json.loads(here.run("analyze", path, "--output", "json"))["combined"]["mxu_utilization_ratio"] is None:
            raise FailedError(f"analyze {path}: no MXU")


def serve(here: Installed) -> None:
    command = [here.python.with_name("tpumon"), "serve", "--simulate", "v5e-8", "--listen", "127.0.0.1:0"]
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    with subprocess.Popen(
        command, cwd=here.directory, env=_environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = process.stderr
        threading.Thread(target=lambda: [said.put(line) for line in lines], daemon=True).start()
        try:
            _scrape(said)
        finally:
            process.send_signal(signal.SIGTERM)
            if process.wait(60):
                raise FailedError(f"serve: {process.returncode} after SIGTERM")


def _scrape(said: queue.SimpleQueue[str]) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not (found := re.search(r"http://\S+/metrics", said.get(timeout=LIMIT_S))):
        pass
    while time.monotonic() < until_s:
        with urllib.request.urlopen(found[0], timeout=60) as page:
            if b"tpu_mxu_utilization_ratio{" in page.read():
                return
        time.sleep(0.5)
    raise FailedError("serve: no figures on its page")


CHECKS = (version, monitor, serve, analyze)


@contextlib.contextmanager
def installed(artifact: Path, python: str, resolution: str, directory: Path) -> Iterator[Installed]:
    """A new environment with the artifact and its dependencies."""
    base = interpreter(python)
    if base is None:
        raise FailedError("no such Python on this machine")
    _uv("venv", "--python", str(base), str(directory / "venv"))
    venv = directory / "venv/bin/python"
    wanted = directory / "constraints.txt"  # to uv, what an artifact depends on is not direct
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    _uv("pip", "compile", "pyproject.toml", *extras, "--resolution", resolution, "--python", str(venv),
        "--output-file", str(wanted))  # fmt: skip
    no_compiler = ("--no-build",) if artifact.suffix == ".whl" else ()
    _uv("pip", "install", "--python", str(venv), "--constraints", str(wanted), *no_compiler,
        f"{artifact}[{','.join(EXTRAS)}]")  # fmt: skip
    (directory / "work").mkdir()
    yield Installed(venv, directory / "work")


def check(artifact: Path, python: str, resolution: str, directory: Path) -> tuple[list[str], str]:
    """What each check said, and the versions."""
    told = []
    with installed(artifact, python, resolution, directory) as here:
        known = here.versions()
        for one in CHECKS:
            try:
                one(here)
            except (
                FailedError,
                OSError,
                ValueError,
                KeyError,
                TypeError,
                queue.Empty,
                subprocess.SubprocessError,
            ) as error:
                told.append(f"{one.__name__} FAILED: {error}")
            else:
                told.append(f"{one.__name__} ok")
    return told, " ".join(f"{name} {known.get(name, '-')}" for name in SHOWN)


def main() -> None:
    """Builds, installs, runs, and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this one; repeatable")
    given = parser.parse_args()
    failed = _matrix(given.python or PYTHONS)
    print(f"{failed} of them failed" if failed else "all is well")
    sys.exit(failed > 0)


def _matrix(pythons: Sequence[str]) -> int:
    """How many combinations failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        _uv("build", "--out-dir", f"{name}/dist", str(REPOSITORY))
        artifacts = [next(Path(name, "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz")]
        for python in pythons:
            for resolution in RESOLUTIONS:
                for artifact in artifacts:
                    kind = "wheel" if artifact.suffix == ".whl" else "sdist"
                    with tempfile.TemporaryDirectory() as directory:
                        try:
                            told, versions = check(artifact, python, resolution, Path(directory))
                        except FailedError as error:
                            told, versions = [f"FAILED: {error}"], ""
                    failed += any("FAILED" in line for line in told)
                    print(f"{python:<5} {kind:<5} {resolution:<13} {', '.join(told)}\n{'':25} {versions}", flush=True)
    return failed


if __name__ == "__main__":
    main()

"""A page as Chromium shows it, without a window."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fakes.run import environment
from support import require

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_CONSOLE = re.compile(r"CONSOLE[:(]\d*\)?\]? ?(.*)")

_OWN_PAGES = "source: chrome://"  # the browser's own pages write to the console, too


@dataclass(frozen=True)
class Shown:
    """What became of a page.

    Attributes:
        dom: after its scripts have run, as HTML.
        console: what it wrote to the console, errors of the page included.
    """

    dom: str
    console: tuple[str, ...]


def _program() -> str:
    program = next((found for name in _PROGRAMS if (found := shutil.which(name))), None)
    require(program, "Chromium")
    assert program is not None
    return program


def show(page: str, directory: Path) -> Shown:
    """Opens a page from disk."""
    file = directory / "page.html"
    file.write_text(page)
    command = [_program(), "--headless=new", "--disable-gpu", "--enable-logging=stderr", "--v=0", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={directory}/browser"]
    command += ["--no-sandbox"] if os.geteuid() == 0 else []
    command += ["--dump-dom", "--virtual-time-budget=2000", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True, env=environment(directory))
    lines = (match[1] for match in _CONSOLE.finditer(done.stderr))
    return Shown(done.stdout, tuple(line for line in lines if _OWN_PAGES not in line))

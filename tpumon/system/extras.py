"""The command that adds an extra to the tpumon that runs."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec
from msgspec import Struct

_SOURCE = Path(__file__).parents[2]


class _Directory(Struct):
    editable: bool = False


class _Commit(Struct):
    vcs: str
    commit_id: str


class _DirectUrl(Struct):
    """The content of direct_url.json: the place that a package came from, if that is no index."""

    url: str
    dir_info: _Directory | None = None
    vcs_info: _Commit | None = None


def how_to_install(extra: str) -> str:
    """Returns a command that adds an extra, from where this tpumon came: a clone, a file, a repository, an index."""
    try:
        installed = distribution("tpumon")
    except PackageNotFoundError:
        return f"{_installer('pip')} {_from_source(extra)}"
    try:
        by = (installed.read_text("INSTALLER") or "").strip()
    except (OSError, ValueError):
        by = ""
    return f"{_installer(by)} {_from_direct_url(installed, extra)}"


def _installer(by: str) -> str:
    if by == "uv":  # its environments have no pip
        return f"uv pip install --python {quote(sys.executable)}"
    pip = shutil.which("pip")
    if pip and Path(pip).parent == Path(sys.executable).parent:
        return "pip install"
    return f"{quote(sys.executable)} -m pip install"  # the first pip on PATH, if any, is another Python's


def _from_source(extra: str) -> str:
    here = (_SOURCE / "pyproject.toml").is_file()
    return quote(f"{_SOURCE}[{extra}]" if here else f"tpumon[{extra}]")


def _from_direct_url(installed: Distribution, extra: str) -> str:
    try:
        direct_url = msgspec.json.decode(installed.read_text("direct_url.json") or "", type=_DirectUrl)
        url = urlsplit(direct_url.url)
    except (OSError, ValueError):
        return quote(f"tpumon[{extra}]")
    if direct_url.vcs_info:
        return quote(f"tpumon[{extra}] @ {direct_url.vcs_info.vcs}+{direct_url.url}@{direct_url.vcs_info.commit_id}")
    if url.scheme != "file":
        return quote(f"tpumon[{extra}] @ {direct_url.url}")
    path = url2pathname(url.path)
    if not os.path.exists(path):  # noqa: PTH110 - Path's own raises where it may not look
        # An image's build, a download that was removed.
        return quote(f"tpumon[{extra}]")
    return ("-e " if direct_url.dir_info and direct_url.dir_info.editable else "") + quote(f"{path}[{extra}]")

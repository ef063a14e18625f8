"""The command that adds an extra works from where tpumon came."""

from __future__ import annotations

import json
import sys

import pytest

from tpumon.system.extras import how_to_install

LOCAL = "file://{here}/a%20clone"


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Has tpumon be installed in an environment with a pip, which is the first one on PATH."""
    (tmp_path / "a clone").mkdir()
    (tmp_path / "tpumon.whl").touch()
    (tmp_path / "pip").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    about = tmp_path / "site" / "tpumon-0.1.0.dist-info"
    about.mkdir(parents=True)
    monkeypatch.syspath_prepend(about.parent)
    (about / "METADATA").write_text("Name: tpumon\nVersion: 0.1.0\n")
    (about / "INSTALLER").write_text("pip\n")
    return about


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": LOCAL, "dir_info": {}}, "pip install '{here}/a clone[gcp]'"),
        ({"url": LOCAL, "dir_info": {"editable": True}}, "pip install -e '{here}/a clone[gcp]'"),
        ({"url": "file://{here}/tpumon.whl", "archive_info": {}}, "pip install '{here}/tpumon.whl[gcp]'"),
        (
            {"url": "https://git.example/t.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "pip install 'tpumon[gcp] @ git+https://git.example/t.git@c0ffee'",
        ),
        ({"url": "https://example/t.whl", "archive_info": {}}, "pip install 'tpumon[gcp] @ https://example/t.whl'"),
        ({"url": "file:///removed/since.whl", "archive_info": {}}, "pip install 'tpumon[gcp]'"),
        ({"url": "file:///" + "a" * 300}, "pip install 'tpumon[gcp]'"),
        ({"url": 7}, "pip install 'tpumon[gcp]'"),
        (None, "pip install 'tpumon[gcp]'"),
    ],
    ids=["clone", "editable", "file", "git", "address", "removed", "impossible", "malformed", "index"],
)
def test_the_source_is_the_one_it_came_from(installed, tmp_path, origin, command):
    if origin is not None:
        text = json.dumps(origin).replace("{here}", str(tmp_path))
        (installed / "direct_url.json").write_text(text)

    assert how_to_install("gcp") == command.replace("{here}", str(tmp_path))


def test_the_installer_is_the_one_of_this_environment(installed, tmp_path, monkeypatch):
    """A first pip on PATH that is another Python's would install it there; environments of uv have no pip."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert how_to_install("gcp") == f"{tmp_path}/python -m pip install 'tpumon[gcp]'"
    (installed / "INSTALLER").write_text("uv\n")
    assert how_to_install("gcp") == f"uv pip install --python {tmp_path}/python 'tpumon[gcp]'"

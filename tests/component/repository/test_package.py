"""What a user installs."""

from __future__ import annotations

import configparser
import subprocess
import sys
import zipfile

import pytest

from support import REPOSITORY, require

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from this checkout; without the network where its build has been done here before."""
    uv = REPOSITORY / ".uv" / "bin" / "uv"
    require(uv.exists(), "uv in .uv/")
    directory = tmp_path_factory.mktemp("wheel")
    build = [uv, "build", "--quiet", "--wheel", "--out-dir", directory, REPOSITORY]
    done = subprocess.run([*build, "--offline"], capture_output=True, text=True, check=False)
    if done.returncode:
        done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = directory.glob("*.whl")
    return zipfile.ZipFile(file)


def sources(root: str, package: str) -> set[str]:
    """The files of one of our packages, as a wheel names them."""
    found = (REPOSITORY / root).glob(f"{package}/**/*")
    kept = (path for path in found if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(REPOSITORY / root)) for path in kept}


def test_the_wheel_holds_two_packages(wheel: zipfile.ZipFile) -> None:
    """tpumon and tpumon_exporters, whole; no other top-level name, `exporters` least of all."""
    files = set(wheel.namelist())

    tops = {file.split("/")[0] for file in files if ".dist-info/" not in file}
    assert {top for top in tops if not top.endswith(".data")} == {"tpumon", "tpumon_exporters"}
    assert sources(".", "tpumon") <= files
    assert sources("exporters", "tpumon_exporters") <= files
    assert {"tpumon/py.typed", "tpumon_exporters/py.typed"} <= files


def test_the_wheel_has_the_manual_and_completions(wheel: zipfile.ZipFile) -> None:
    """Where `man` and the shells look below the prefix of an installation."""
    shared = {file.partition(".data/data/")[2] for file in wheel.namelist() if ".data/" in file}

    assert shared == {
        "share/man/man1/tpumon.1",
        "share/bash-completion/completions/tpumon",
        "share/fish/vendor_completions.d/tpumon.fish",
        "share/zsh/site-functions/_tpumon",
    }


def test_the_wheel_has_the_command_and_its_outputs(wheel: zipfile.ZipFile) -> None:
    """Installing it brings the command `tpumon`, and every exporter that an entry point names is inside."""
    (name,) = (file for file in wheel.namelist() if file.endswith(".dist-info/entry_points.txt"))
    points = configparser.ConfigParser(delimiters=("=",))
    points.read_string(wheel.read(name).decode())

    commands = ("tpumon", "capture_tpu_profile")
    assert dict(points["console_scripts"]) == dict.fromkeys(commands, "tpumon.__main__:main")
    assert points["tpumon.exporters"]
    for where in points["tpumon.exporters"].values():
        module, function = where.split(":")
        assert f"def {function}(" in wheel.read(module.replace(".", "/") + ".py").decode(), where


@pytest.mark.parametrize("version", [(3, 9, 18), (3, 10, 13)])
def test_an_older_python_is_told_what_is_needed(version: tuple[int, int, int]) -> None:
    """A checkout can be run by any Python; the line comes before anything that needs a newer one."""
    program = f"import sys; sys.version_info = {version}; import tpumon.__main__"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    found = ".".join(map(str, version))
    assert done.stderr == f"tpumon: needs Python 3.11 or newer; {sys.executable} is Python {found}\n"


def test_the_wheel_names_its_licence(wheel: zipfile.ZipFile) -> None:
    """Apache-2.0, text included; Python from 3.11 on."""
    (metadata,) = (file for file in wheel.namelist() if file.endswith(".dist-info/METADATA"))
    said = wheel.read(metadata).decode()

    assert "License-Expression: Apache-2.0" in said
    assert "Requires-Python: >=3.11" in said
    assert any(file.endswith(".dist-info/licenses/LICENSE") for file in wheel.namelist())

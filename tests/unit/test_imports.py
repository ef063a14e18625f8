"""Who may import whom. One table; a new module or package needs a row."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from fakes.run import environment
from support import REPOSITORY
from support.modules import imports
from support.truncated import KINDS, truncated, whole

GRPC = {"grpc", "google.protobuf"}

# room: what it may import, beside itself, the standard library and `tpumon.__version__`
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "model": {"errors", "text"},
    "figures": {"model"},
    "text": set(),
    "system": {"text"},
    "wire": {"google.protobuf"},
    "xspace": {"errors", "model", "system", "text", "wire", "google.protobuf", "numpy"},
    "sources": {"errors", "model", "figures", "system", "text", "logdir", "wire", "xspace", *GRPC},
    "history": {"errors", "model", "figures"},
    "findings": {"history", "model", "figures"},
    "analysis": {"errors", "figures", "findings", "history", "model", "quoting", "text"},
    "metrics": {"analysis", "errors", "history", "model", "figures"},
    "targets": {"errors", "model", "text", "system", "sources", "simulator", "requests", "google.auth", "yaml"},
    "doctor": {"errors", "model", "sources", "system", "targets", "text"},
    "sampler": {"errors", "model", "figures", "text", "system", "sources", "targets"},
    "simulator": {"errors", "model", "wire", *GRPC},
    "view": {"analysis", "errors", "findings", "system", "model", "figures", "text", "history", "outputs", "rich"},
    "report": {"errors", "model", "figures", "text", "view", "xspace", "rich", "jinja2"},
    "logdir": {"errors", "tensorflow"},
    "outputs": {"analysis", "errors", "findings", "model", "system"},
    "exporters": {
        "analysis",
        "errors",
        "model",
        "figures",
        "text",
        "history",
        "metrics",
        "outputs",
        "recording",
        "system",
        "aiohttp",
        "prometheus_client",
        "bcrypt",
        "yaml",
    },
    "notices": {"errors", "history", "model"},
    "feed": {
        *("analysis", "errors", "model", "notices", "outputs", "recording", "remote", "sampler", "sources", "system"),
        *("targets", "text"),
    },
    "commands": {
        *("analysis", "errors", "model", "system", "logdir", "outputs", "sampler", "simulator", "sources", "targets"),
        *("doctor", "feed", "figures", "history", "recording", "report", "text", "view", "xspace"),
        *("exporters", "findings", "mcp", "mcp_types", "pyarrow", "quoting", "remote"),
    },
    "attach": set(),
    "command_line": {
        *(
            "analysis",
            "errors",
            "model",
            "system",
            "findings",
            "figures",
            "logdir",
            "outputs",
            "sampler",
            "simulator",
            "sources",
        ),
        *("targets", "feed", "commands", "recording", "remote", "report", "typer"),
    },
    "remote": {"analysis", "errors", "model", "targets", "text", "system"},
    "recording": {"errors", "logdir", "model", "text", "zstandard"},
    "quoting": {"text"},
    "cli": {
        *("errors", "model", "system", "figures", "command_line", "logdir", "outputs"),
        *("sampler", "simulator", "sources", "targets", "feed", "report", "view", "commands", "typer"),
    },
    "__main__": {"process"},
    "process": {"errors", "system", "cli", "command_line", "typer"},
}

PACKAGES = {"tpumon": "", "tpumon_exporters": "exporters", "tpumon_attach": "attach"}
"""Our packages, and the room that all of a package is, if it is one."""


def modules() -> list[Path]:
    found = [*REPOSITORY.glob("tpumon/**/*.py"), *REPOSITORY.glob("exporters/**/*.py")]
    return sorted(path for path in found if path != REPOSITORY / "tpumon" / "__init__.py")


def room_of(name: str) -> str:
    """The room of a dotted name below one of our packages; else the library that it is from."""
    package, _, rest = name.partition(".")
    if package in PACKAGES:
        return PACKAGES[package] or rest.split(".")[0]
    shared = ("google.protobuf", "google.auth")  # one package name, several libraries
    return next((library for library in shared if name.startswith(library)), package)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_imports_point_one_way(path: Path) -> None:
    """A module imports only what its room's row allows, type hints and late imports included."""
    root = "exporters" if path.is_relative_to(REPOSITORY / "exporters") else "."
    name = ".".join(path.relative_to(REPOSITORY / root).with_suffix("").parts)
    room = room_of(name)
    assert room in ALLOWED, f"no row for {room}"

    allowed = {*ALLOWED[room], room, "__version__", *sys.stdlib_module_names}
    wrong = [f"{path.relative_to(REPOSITORY)}:{line} imports {what}" for line, what in imports(path)
             if room_of(what) not in allowed]  # fmt: skip
    assert not wrong


def test_only_rooms_that_speak_grpc_import_it() -> None:
    """The table itself keeps grpc, protobuf and our messages where they belong."""
    speakers = {room for room, names in ALLOWED.items() if names & {*GRPC, "wire"}}

    assert speakers == {"wire", "xspace", "sources", "simulator"}


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        ("--help", {"grpc", "google.protobuf", "tensorflow", "numpy"}),
        ("--version", {"grpc", "google.protobuf", "tensorflow", "numpy"}),
        (
            "--simulate v2-8 --level 1 --duration-ms 20 --num-queries 1 --output jsonl",
            {"rich", "tensorflow", "aiohttp"},
        ),
    ],
)
def test_a_command_loads_what_it_needs(words: str, heavy: set[str], tmp_path: Path) -> None:
    """Help and version neither gRPC nor arrays; what only prints, nothing that draws or serves."""
    done, imported = loaded(words, tmp_path)

    assert "tpumon" in done or "." in done
    assert not heavy & imported


def test_reading_a_trace_loads_no_masked_arrays(tmp_path: Path) -> None:
    """NumPy loads them for `unique`, `percentile` and more; that takes as long as reading a small trace."""
    traces = [whole(Random(seed), dispatches=seed % 2 == 0) for seed in range(6)]
    traces += [truncated(kind, 1)[1] for kind in KINDS]
    for i, trace in enumerate(traces):
        (tmp_path / f"{i}.xplane.pb").write_bytes(trace.space.SerializeToString())
    _, imported = loaded(f"analyze {' '.join(map(str, tmp_path.glob('*.pb')))}", tmp_path)

    assert "numpy" in imported
    assert not {"numpy.ma", "grpc", "rich", "tensorflow"} & imported


def loaded(words: str, tmp_path: Path) -> tuple[str, set[str]]:
    """What a command prints, and the modules that it loads."""
    (tmp_path / "home").mkdir()
    program = f"""
import json, sys
sys.argv = ["tpumon", *"{words}".split()]
from tpumon.process import _run
status = _run(sys.argv[1:])
json.dump([status, sorted(sys.modules)], sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment(tmp_path)
    )
    status, imported = json.loads(done.stderr.splitlines()[-1])
    assert status in {0, None}
    return done.stdout, set(imported)


def _name_of(path: Path) -> str:
    root = "exporters" if path.is_relative_to(REPOSITORY / "exporters") else "."
    return ".".join(path.relative_to(REPOSITORY / root).with_suffix("").parts).removesuffix(".__init__")


def _type_hints_only(tree: ast.AST) -> set[int]:
    """Lines of imports that only type checkers see."""
    guards = (node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    return {node.lineno for guard in guards for node in ast.walk(guard) if isinstance(node, ast.ImportFrom)}


def _circle(graph: dict[str, set[str]]) -> list[str]:
    """The names that reach themselves."""
    circle = []
    for name in graph:
        reached: set[str] = set()
        ahead = [name]
        while ahead:
            new = graph.get(ahead.pop(), set()) - reached
            reached |= new
            ahead += new
        circle += [name] if name in reached else []
    return circle


def test_no_module_imports_itself_through_others() -> None:
    """Late imports count; those for type checkers alone do not."""
    known = {_name_of(path) for path in modules()}
    graph: dict[str, set[str]] = {}
    for path in modules():
        hints = _type_hints_only(ast.parse(path.read_text()))
        names = {what for line, what in imports(path) if line not in hints}
        here = _name_of(path)
        # `from a.b import c` is the module a.b.c where there is one, otherwise a name of a.b.
        graph[here] = {what if what in known else what.rpartition(".")[0] for what in names} & known - {here}
    assert _circle(graph) == []


def test_the_table_of_rooms_has_no_circle() -> None:
    """Otherwise each row could hold while two rooms import each other."""
    assert _circle({room: allowed & ALLOWED.keys() - {room} for room, allowed in ALLOWED.items()}) == []

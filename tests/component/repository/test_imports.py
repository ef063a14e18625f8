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
    "untrusted_text": set(),
    "quantities": set(),
    "moments": {"quantities"},
    "model": {"errors", "untrusted_text"},
    "system": {"errors", "untrusted_text"},
    "system.logdir": {"errors", "system", "tensorflow"},
    "proto": {"google.protobuf"},
    "xspace": {"errors", "model", "system", "untrusted_text", "proto", "google.protobuf", "numpy"},
    "collection.http_get": {"system"},
    "collection.sources": {
        *("collection.http_get", "errors", "model", "system", "untrusted_text", "proto", "xspace"),
        *("prometheus_client", *GRPC),
    },
    "collection.sampler": {"errors", "model", "untrusted_text", "system", "collection.sources", "discovery"},
    "collection.remote": {
        "analysis",
        "collection.http_get",
        "errors",
        "model",
        "discovery",
        "untrusted_text",
        "system",
    },
    "collection.recording": {"errors", "model", "moments", "untrusted_text", "system.logdir", "zstandard"},
    "collection.event_sources": {"collection", "discovery", "model", "system"},
    "collection": set(),
    "discovery": {
        *("errors", "model", "untrusted_text", "system", "collection.sources", "simulator"),
        *("requests", "google.auth", "yaml"),
    },
    "analysis.history": {"errors", "model", "untrusted_text"},
    "analysis.findings": {"analysis.history", "model", "untrusted_text"},
    "analysis": {"errors", "model", "moments", "untrusted_text"},
    "outputs.metrics": {"analysis", "errors", "model"},
    "outputs.drawing": {"analysis", "model", "outputs", "untrusted_text", "rich"},
    "outputs.live": {"analysis", "system", "model", "moments", "untrusted_text", "outputs", "rich"},
    "outputs.run_notices": {"analysis.history", "errors", "model", "untrusted_text"},
    "outputs": {"analysis", "errors", "model", "quantities", "system", "untrusted_text"},
    "report": {"model", "untrusted_text", "outputs", "xspace", "rich", "jinja2"},
    "simulator": {"errors", "model", "proto", "quantities", "aiohttp", *GRPC},
    "attach": set(),
    "exporters": {
        *("analysis", "errors", "model", "untrusted_text", "outputs", "collection.recording", "system", "proto"),
        *("discovery", "aiohttp", "prometheus_client", "bcrypt", "yaml"),
    },
    "pipeline": {"analysis", "collection", "errors", "model", "outputs", "system", "untrusted_text"},
    "cli": {
        *("analysis", "collection", "discovery", "errors", "model", "outputs", "pipeline", "report", "simulator"),
        *("moments", "quantities", "system", "untrusted_text", "xspace", "exporters"),
        *("anyio", "mcp", "mcp_types", "pyarrow", "typer"),
    },
    "__main__": {"cli"},
}
"""The longest name that fits a module is its room."""

PACKAGES = {"tpumon": "", "tpumon_exporters": "exporters", "tpumon_attach": "attach"}
"""Our packages, and the room that all of a package is, if it is one."""


def modules() -> list[Path]:
    found = [*REPOSITORY.glob("tpumon/**/*.py"), *REPOSITORY.glob("exporters/**/*.py")]
    return sorted(path for path in found if path != REPOSITORY / "tpumon" / "__init__.py")


def room_of(name: str) -> str:
    """The room of a dotted name below one of our packages; else the library that it is from."""
    package, _, rest = name.partition(".")
    if package in PACKAGES:
        if PACKAGES[package]:
            return PACKAGES[package]
        parts = rest.split(".")
        rooms = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        return next((room for room in rooms if room in ALLOWED), parts[0])
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
    allowed |= {"msgspec"} if room != "attach" else set()
    wrong = [
        f"{path.relative_to(REPOSITORY)}:{line} imports {what}"
        for line, what in imports(path)
        if not any(room_of(what) == each or room_of(what).startswith(f"{each}.") for each in allowed)
    ]
    assert not wrong


def test_no_permission_is_idle() -> None:
    """What nobody uses would hide an import that points the other way."""
    used: dict[str, set[str]] = {}
    for path in modules():
        root = "exporters" if path.is_relative_to(REPOSITORY / "exporters") else "."
        room = room_of(".".join(path.relative_to(REPOSITORY / root).with_suffix("").parts))
        used.setdefault(room, set()).update(room_of(what) for _, what in imports(path))
    idle = {
        (room, name)
        for room, names in ALLOWED.items()
        for name in names
        if not any(each == name or each.startswith(f"{name}.") for each in used.get(room, ()))
    }
    assert not idle


def test_only_rooms_that_speak_messages_import_them() -> None:
    """The table itself keeps grpc, protobuf and our messages where they belong."""
    speakers = {room for room, names in ALLOWED.items() if names & {*GRPC, "proto"}}

    assert speakers == {"proto", "xspace", "collection.sources", "simulator", "exporters"}


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


def test_reading_a_trace_loads_nothing_that_draws_or_serves(tmp_path: Path) -> None:
    traces = [whole(Random(seed), dispatches=seed % 2 == 0) for seed in range(6)]
    traces += [truncated(kind, 1)[1] for kind in KINDS]
    for i, trace in enumerate(traces):
        (tmp_path / f"{i}.xplane.pb").write_bytes(trace.space.SerializeToString())
    _, imported = loaded(f"analyze {' '.join(map(str, tmp_path.glob('*.pb')))}", tmp_path)

    assert "numpy" in imported
    assert not {"grpc", "rich", "tensorflow"} & imported


def loaded(words: str, tmp_path: Path) -> tuple[str, set[str]]:
    """What a command prints, and the modules that it loads."""
    (tmp_path / "home").mkdir()
    program = f"""
import json, sys
sys.argv = ["tpumon", *"{words}".split()]
from tpumon.cli.process import _run
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

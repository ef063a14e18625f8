"""The generated code belongs to the .proto files beside it."""

from __future__ import annotations

from pathlib import Path

from support import REPOSITORY

WIRE = Path("tpumon", "proto")
GENERATED = ("*_pb2.py", "*_pb2.pyi")


def generated_code(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for pattern in GENERATED for path in sorted((root / WIRE).glob(pattern))}


def test_generated_code_is_current(tmp_path: Path) -> None:
    """`make proto` would change nothing, and no generated file is left over from a .proto that is gone."""
    from grpc_tools import protoc

    protos = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / WIRE).glob("*.proto"))
    assert protos
    status = protoc.main(["protoc", f"-I{REPOSITORY}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *protos])

    assert status == 0
    fresh, ours = generated_code(tmp_path), generated_code(REPOSITORY)
    assert sorted(ours) == sorted(fresh)
    stale = [name for name in ours if ours[name] != fresh[name]]
    assert not stale, "run `make proto`"

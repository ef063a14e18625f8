"""Our messages against those of the real servers and readers."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from fakes.run import environment
from support import require
from support.descriptors import embedded_file
from tpumon import proto as wire
from tpumon.proto import profiler_pb2, xplane_pb2

pytestmark = pytest.mark.real

THEIR_FILES = (
    "tsl/profiler/protobuf/xplane.proto",
    "tsl/profiler/protobuf/profiler_options.proto",
    "tsl/profiler/protobuf/profiler_service_monitor_result.proto",
    "tsl/profiler/protobuf/profiler_service.proto",
)
THEIR_NAMES = {
    "MonitorResult": "ProfilerServiceMonitorResult",
    "TraceOutline": "XSpace",
    "PlaneOutline": "XPlane",
    "PlaneEventMetadata": "XPlane",
    "LineOutline": "XLine",
}
KEPT_AS_BYTES = {("ProfileResponse", "xspace"), ("LineOutline", "events"), ("PlaneEventMetadata", "EventMetadataEntry")}
"""Messages that we leave unopened: the same on the wire."""


@pytest.fixture(scope="module")
def their_files() -> list[FileDescriptorProto]:
    """Every profiler message and service as XProf has them, which is as TensorFlow and JAX have them."""
    found = importlib.util.find_spec("xprof")
    require(found, "XProf beside pytest")
    assert found is not None
    assert found.origin is not None
    library = Path(found.origin).parent / "convert" / "profiler_plugin_c_api.so"
    return [embedded_file(library, name) for name in THEIR_FILES]


# What stats hold is described elsewhere; that we read it right shows in the figures.
IN_STATS = {"CoreDetails", "MemoryAccessBreakdown", "MemoryAccess"}


def our_messages() -> list[DescriptorProto]:
    messages = []
    for file in (profiler_pb2.DESCRIPTOR, xplane_pb2.DESCRIPTOR):
        proto = FileDescriptorProto()
        file.CopyToProto(proto)
        messages.extend(message for message in proto.message_type if message.name not in IN_STATS)
    return messages


def fields(message: DescriptorProto) -> dict[str, tuple[int, int, int]]:
    """What decides how a field is written: number, type, repeated or not."""
    return {field.name: (field.number, field.type, field.label) for field in message.field}


def unopened(field: tuple[int, int, int]) -> tuple[int, int, int]:
    number, kind, label = field
    assert kind == FieldDescriptorProto.TYPE_MESSAGE
    return number, FieldDescriptorProto.TYPE_BYTES, label


@pytest.mark.parametrize("ours", our_messages(), ids=lambda message: message.name)
def test_fields_are_theirs(ours: DescriptorProto, their_files: list[FileDescriptorProto]) -> None:
    """Each of our fields has the name, number, type and label of theirs; so have maps' entries and enums' values."""
    name = THEIR_NAMES.get(ours.name, ours.name)
    (theirs,) = (message for file in their_files for message in file.message_type if message.name == name)
    their_fields = fields(theirs)
    for unopened_field in (field for message, field in KEPT_AS_BYTES if message == ours.name and field in their_fields):
        their_fields[unopened_field] = unopened(their_fields[unopened_field])

    assert fields(ours).items() <= their_fields.items()
    for entry in ours.nested_type:
        (their_entry,) = (nested for nested in theirs.nested_type if nested.name == entry.name)
        their_entry_fields = fields(their_entry)
        if (ours.name, entry.name) in KEPT_AS_BYTES:
            their_entry_fields["value"] = unopened(their_entry_fields["value"])
        assert fields(entry) == their_entry_fields
    for enum in ours.enum_type:
        (their_enum,) = (nested for nested in theirs.enum_type if nested.name == enum.name)
        assert [(v.name, v.number) for v in enum.value] == [(v.name, v.number) for v in their_enum.value]


def test_methods_are_theirs(their_files: list[FileDescriptorProto]) -> None:
    """The paths that we call are methods of their service."""
    methods = {
        f"/{file.package}.{service.name}/{method.name}"
        for file in their_files
        for service in file.service
        for method in service.method
    }
    assert methods >= {wire.PROFILE, wire.TERMINATE, wire.MONITOR, wire.GET_SNAPSHOT}


@pytest.mark.nightly
def test_messages_share_a_process_with_tensorflows(tmp_path: Path) -> None:
    """TensorFlow's messages and ours load into one process in either order, and read each other's bytes."""
    require(importlib.util.find_spec("tensorflow"), "TensorFlow beside pytest")
    (tmp_path / "home").mkdir()
    program = """
from tpumon.proto import profiler_pb2# before
from tensorflow.tsl.profiler.protobuf import profiler_options_pb2, xplane_pb2 as theirs
from tpumon.proto import xplane_pb2 as ours# and after
space = ours.XSpace(hostnames=["h"], planes=[ours.XPlane(name="p", lines=[ours.XLine(timestamp_ns=7)])])
assert theirs.XSpace.FromString(space.SerializeToString()).planes[0].lines[0].timestamp_ns == 7
options = profiler_pb2.ProfileOptions(duration_ms=5, host_tracer_level=2)
assert profiler_options_pb2.ProfileOptions.FromString(options.SerializeToString()).duration_ms == 5
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment(tmp_path)
    )
    assert done.returncode == 0, done.stderr[-4000:]

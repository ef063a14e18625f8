"""The .proto files as compiled into TensorFlow's and XProf's shared libraries, read without loading either."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto

_STRING = 2
_FIELDS = {*range(1, 13), 14}
"""Of a FileDescriptorProto: 1 is its name, 12 its syntax."""


def embedded_file(library: Path, name: str) -> FileDescriptorProto:
    """The one .proto file of this name in `library`.

    A serialized descriptor has no length before it, so its fields are followed from its name to the first byte that
    cannot begin another.
    """
    content = library.read_bytes()
    start = bytes([1 << 3 | _STRING, len(name)]) + name.encode()
    at = content.find(start)
    assert at >= 0, f"no {name} in {library.name}"
    end = at + len(start)
    while content[end] >> 3 in _FIELDS and content[end] & 7 == _STRING and content[end] >> 3 != 1:
        length, end = _varint(content, end + 1)
        end += length
    return FileDescriptorProto.FromString(content[at:end])


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (content[at] & 0x7F) << shift
        shift += 7
        at += 1
        if content[at - 1] < 0x80:
            return value, at

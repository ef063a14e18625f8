"""Messages as the protobuf runtime reads them; what it refuses is malformed."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tpumon.errors import SourceError
from tpumon.xspace.wire.fields import NOT_A_TRACE

_Message = TypeVar("_Message", bound=Message)


def parsed(kind: type[_Message], raw: bytes, broken: str = NOT_A_TRACE) -> _Message:
    """A serialized message.

    Args:
        kind: of message.
        raw: its bytes.
        broken: what to say if it does not parse.

    Raises:
        SourceError: `malformed`.
    """
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        raise SourceError("malformed", broken) from error

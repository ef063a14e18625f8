"""From the bytes of an answer to a message, at a bounded cost whatever the bytes are."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from google.protobuf.message import Message

from tpumon.errors import SourceError
from tpumon.xspace.wire import fields, parsed

_Reply = TypeVar("_Reply", bound=Message)

_SMALL_BYTES = 16 << 10  # parsed in the event loop
_MOST_FIELDS = 20_000  # of a large answer; a host with 16 devices sends a few hundred
_DEEPEST = 16
_GZIP = b"\x1f\x8b"

# Parsing must not hold up other workers. Messages are counted before the runtime makes an object of each.
_parsers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tpumon-parse")


async def parse(data: bytes, reply_type: type[_Reply], name: str) -> _Reply:
    """The message that these bytes are.

    Args:
        data: an answer as received.
        reply_type: its type.
        name: of the method, for messages.

    Raises:
        SourceError: `malformed`, the bytes are not such a message, or have more fields than any server sends;
            `refused`, they are compressed.
    """
    if data.startswith(_GZIP):  # no message of ours begins so
        raise SourceError("refused", COMPRESSED)
    broken = f"the answer to {name} is not a profiler server's ({len(data)} bytes)"
    if len(data) <= _SMALL_BYTES:
        return parsed(reply_type, data, broken)
    return await asyncio.get_running_loop().run_in_executor(_parsers, _parse, data, reply_type, broken)


COMPRESSED = "the server compresses its answers, which profiler servers do not; such answers are not opened"


def _parse(data: bytes, reply_type: type[_Reply], broken: str) -> _Reply:
    try:
        left = _count(memoryview(data), reply_type.DESCRIPTOR, _MOST_FIELDS, _DEEPEST)
    except SourceError as error:
        raise SourceError("malformed", broken) from error
    if left < 0:
        raise SourceError("malformed", f"{broken}: it has more than {_MOST_FIELDS} fields")
    return parsed(reply_type, data, broken)


def _count(raw: memoryview, of: Any, left: int, depth: int) -> int:
    """Number of `left` fields that remain after those of this message and of the messages within; negative: too few.

    Raises:
        SourceError: `malformed`.
    """
    for number, _, begin, end, _ in fields(raw):
        left -= 1
        if left < 0 or depth < 0:
            return -1
        field = of.fields_by_number.get(number)
        if field is not None and field.message_type is not None:
            left = _count(raw[begin:end], field.message_type, left, depth - 1)
    return left

"""What goes wrong with a simulated worker, drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, get_args

from tpumon.proto import MONITOR, PROFILE
from tpumon.proto.profiler_pb2 import MonitorResponse, ProfileResponse
from tpumon.simulator.grpc_servers import Abort, Code
from tpumon.simulator.profiler import BUSY

Fault = Literal[
    "dead", "silent", "garbage", "hang", "slow", "busy", "refusing", "random", "truncated", "flipped", "huge"
]
"""dead: the port is closed; silent: accepts and never speaks; garbage: speaks another protocol; hang: never answers;
slow: answers late; busy: somebody else profiles; refusing: any status with a hostile text; random, truncated, flipped,
huge: of the bytes of its answers."""

FAULTS: tuple[Fault, ...] = get_args(Fault)
WITHOUT_SERVER: tuple[Fault, ...] = ("dead", "silent", "garbage")
DAMAGING: tuple[Fault, ...] = ("random", "truncated", "flipped", "huge")

HOSTILE_TEXT = "\x1b]0;owned\x07\x1b[31m\u202e\u200b\r\n\x9b2J" + "very long " * 100
HUGE_BYTES = 9_000_000
_HEALTHY_S, _FAULTY_S = 60.0, 8.0  # on average
_LONGEST_FAULT_S = 30.0


def next_fault(dice: random.Random) -> tuple[float, Fault, float]:
    """For how long a worker stays healthy, what happens then, and for how long."""
    faulty_s = min(1.0 + dice.expovariate(1 / _FAULTY_S), _LONGEST_FAULT_S)
    return dice.expovariate(1 / _HEALTHY_S), dice.choice(FAULTS), faulty_s


async def before_answer(fault: Fault | None, dice: random.Random) -> None:
    """What a faulty server does instead of answering, or before it."""
    if fault == "hang":
        await asyncio.Event().wait()
    if fault == "slow":
        await asyncio.sleep(dice.uniform(1, 15))
    if fault == "busy":
        raise Abort(Code.INTERNAL, BUSY)
    if fault == "refusing":
        raise Abort(dice.choice([code for code in Code if code is not Code.OK]), HOSTILE_TEXT)


def damaged(answer: bytes, fault: Fault, path: str, dice: random.Random) -> bytes:
    """The answer as a faulty server sends it."""
    if fault == "random":
        return dice.randbytes(dice.randrange(2000))
    if fault == "truncated":
        return answer[: dice.randrange(len(answer) + 1)]
    if fault == "huge":
        if path == PROFILE:
            return ProfileResponse(xspace=bytes(HUGE_BYTES)).SerializeToString()
        return MonitorResponse(data="x" * HUGE_BYTES).SerializeToString() if path == MONITOR else bytes(HUGE_BYTES)
    flipped = bytearray(answer)
    for _ in range(dice.randint(1, 8) if flipped else 0):
        flipped[dice.randrange(len(flipped))] ^= 1 << dice.randrange(8)
    return bytes(flipped)


@asynccontextmanager
async def impostor(fault: Fault, host: str, port: int, dice: random.Random) -> AsyncIterator[None]:
    """What listens at the port of a worker whose server is gone; nothing if it is dead."""
    if fault == "dead":
        yield
        return
    writers: set[asyncio.StreamWriter] = set()

    async def meet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        if fault == "garbage":
            writer.write(dice.choice([b"HTTP/1.1 200 OK\r\n\r\nhello", b"SSH-2.0-x\r\n", dice.randbytes(500)]))
            writer.close()

    server = await asyncio.start_server(meet, host, port)
    try:
        yield
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()

"""tpumon with a wall clock that somebody else sets.

python skewed.py FILE ARGUMENTS: FILE holds the number of seconds by which the clock is off, as a double.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from pathlib import Path
from types import ModuleType

# What gRPC makes of a deadline would be off in Python and right in C: it keeps the true clock.
import grpc.aio  # noqa: F401

OFFSET = struct.Struct("d")


def main() -> None:
    with Path(sys.argv.pop(1)).open("rb") as file:
        shared = mmap.mmap(file.fileno(), OFFSET.size, access=mmap.ACCESS_READ)
    skewed = ModuleType("time")
    skewed.__dict__.update(time.__dict__)
    skewed.time = lambda: time.time() + OFFSET.unpack(shared)[0]  # type: ignore[attr-defined]
    skewed.time_ns = lambda: time.time_ns() + int(OFFSET.unpack(shared)[0] * 1e9)  # type: ignore[attr-defined]
    sys.modules["time"] = skewed

    from tpumon.__main__ import main as tpumon  # not before: it takes the clock along

    tpumon()


if __name__ == "__main__":
    main()

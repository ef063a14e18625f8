"""Units of time, and numbers that look random but are the same each time."""

from __future__ import annotations

import struct
from hashlib import blake2b

MS = 1_000_000  # ns
SECOND = 1_000 * MS


def to_ns(seconds: float) -> int:
    """Converts a wall clock's seconds to nanoseconds, rounded to microseconds: a float is no more precise."""
    return round(seconds * 1e6) * 1000


def hashed(seed: int, *keys: int) -> int:
    """A 64-bit number that depends on the seed and three keys only."""
    packed = struct.pack("<4q", *((key + (1 << 63)) % (1 << 64) - (1 << 63) for key in (seed, *keys)))
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), "little")


def chance(seed: int, *keys: int) -> float:
    """`hashed` as a number from 0 to 1."""
    return hashed(seed, *keys) / (1 << 64)

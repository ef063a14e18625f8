"""What counts as a finding."""

from __future__ import annotations

import contextlib
import hashlib
import math
import resource
import time
import traceback
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import fields

SLOW_S, SLOW_S_PER_MB = 1.0, 1.0  # of processor time; code that is being fuzzed runs three times slower
LARGE_BYTES = 64 << 20
_AT_MOST_ONE = {
    "idle_ratio", "duty_cycle_ratio", "infeed_ratio", "device_time_ratio",
    "runtime_duty_cycle_ratio", "runtime_hbm_bandwidth_utilization_ratio",
}  # fmt: skip
"""Shares of a time. FLOPs and bytes relative to a peak may exceed 1: the peak may be wrong."""

_ROUNDING = 2e-6


class Findings:
    """Prints each kind of finding once.

    Args:
        name: of the target.
        directory: for the inputs; made with the first.
    """

    def __init__(self, name: str, directory: Path) -> None:
        self._name = name
        self._directory = directory
        self._known: set[str] = set()

    @contextlib.contextmanager
    def of(self, data: bytes) -> Iterator[None]:
        """Whatever the block raises is a finding."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - that is the question
            frames = traceback.extract_tb(error.__traceback__)
            place = next((frame for frame in reversed(frames) if "/tpumon" in frame.filename), frames[-1])
            kind = f"{type(error).__name__} at {Path(place.filename).name}:{place.name}"
            if isinstance(error, FoundError):
                kind = error.kind
            if kind not in self._known:
                self._known.add(kind)
                self._directory.mkdir(exist_ok=True)
                file = self._directory / f"finding-{hashlib.sha1(data, usedforsecurity=False).hexdigest()[:12]}"
                file.write_bytes(data)
                print(f"FINDING {self._name}: {kind}: {str(error)[:300]!r}; {len(data)} bytes in {file}", flush=True)


class FoundError(Exception):
    """Something that is not as it should be; `kind` names it, the message shows it."""

    def __init__(self, kind: str, message: object) -> None:
        super().__init__(str(message))
        self.kind = kind


@contextlib.contextmanager
def check_cost(size: int) -> Iterator[None]:
    """Raises FoundError if the block takes more time or memory than input of that many bytes is worth."""
    before_s, before_kb = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    took_s = time.process_time() - before_s
    grew = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) << 10
    if took_s > SLOW_S + SLOW_S_PER_MB * size / 1e6:
        raise FoundError("slow", f"{took_s:.1f} s for {size} bytes")
    if grew > LARGE_BYTES + 20 * size:
        raise FoundError("large", f"{grew >> 20} MiB for {size} bytes")


def check_figures(value: object, name: str = "") -> None:
    """Raises FoundError for a number that cannot be, or a text that is not safe, anywhere in a value."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, (int, float)):
        if not math.isfinite(value) or value < 0:
            raise FoundError(f"{name} is impossible", value)
        if name in _AT_MOST_ONE and value > 1 + _ROUNDING:
            raise FoundError(f"{name} is above 1", value)
    elif isinstance(value, str):
        check_text(value, name)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_text(str(key), f"a key of {name}")
            check_figures(item, name if not isinstance(key, str) or key in {"avg", "min", "max"} else key)
        _check_spread(value.get("avg"), value.get("min"), value.get("max"), name)
    elif isinstance(value, (list, tuple)):
        for item in value:
            check_figures(item, name)
    elif isinstance(value, Struct):
        check_figures({item.name: getattr(value, item.name) for item in fields(value)}, name)


def _check_spread(avg: object, low: object, high: object, name: str) -> None:
    if not all(isinstance(one, (int, float)) for one in (avg, low, high)):
        return
    if not low * (1 - _ROUNDING) <= avg <= high * (1 + _ROUNDING):
        raise FoundError(f"the average of {name} is outside", (avg, low, high))


def check_text(text: str, name: str = "text", *, lines: bool = False) -> None:
    """Raises FoundError for control characters, and for line ends unless they are allowed."""
    for char in text:
        if unicodedata.category(char) in {"Cc", "Cf", "Cs"} and not (lines and char in "\n\t"):
            raise FoundError(f"{name} has a control character", ascii(text[:200]))

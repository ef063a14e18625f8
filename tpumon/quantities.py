"""Times, shares and sizes as people write them: `10s`, `1h30m`; `5%`, `0.05`; `500M`, `4G`.

The only grammar of these: options, their variables and keys in the configuration file, options of exporters, and
scenarios read theirs here. Where a time or a size may stand, `m` is minutes and `M` megabytes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

Kind = Literal["time", "share", "factor", "size"]

_NUMBER = r"(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})"
_ONE = re.compile(rf"({_NUMBER}) ?([A-Za-z%]*)")
_PARTS = re.compile(rf"({_NUMBER}) ?([a-z]+) ?")
_SECONDS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_BYTES = {
    f"{power}{suffix}".lower(): (1024.0 if suffix.startswith("i") else 1000.0) ** (place + 1)
    for place, power in enumerate("kMGT")
    for suffix in ("b", "i", "ib")
} | {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class Quantity(Struct, frozen=True):
    """Kind, example and bounds of a value that is a quantity.

    Attributes:
        kind: a time in seconds, a share of a whole, a factor, or a size in bytes.
        example: what errors suggest.
        least, most: bounds, both allowed, in the same grammar; empty: 0, and none.
        unit: of a time or size that is a number without one; empty: it must have one.
    """

    kind: Kind
    example: str
    least: str = ""
    most: str = ""
    unit: str = ""

    def read(self, text: str) -> float:
        """Returns seconds, a ratio, or bytes.

        Raises:
            ValueError: it is no such quantity, or out of bounds; the message says what to give instead.
        """
        value = self._value(text)
        if value is None:
            raise ValueError(f"{text}: {self._advice('a', '')}{self._percent_hint([text])}")
        return value

    def read_pair(self, text: str) -> tuple[float, float]:
        """Returns two quantities with a comma between them, the smaller first.

        Raises:
            ValueError: it is no such pair; the message says what to give instead.
        """
        parts = text.split(",")
        match [self._value(part) for part in parts]:
            case [float(smaller), float(larger)] if smaller <= larger:
                return smaller, larger
        hint = self._percent_hint(parts) if len(parts) == 2 else ""
        raise ValueError(f"{text}: {self._advice('two', 's, the smaller first')}{hint}")

    def holds(self, text: str) -> bool:
        """True if a text is such a quantity."""
        return self._value(text) is not None

    def _value(self, text: str) -> float | None:
        """The quantity; None: it is none, or out of bounds."""
        parse = _PARSERS[self.kind]
        value = parse(text.strip(), self.unit)
        least, most = (parse(bound, self.unit) if bound else None for bound in (self.least, self.most))
        if value is None or value < (least or 0.0) or (most is not None and value > most):
            return None
        is_doubtful = self.kind == "share" and value >= 1 and "%" not in text  # 1 may be meant as 1%, 5 as 5%
        return None if is_doubtful else value

    def _advice(self, how_many: str, ending: str) -> str:
        given = (f"at least {self.least}" if self.least else "", f"at most {self.most}" if self.most else "")
        bounds = " and ".join(filter(None, given))
        each = ", each " if ending else " of "
        return f"give {how_many} {self.kind}{ending}{each * bool(bounds)}{bounds}, such as {self.example}"

    def _percent_hint(self, parts: Sequence[str]) -> str:
        """Advice for numbers from 1 on that should be shares; empty: none."""
        numbers = [number for part in parts if "%" not in part and (_ratio(number := part.strip()) or 0.0) >= 1]
        if self.kind != "share" or not numbers:
            return ""
        if any(_ratio(number) == 1 for number in numbers):
            return "; for percent, write 1%; for all of it, 100%"
        return f"; for percent, write {','.join(f'{number}%' for number in numbers)}"


def _seconds(text: str, unit: str) -> float | None:
    """Seconds of `90`, `1.5h` or `1h30m`: each unit once, the largest first."""
    if re.fullmatch(_NUMBER, text):
        return float(text) * _SECONDS[unit] if unit else 0.0 if not float(text) else None
    if not re.fullmatch(rf"(?:{_PARTS.pattern}){{1,7}}", text):
        return None
    parts = [(float(number), _SECONDS.get(name, 0.0)) for number, name in _PARTS.findall(text)]
    units = [scale for _, scale in parts]
    falls = all(larger > smaller for larger, smaller in itertools.pairwise((*units, 0.0)))
    return sum(number * scale for number, scale in parts) if falls else None


def _ratio(text: str, _unit: str = "") -> float | None:
    """The ratio of `0.05` or `5%`."""
    match = _ONE.fullmatch(text)
    return None if match is None or match[2] not in {"", "%"} else float(match[1]) / (100 if match[2] else 1)


def _bytes(text: str, unit: str) -> float | None:
    """Bytes of `500M`, `4 GB` or `1GiB`; in powers of 1024 only with an i."""
    match = _ONE.fullmatch(text)
    scale = None if match is None else _BYTES.get(name.lower() if len(name := match[2] or unit) > 1 else name)
    return None if match is None or scale is None else float(match[1]) * scale


_PARSERS: Mapping[Kind, Callable[[str, str], float | None]] = MappingProxyType(
    {"time": _seconds, "share": _ratio, "factor": _ratio, "size": _bytes}
)

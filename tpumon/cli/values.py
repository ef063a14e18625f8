"""Values of options: the quantities among them, and what to give instead of a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tpumon.discovery.addresses import parse_addresses
from tpumon.errors import UsageError
from tpumon.model.figure_table import SORT_KEYS
from tpumon.quantities import Quantity

TIMEOUT = Quantity("time", "30s", least="1ms", unit="s")
FAIL_ABOVE = Quantity("share", "5%")
INTERVAL = Quantity("time", "10s", most="7d", unit="s")
MAX_DUTY = Quantity("share", "1%", least="0.01%", most="100%")
MAX_TRACE = Quantity("size", "64M", least="1M", most="1G", unit="M")
INFEED_LIMITS = Quantity("share", "5%,20%", most="100%")
HBM_LIMITS = Quantity("share", "90%,97%", most="100%")
STEP_LIMITS = Quantity("factor", "1.03,1.25", least="1")
IDLE_LIMIT = Quantity("share", "1.5%", most="100%")
_DURATION = Quantity("time", "500ms", least="1ms", most="1h", unit="ms")
_KEPT = {"keep_s": Quantity("time", "7d"), "keep_mb": Quantity("size", "1GB")}


def read_duration(text: str) -> float | None:
    """Returns the seconds of `--duration-ms`; None for auto. Raises ValueError."""
    return None if text == "auto" else _DURATION.read(text)


def read_kept(text: str) -> dict[str, str]:
    """Returns `--record-keep`, an age, a size, or both, as options of the exporter `record`. Raises ValueError."""
    kept: dict[str, str] = {}
    for part in text.split(","):
        names = [name for name, quantity in _KEPT.items() if name not in kept and quantity.holds(part)]
        if len(names) != 1:
            raise ValueError(f"{text}: give an age, a size, or both, such as 7d,1GB")
        kept[names[0]] = part.strip()
    return kept


def _read_sort(text: str) -> str:
    if text not in SORT_KEYS:
        raise ValueError(f"{text}: choose one of {', '.join(SORT_KEYS)}")
    return text


def _read_addresses(text: str) -> None:
    try:
        parse_addresses([text] if text else [])
    except UsageError as error:
        raise ValueError(str(error).removeprefix("cannot use the address ")) from None


READERS: Mapping[str, Callable[[str], object]] = MappingProxyType(
    {
        "duration-ms": read_duration,
        "fail-above": FAIL_ABOVE.read,
        "hbm-limits": HBM_LIMITS.read_pair,
        "idle-limit": IDLE_LIMIT.read,
        "infeed-limits": INFEED_LIMITS.read_pair,
        "interval": INTERVAL.read,
        "max-duty": MAX_DUTY.read,
        "max-trace-mb": MAX_TRACE.read,
        "record-keep": read_kept,
        "service-addr": _read_addresses,
        "sort": _read_sort,
        "step-limits": STEP_LIMITS.read_pair,
        "timeout": TIMEOUT.read,
        "workers-list": _read_addresses,
    }
)
"""Checks of options that are text to the parser, by their names; each raises ValueError, the value first."""


def advice(parameter: Any) -> str:
    """What to give for an option or argument, by its type for the parser."""
    described = parameter.type_descriptor
    if described.choices:
        return f"choose one of {', '.join(map(str, described.choices))}"
    if described.annotation is bool:
        return "give true or false"
    if described.annotation is not int:
        return "give text in quotes, or a number"
    least, most = getattr(parameter, "min", None), getattr(parameter, "max", None)
    bounds = (f"at least {least}" if least is not None else "", f"at most {most}" if most is not None else "")
    limits = " and ".join(filter(None, bounds))
    example = "" if most is not None else f", such as {parameter.default or 10}"
    return f"give a whole number{' of ' * bool(limits)}{limits}{example}"

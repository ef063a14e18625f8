"""Values of options: the quantities among them, and what to give instead of a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from tpumon.discovery.addresses import parse_addresses
from tpumon.errors import UsageError
from tpumon.model.figure_table import SORT_KEYS
from tpumon.quantities import Quantity
from tpumon.system.exporter_ports import parse_listen

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
OWN_OUTPUTS = frozenset({"auto", "live", "text"})
"""Values of `--output` that are no exporters."""

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


def _read_addresses(text: str) -> object:
    return parse_addresses([text] if text else [])


def _read_runtime_addresses(text: str) -> object:
    from tpumon.discovery.host.runtime_ports import parse_runtime_addresses  # here, as below: few give one

    return parse_runtime_addresses([text])


def _read_server_metrics(text: str) -> object:
    from tpumon.discovery.server_metrics import parse_server_metrics

    return parse_server_metrics([text])


def _read_export(text: str, *, of_installed: bool = True) -> object:
    from tpumon.outputs import parse_export

    return parse_export(text, of_installed=of_installed)


def _read_tpus(text: str) -> None:
    from tpumon.discovery.tpu_api import check_name

    for name in filter(None, map(str.strip, text.split(","))):
        check_name(name)


def _read_output(text: str, *, of_installed: bool = True) -> object:
    from tpumon.outputs import parse_output

    return text if text in OWN_OUTPUTS else parse_output(text, of_installed=of_installed)


def _read_topology(text: str) -> object:
    from tpumon.simulator.topology import parse_topology

    return parse_topology(text)


def _read_scenario(text: str) -> None:
    from tpumon.simulator.scenario.faults import check_together, parse_faults

    check_together(parse_faults(text))


READERS: Mapping[str, Callable[[str], object]] = MappingProxyType(
    {
        "duration-ms": read_duration,
        "export": _read_export,
        "fail-above": FAIL_ABOVE.read,
        "hbm-limits": HBM_LIMITS.read_pair,
        "idle-limit": IDLE_LIMIT.read,
        "infeed-limits": INFEED_LIMITS.read_pair,
        "interval": INTERVAL.read,
        "listen": parse_listen,
        "max-duty": MAX_DUTY.read,
        "max-trace-mb": MAX_TRACE.read,
        "output": _read_output,
        "record-keep": read_kept,
        "runtime-addr": _read_runtime_addresses,
        "scenario": _read_scenario,
        "server-metrics": _read_server_metrics,
        "service-addr": _read_addresses,
        "simulate": _read_topology,
        "sort": _read_sort,
        "step-limits": STEP_LIMITS.read_pair,
        "timeout": TIMEOUT.read,
        "tpu": _read_tpus,
        "workers-list": _read_addresses,
    }
)
"""Checks of options that are text to the parser, by their names; each raises ValueError, the value first,
or UsageError."""

FORMS: Mapping[str, Callable[[str], object]] = MappingProxyType(
    {
        **READERS,
        "export": partial(_read_export, of_installed=False),
        "output": partial(_read_output, of_installed=False),
    }
)
"""The same without a look at what is installed: for options of commands that do not run, whose exporters may lack."""


def refuse_empty(option: Any, value: object) -> None:
    """Raises UsageError if a value, or one of several, is empty: of a script, it is a variable that was not set."""
    given = value if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(one, str) and not one.strip() for one in given):
        else_ = "" if option.required else ", or leave it out"
        raise UsageError(f"{option.opts[0]}: it is empty; give {option.metavar}{else_}")


def formats_of(option: Any) -> list[str]:
    """The values of `--output` of a command that ends by itself, which its type does not list; of others none."""
    return option.metavar.split("|") if option.name == "output" and "|" in option.metavar else []


def advice(parameter: Any) -> str:
    """The value to give for an option or argument, by its type for the parser."""
    described = parameter.type_descriptor
    if choices := described.choices or formats_of(parameter):
        return f"choose one of {', '.join(map(str, choices))}"
    if described.annotation is bool:
        return "give true or false"
    if described.annotation is not int:
        return "give text in quotes, or a number"
    least, most = getattr(parameter, "min", None), getattr(parameter, "max", None)
    bounds = (f"at least {least}" if least is not None else "", f"at most {most}" if most is not None else "")
    limits = " and ".join(filter(None, bounds))
    example = "" if most is not None else f", such as {parameter.default or 10}"
    return f"give a whole number{' of ' * bool(limits)}{limits}{example}"

"""The list of scenarios, for help pages and docs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tpumon.simulator.scenario.fault_table import KINDS, PRESETS
from tpumon.simulator.scenario.faults import SCENARIOS


class Listed(NamedTuple):
    """A scenario in the list: its name, what happens, its parameters with their defaults and when it begins."""

    name: str
    about: str
    settings: tuple[str, ...]


def listed() -> Iterator[Listed]:
    """Yields every scenario, the default first."""
    for name in SCENARIOS:
        if name in PRESETS:
            yield Listed(name, PRESETS[name][0], ())
            continue
        kind = KINDS[name]
        parameters = [key if default is None else f"{key}={default:g}" for key, default in kind.takes.items()]
        settings = [", ".join(parameters)] if parameters else []
        if kind.start_s:
            settings.append(f"From second {kind.start_s:g}")
        yield Listed(name, kind.about, tuple(settings))

"""The live view's screens as plain text: fleets of 1, 8 and 256 workers, help, a worker's page."""

from __future__ import annotations

from functools import cache
from itertools import groupby

import pytest

from support.sample_kinds import KINDS, NOW, cpus, fleet, servers, with_top_ops, workers_of
from support.shown import empty_display, screen
from tpumon.analysis.findings import Thresholds
from tpumon.collection.sources import titles
from tpumon.model import Workers

SIZES = ((80, 24), (120, 40))
WAITING = Workers(waiting="no profiler server on this host; add to the job: server = jax.profiler.start_server(9999)")

SCREENS = {
    "waiting": (WAITING, [], ()),
    "1-worker": (None, fleet(1), ()),
    "8-workers": (None, fleet(8), ()),
    "256-workers": (None, fleet(256), ()),
    "states": (None, list(KINDS.values()), ()),
    "simulated": (None, [KINDS["simulated"]], ()),
    "help": (None, fleet(8), ("?",)),
    "worker-down": (None, fleet(8), ("enter",)),
    "worker-slow": (None, fleet(8), ("down", "down", "enter")),
    "why": (None, fleet(8), ("w",)),
    "worker-host": (None, [KINDS["host"], KINDS["down"]], ("down", "enter")),
    "worker-ops": (None, [with_top_ops(KINDS["trace"]), KINDS["down"]], ("down", "down", "enter")),
    "alone-ops": (None, [with_top_ops(one) for one in fleet(1)], ()),
    "ops": (None, [with_top_ops(one) for one in fleet(1)], ("o",)),
    "ops-by-category": (None, [with_top_ops(KINDS["trace"])], ("enter", "o", "s")),
    "ops-none": (None, [KINDS["monitor"]], ("o",)),
    "cpu": (None, cpus(1), ()),
    "cpus": (None, cpus(6), ()),
    "worker-cpu": (None, cpus(2), ("down", "enter")),
    "servers": (None, servers(6), ()),
    "servers-256": (None, servers(256), ()),
    "servers-and-training": (None, [*servers(4), *fleet(8)], ()),
    "worker-server": (None, [KINDS["server"], KINDS["down"]], ("down", "down", "enter")),
    "worker-server-alone": (None, [KINDS["server-alone"], KINDS["down"]], ("down", "down", "enter")),
    "worker-functions": (None, [KINDS["fallbacks"], KINDS["down"]], ("down", "down", "enter")),
}
"""By name: the workers, unless they are those of the samples; samples in their order; keys pressed at the end."""


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("name", SCREENS)
def test_screens(golden, name, size):
    """What is on the terminal above the keys, without colours."""
    golden.check(f"screens/{name}-{size[0]}x{size[1]}.txt", "\n".join(_shown(name, size)[:-1]))


def test_keys_of_every_screen(golden):
    """The last line of each; in one file, so that a new key changes one."""
    golden.check(
        "screens/keys.txt",
        "\n".join(f"{name} {size[0]}x{size[1]}\n{_shown(name, size)[-1]}" for name in SCREENS for size in SIZES),
    )


def _shown(name, size):
    lines = [line.rstrip() for line in screen(_display(name), *size, NOW).splitlines()]
    assert lines[-1].startswith(" q quit")
    return lines


@cache
def _display(name):
    workers, samples, keys = SCREENS[name]
    display = empty_display(sources=titles(), thresholds=Thresholds(sustained=1))
    display.add(workers_of(*_last_of_each(samples)) if workers is None else workers)
    for _, round_ in groupby(samples, key=lambda sample: sample.time_unix_s):
        for sample in round_:
            display.add(sample)
        display.refresh(sample.time_unix_s + 3.0)
    display.refresh(NOW)
    display.render(*SIZES[0], NOW)
    for key in keys:
        display.press(key)
    return display


def _last_of_each(samples):
    return {sample.worker: sample for sample in samples}.values()

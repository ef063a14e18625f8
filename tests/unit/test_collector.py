"""Modules are loaded without looking for cycles, and what they made is not looked at later."""

from __future__ import annotations

import contextlib
import gc

import pytest

from tpumon.system.collector import loading


@pytest.fixture(autouse=True)
def as_before():
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.parametrize("enabled", [True, False])
def test_it_rests_while_modules_are_loaded_and_is_then_as_before(enabled):
    if not enabled:
        gc.disable()
    before = gc.get_freeze_count()
    made = [[]]
    with contextlib.suppress(ImportError), loading():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled() is enabled
    assert gc.get_freeze_count() > before
    assert not any(each is made for each in gc.get_objects())


def test_loading_within_loading_keeps_resting():
    with loading():
        with loading():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_cycles_made_later_are_still_found():
    with loading():
        pass
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() >= 1

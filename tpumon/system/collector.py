"""Python's collector of cycles, kept from looking where nothing is to be found."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def resting() -> Iterator[None]:
    """Without looking for cycles, for what makes many objects and no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def loading() -> Iterator[None]:
    """For loading modules: what they consist of stays to the end, and is looked at neither now nor later.

    Looking takes a tenth of a start, and again as much at Python's own end.
    """
    with resting():
        try:
            yield
        finally:
            gc.freeze()

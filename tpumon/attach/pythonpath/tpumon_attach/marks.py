"""Marks the steps of a program, so that figures of steps are exact."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tpumon_attach.harmless import harmless

_Item = TypeVar("_Item")
_NAME = "step"
_of_thread = threading.local()


@harmless("this step is not marked")
def step(number: int) -> None:
    """Says that a step begins here, and that the one before it ends. Without JAX or TensorFlow it does nothing.

    Args:
        number: of the step.
    """
    _end()
    mark = _mark(number)
    if mark is not None:
        mark.__enter__()
        _of_thread.mark = mark


def steps(items: Iterable[_Item], first: int = 0) -> Iterator[_Item]:
    """Yields the items; the body of the loop over them is a step.

    Args:
        items: for example the batches.
        first: number of the first step.
    """
    try:
        for number, item in enumerate(items, first):
            step(number)
            yield item
    finally:
        _end()


@harmless("the end of a step is not marked")
def _end() -> None:
    mark = getattr(_of_thread, "mark", None)
    if mark is not None:
        _of_thread.mark = None
        mark.__exit__(None, None, None)


def _mark(number: int) -> Any:
    """The framework's mark of a step; None while the program has imported neither."""
    jax = sys.modules.get("jax.profiler")
    if jax is not None:
        return jax.StepTraceAnnotation(_NAME, step_num=number)
    tensorflow = sys.modules.get("tensorflow.python.profiler.trace")
    return None if tensorflow is None else tensorflow.Trace(_NAME, step_num=number, _r=1)

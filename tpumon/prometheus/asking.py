"""Queries that are sent before their answers are needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

_Result = TypeVar("_Result")


class Start(Protocol):
    """Begins something at once; awaiting what it returns gives the result."""

    def __call__(self, coroutine: Coroutine[Any, Any, _Result], /) -> asyncio.Task[_Result]: ...


@asynccontextmanager
async def asking() -> AsyncIterator[Start]:
    """Yields what begins queries; those that nobody waited for are dropped at the end."""
    begun: list[asyncio.Task[Any]] = []

    def start(coroutine: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        task = asyncio.create_task(coroutine)
        begun.append(task)
        return task

    try:
        yield start
    finally:
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)

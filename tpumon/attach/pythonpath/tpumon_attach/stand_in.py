"""A module in which some names mean something else."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Has the names given, and all others of the original.

    Args:
        original: a module, or another stand-in.
        names: what to have instead.
    """

    _original: Any = None  # for a copy that is being made

    def __init__(self, original: Any, **names: Any) -> None:
        self.__dict__.update(names, _original=original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

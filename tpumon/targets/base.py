"""What finds workers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from tpumon.model import Target, Workers


class Discovery(Protocol):
    """One way to learn where the workers are."""

    def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields at once what there is, then each time it has changed; ends where it cannot change.

        Closed by the caller (`aclose`). Trouble after the first result is no exception: what was found stays.

        Args:
            all_gone: whether none of the workers found last answers now, which is a reason to look again.

        Raises:
            TpumonError: before the first result: asking again would not help.
        """


class Fixed:
    """Workers that somebody named.

    Args:
        targets: the workers.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        self._found = Workers(targets=tuple(targets))

    async def watch(self, _all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields them, once."""
        yield self._found

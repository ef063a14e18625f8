"""The interface of all discoveries."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from tpumon.model import Target, Workers


class Discovery(Protocol):
    """One way to find out where the workers are.

    A new one is a file here and a line in `tpumon.discovery.selection`.
    """

    def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields the workers at once, then each time they have changed; ends if they cannot change.

        The caller closes it (`aclose`). Trouble after the first result raises nothing: the known workers stay.

        Args:
            all_gone: whether none of the workers yielded last answers now, which is a reason to look again.

        Raises:
            TpumonError: before the first result: asking again would not help.
        """


class Fixed:
    """Workers that are known and do not change.

    Args:
        targets: the workers.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        self._workers = Workers(targets=tuple(targets))

    async def watch(self, _all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields them, once."""
        yield self._workers

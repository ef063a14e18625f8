"""Limits the number of different warnings about a worker: a server can make up as many as it likes."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence

from tpumon.model import FigureWarning
from tpumon.system.console import Allowance

_MOST_A_SAMPLE = 20
_MOST_KNOWN = 64
_EVERY_S = 60.0
_NUMBER = re.compile(r"\d+")


class WarningLimit:
    """Limits the warnings of a worker: known kinds pass, and one new kind a minute, up to twenty at once.

    Warnings that differ in numbers only are of one kind.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._new = Allowance(_MOST_A_SAMPLE, 1 / _EVERY_S, 0.0)

    def pass_on(self, warnings: Sequence[FigureWarning], now_s: float) -> tuple[FigureWarning, ...]:
        """The warnings to show; if some are left out, the last one says so.

        Args:
            warnings: of one sample.
            now_s: the present time, by a monotonic clock.
        """
        if not warnings:
            return ()
        shown = [warning for warning in warnings if self._is_allowed(warning, now_s)][:_MOST_A_SAMPLE]
        if left_out := len(warnings) - len(shown):
            shown.append(FigureWarning("capped", f"{left_out} more warnings are left out"))
        return tuple(shown)

    def _is_allowed(self, warning: FigureWarning, now_s: float) -> bool:
        kind = (warning.code, _NUMBER.sub("", warning.message))
        if kind not in self._known:
            if self._new.use(now_s) is None:
                return False
            self._known[kind] = None
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        self._known.move_to_end(kind)
        return True

"""Makes traces that overflow smaller: a step at a time, each tried once per connection and then remembered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from tpumon.model import FigureWarning

if TYPE_CHECKING:
    from tpumon.collection.sources.rpc import Client

_SPARSE_CORES = {"tpu_num_sparse_cores_to_trace": 1, "tpu_num_sparse_core_tiles_to_trace": 1}
_ONE_CHIP = {"tpu_num_chips_to_profile_per_task": 1}


class _Stage(Struct, frozen=True):
    """A way to make traces lighter.

    Attributes:
        shorter: halve the window.
        options: `ProfileOptions.advanced_configuration`; a server that does not know one refuses it.
        words: what such a trace leaves out.
    """

    shorter: bool = False
    options: Mapping[str, int] | None = None
    words: str = ""


_STAGES = (
    _Stage(),
    _Stage(shorter=True),
    _Stage(options=_SPARSE_CORES, words="one tile of one SparseCore per chip is traced"),
    _Stage(options=_SPARSE_CORES | _ONE_CHIP, words="one chip of the host is traced"),
)


class TraceReducer:
    """The step in force on the present connection.

    Options are sent only after a trace was truncated or too large. A server that refuses them, or answers with
    nothing, gets none on this connection any more.

    Args:
        client: the channel to the server.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._connection = client.connection
        self._step = 0
        self._last_allowed = len(_STAGES) - 1

    @property
    def options(self) -> Mapping[str, int]:
        """Options to send with the next trace."""
        self._forget_old_connection()
        return _STAGES[self._step].options or {}

    @property
    def warning(self) -> FigureWarning | None:
        """A warning for readers of the figures; None if nothing is left out."""
        words = _STAGES[self._step].words
        return FigureWarning("lighter", f"{words}, because whole traces overflow") if words else None

    def note_overflow(self, *, window_is_given: bool, knows_options: bool) -> bool:
        """Notes that a trace was truncated or too large, and moves on to the next step, if there is one left.

        Args:
            window_is_given: the user chose the window, so that it is not made shorter.
            knows_options: the server is of a generation that knows them.

        Returns:
            Whether to make the window shorter.
        """
        self._forget_old_connection()
        if self._step < self._last_allowed:
            following = self._step + 1 + (_STAGES[self._step + 1].shorter and window_is_given)
            if _STAGES[following].options is None or knows_options:
                self._step = following
                return _STAGES[following].shorter
        elif self._step == len(_STAGES) - 1:
            # One chip did not help either: better all chips, in what part of the window there is.
            self._step = self._last_allowed = len(_STAGES) - 2
        return False

    def give_up(self) -> None:
        """Notes that the server refused the options, or sent nothing with them."""
        self._step = self._last_allowed = 1

    def _forget_old_connection(self) -> None:
        """Another server may have the port."""
        if self._client.connection != self._connection:
            self._connection, self._step, self._last_allowed = self._client.connection, 0, len(_STAGES) - 1

"""The samples of a view, for other commands of its user: two samplers of one job would halve what each may take."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ClassVar

from tpumon.analysis import Update
from tpumon.errors import TpumonError
from tpumon.outputs.output import Context, Output, open_output
from tpumon.system.exporter_ports import LOOPBACK, announce

_log = logging.getLogger(__name__)


class SharedSamples(Output):
    """Serves the samples on loopback, at any free port, to this user and root, from the first sample on.

    Loading the server takes 0.1 s of CPU, so the first picture does not wait for it.

    Args:
        context: the run.
        is_sampling: returns whether this process takes the samples.
    """

    remembers: ClassVar[bool] = True

    def __init__(self, context: Context, is_sampling: Callable[[], bool]) -> None:
        self._context = context
        self._is_sampling = is_sampling
        self._has_tried = False
        self._server: Output | None = None
        self._withdraw: Callable[[], None] = lambda: None

    def on_update(self, update: Update) -> None:
        """Hands on an update."""
        if not self._has_tried and update.sample is not None and self._is_sampling():
            self._has_tried = True
            self._open()
        if self._server is not None:
            self._server.on_update(update)

    def close(self) -> None:
        """Stops serving."""
        self._withdraw()
        if self._server is not None:
            self._server.close()

    def _open(self) -> None:
        try:
            self._server = open_output("prometheus", f"{LOOPBACK}:0", self._context, {"readers": "own"})
        except TpumonError as error:  # others then sample for themselves
            _log.debug("other commands cannot read these samples: %s", error)
            return
        if self._server.open_port is not None:
            self._withdraw = announce(self._server.open_port, readers="own")

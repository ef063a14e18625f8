"""Samples that a judgement needs, kept coming for a server that answers questions."""

from __future__ import annotations

import threading
import time
from contextlib import closing

from tpumon.analysis import FleetStatus
from tpumon.cli.enough_samples import LOOK_S, Needs, statuses_of
from tpumon.errors import TpumonError
from tpumon.pipeline import FeedSettings

_PATIENCE_S = 30.0  # clients give up on an answer after about a minute
_IDLE_S = 600.0
_STOP_S = 5.0


class Watch:
    """Samples from the first question on, in one thread, until ten minutes have passed without a question.

    Questions may come from any thread.

    Args:
        settings: where samples come from.
        needs: samples that an answer needs.
        patience_s: how long a question waits for those.
        idle_s: after how long without a question sampling stops.
    """

    def __init__(
        self, settings: FeedSettings, needs: Needs, *, patience_s: float = _PATIENCE_S, idle_s: float = _IDLE_S
    ) -> None:
        self._settings = settings
        self._needs = needs
        self._patience_s = patience_s
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._status = FleetStatus(time_unix_s=0.0)
        self._is_over = False
        self._error: Exception | None = None
        self._asking = 0  # questions that wait
        self._asked_s = 0.0
        self._is_closing = False

    def ask(self) -> FleetStatus:
        """Status of all workers, once there are enough samples or after 30 s.

        Raises:
            NoTargetError: there is no worker.
            TpumonError: samples cannot be taken.
        """
        deadline_s = time.monotonic() + self._patience_s
        with self._changed:
            if self._thread is None:
                self._start()
            self._asking += 1
            try:
                while self._error is None and not self._is_over and time.monotonic() < deadline_s:
                    if self._thread is None:  # it was about to end when the question came
                        self._start()
                    self._changed.wait(LOOK_S)
                if self._error is not None:
                    raise self._error
                return self._status
            finally:
                self._asking -= 1
                self._asked_s = time.monotonic()

    def close(self) -> None:
        self._is_closing = True
        thread = self._thread
        if thread is not None:
            thread.join(_STOP_S)

    def _start(self) -> None:
        self._status, self._is_over = FleetStatus(time_unix_s=time.time()), False
        self._error = None
        self._thread = threading.Thread(target=self._run, name="tpumon-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._keep_up_to_date()
        except Exception as error:  # noqa: BLE001 - it is raised where somebody asks
            self._error = error if isinstance(error, TpumonError) else TpumonError(f"sampling failed: {error}")
        with self._changed:
            self._thread = None
            self._changed.notify_all()

    def _keep_up_to_date(self) -> None:
        with closing(statuses_of(self._settings, self._needs)) as statuses:
            for status, is_enough in statuses:
                with self._changed:
                    self._status, self._is_over = status, is_enough
                    self._changed.notify_all()
                is_idle = not self._asking and time.monotonic() - self._asked_s > self._idle_s
                if self._is_closing or is_idle:
                    return

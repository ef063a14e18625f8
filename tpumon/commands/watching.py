"""A fleet that is sampled while somebody asks about it: for servers that answer many questions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tpumon.commands.collecting import LOOK_S, Waiting
from tpumon.errors import TpumonError
from tpumon.feed import Feed, FeedSettings
from tpumon.fleet import Fleet
from tpumon.system.console import say
from tpumon.view.notices import Notice

_Value = TypeVar("_Value")

_PATIENCE_S = 30.0  # clients give up on an answer after about a minute
_IDLE_S = 600.0
_ASSESS_S = 1.0
_STOP_S = 5.0


class Watch:
    """Samples from the first question on, in one thread, until nobody has asked for ten minutes.

    Questions may come from any thread.

    Args:
        settings: where samples come from.
        samples: how many of each worker an answer needs.
        patience_s: how long a question waits for those.
        idle_s: after how long without a question sampling stops.
    """

    def __init__(
        self, settings: FeedSettings, samples: int, *, patience_s: float = _PATIENCE_S, idle_s: float = _IDLE_S
    ) -> None:
        self._settings = settings
        self._samples = samples
        self._patience_s = patience_s
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._fleet = Fleet(settings.output_options.thresholds)
        self._waiting = Waiting(settings, self._fleet, samples)
        self._error: Exception | None = None
        self._asking = 0  # questions that wait
        self._asked_s = 0.0
        self._is_closing = False

    def ask(self, question: Callable[[Fleet, float], _Value]) -> _Value:
        """Answers a question once there are enough samples, or from those that came within 30 s.

        Args:
            question: a function of the fleet and the time; nothing else uses the fleet meanwhile.

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
                while self._error is None and not self._waiting.is_over() and time.monotonic() < deadline_s:
                    if self._thread is None:  # it was about to end when the question came
                        self._start()
                    self._changed.wait(LOOK_S)
                if self._error is not None:
                    raise self._error
                return question(self._fleet, time.time())
            finally:
                self._asking -= 1
                self._asked_s = time.monotonic()

    def close(self) -> None:
        """Stops sampling."""
        self._is_closing = True
        thread = self._thread
        if thread is not None:
            thread.join(_STOP_S)

    def _start(self) -> None:
        self._fleet = Fleet(self._settings.output_options.thresholds, remember=not self._settings.takes_samples)
        self._waiting = Waiting(self._settings, self._fleet, self._samples)
        self._error = None
        self._thread = threading.Thread(target=self._run, name="tpumon-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._take()
        except Exception as error:  # noqa: BLE001 - it is raised where somebody asks
            self._error = error if isinstance(error, TpumonError) else TpumonError(f"sampling failed: {error}")
        with self._changed:
            self._thread = None
            self._changed.notify_all()

    def _take(self) -> None:
        assessed_s = time.monotonic()
        with Feed(self._settings, consumer="this machine") as feed:
            for event in feed.events(timeout_s=LOOK_S):
                with self._changed:
                    if isinstance(event, Notice):
                        say(event.text)
                    elif event is not None:
                        self._fleet.take(event)
                        self._waiting.note(event)
                    if time.monotonic() - assessed_s > _ASSESS_S:
                        assessed_s = time.monotonic()
                        self._fleet.assess(time.time())
                    self._changed.notify_all()
                is_idle = not self._asking and time.monotonic() - self._asked_s > self._idle_s
                if self._is_closing or is_idle:
                    return

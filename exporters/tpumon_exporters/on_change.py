"""Runs a command for each change of a worker, with the change as one JSON object on its stdin."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from tpumon.analysis.history import WELL
from tpumon.errors import UsageError
from tpumon.model import Finding
from tpumon.model.documents import encoded
from tpumon.model.state import Event
from tpumon.outputs import Context, Output, not_to_stdout
from tpumon.system.console import Allowance

if TYPE_CHECKING:
    from tpumon.analysis import Update
    from tpumon.model import Change

_log = logging.getLogger(__name__)

_MOST_NAMED = 20
_LIMIT_S = 10.0
_AT_ONCE = 10.0
_PER_S = 0.1


class ChangeNotice(Event, frozen=True, kw_only=True):
    """The input of the command: the change, the findings of its worker, and the number of changes left out."""

    findings: tuple[Finding, ...]
    left_out: int


class OnChange(Output):
    """Runs a shell command when a worker's state or severity changes, its job restarts, or a capture begins or ends.

    One runs at a time, for 10 s at most. After ten at once, there is one in 10 s; changes beyond that are counted in
    `left_out` of the next object. What the command writes is not shown. That it fails is said once, until it works.

    Args:
        command: for `/bin/sh -c`.
        context: the run.
        pace: returns seconds of a monotonic clock.
        limit_s: how long the command may take.

    Attributes:
        tick_s: seconds between looks for changes to run the command for.
    """

    tick_s = 1.0

    def __init__(
        self,
        command: str,
        context: Context,
        pace: Callable[[], float] = time.monotonic,
        limit_s: float = _LIMIT_S,
    ) -> None:
        self._command = command
        self._context = context
        self._changes: list[Change] = []
        self._pace = pace
        self._limit_s = limit_s
        self._allowance = Allowance(_AT_ONCE, _PER_S, pace())
        self._failing = False

    def on_update(self, update: Update) -> None:
        """Notes what changed. What an exporter remembers happened before, and runs nothing."""
        if not update.is_past:
            self._changes += update.changes

    def tick(self, _now_unix_s: float) -> None:
        """Runs the command for what changed since the last look. The first state of a worker is no change."""
        changes, self._changes = self._changes, []
        for change in changes:
            if change.before in {None, "waiting"} and change.status in WELL:
                continue
            left_out = self._allowance.use(self._pace())
            if left_out is not None:
                self._run(change, left_out)

    def close(self) -> None:
        """Runs the command for what the last samples changed."""
        self.tick(0.0)

    def _run(self, change: Change, left_out: int) -> None:
        status = self._context.analysis.status(self._context.clock())
        worker = status.workers.get(change.worker)
        present = {cause.finding for cause in (() if worker is None else worker.verdict.causes)}
        findings = tuple(
            one.naming(_MOST_NAMED)
            for one in status.findings
            if change.worker in one.workers or (one.more_workers and one.finding in present)
        )
        notice = ChangeNotice(**asdict(change), findings=findings, left_out=left_out)
        trouble = _run(self._command, f"{encoded(notice)}\n".encode(), self._limit_s)
        if trouble is not None and not self._failing:
            _log.warning("--on-change: %s", trouble)
        self._failing = trouble is not None


def _run(command: str, stdin: bytes, limit_s: float) -> str | None:
    """Runs a command in a process group of its own; returns what went wrong."""
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return f"the command cannot be started: {error.strerror}"
    with process:
        try:
            process.communicate(stdin, timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"the command was stopped after {limit_s:g} s"
    if process.returncode == 0:
        return None
    how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit status {process.returncode}"
    return f"the command failed with {how}; run it by hand to see why"


@not_to_stdout
def open_on_change(where: str, context: Context) -> OnChange:
    """Opens the output; `where`: a shell command."""
    if not where.strip():
        raise UsageError("--on-change is empty; give a command")
    return OnChange(where, context)

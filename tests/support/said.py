"""Notices as the lines that they cause, by a clock that is set."""

from __future__ import annotations

import logging

from tpumon.outputs import run_notices as notices
from tpumon.system.console import RepetitionFilter


class Lines(logging.Handler):
    """Notices behind a handler that limits repetition as that of stderr does; `update` returns the lines."""

    def __init__(self, clock_s=lambda: 0.0):
        super().__init__()
        self.limit = RepetitionFilter(clock_s)
        self.addFilter(self.limit)
        self.notices = notices.Notices()
        self._lines = []

    def emit(self, record):
        self._lines.append(record.getMessage() + record.left_out)

    def update(self, event):
        log = logging.getLogger(notices.__name__)
        log.propagate = False  # pytest keeps all messages of a test
        log.addHandler(self)
        try:
            self.notices.update(event)
        finally:
            log.removeHandler(self)
            log.propagate = True
        lines, self._lines = self._lines, []
        return lines or list(filter(None, [self.limit.left_out_line()]))

"""`tpumon serve`: samples for Prometheus, without a view, until it is stopped."""

from __future__ import annotations

from tpumon.commands import monitor
from tpumon.commands.monitor import MonitorSettings
from tpumon.system.signals import StoppedError


def run(settings: MonitorSettings) -> int:
    """Serves until SIGINT, SIGTERM or SIGHUP.

    Returns:
        0: being stopped is how a service ends.

    Raises:
        UsageError: it cannot listen there.
    """
    try:
        return monitor.run(settings)
    except StoppedError:
        return 0

"""`tpumon serve`: samples for Prometheus, without a view, until it is stopped."""

from __future__ import annotations

import logging

from tpumon.pipeline import Feed, FeedSettings
from tpumon.system.signals import StoppedError

_log = logging.getLogger(__name__)


def run(settings: FeedSettings) -> int:
    """Serves until SIGINT, SIGTERM or SIGHUP.

    Returns:
        0: a service ends by being stopped.

    Raises:
        UsageError: it cannot listen at the address.
        NoTargetError: with `num_queries`, no worker ever answered.
    """
    try:
        with Feed(settings, consumer=None) as feed:
            if settings.state_dir is None:
                _log.info("a restart of tpumon forgets since when workers are as they are; to keep it: --state DIR")
            for _ in feed.updates():
                pass
    except StoppedError:
        pass
    return 0

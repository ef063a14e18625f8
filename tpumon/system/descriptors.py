"""The limit on open files, and those kept back."""

from __future__ import annotations

import os
import resource
from contextlib import suppress

_MOST_KEPT_BACK = 48


def raise_descriptor_limit() -> None:
    """Allows this process as many open files as it may have.

    1,000 workers take 2,000 connections; the usual limit is 1,024, which a process may raise itself.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def may_connect(pending: int) -> bool:
    """Tells if another connection to a worker leaves enough descriptors for scrapes, files and processes.

    Args:
        pending: connections that are being made and may not have their descriptor yet.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return True
    kept_back = min(_MOST_KEPT_BACK, limit // 3)
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd")) + pending < limit - kept_back  # noqa: PTH208 - only their number is asked for
    return True

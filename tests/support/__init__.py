"""What several tests share. `tests/` is on the path of the test run, so this is `support` there."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

REPOSITORY = Path(__file__).resolve().parents[2]
REAL_TRACE = REPOSITORY.parent / "shared" / "data" / "tpu_v6e_4chip_host_offload.xplane.pb"
"""Trace of a real TPU, which may not be there."""

T = TypeVar("T")


def require(there: object, what: str) -> None:
    """Skips the test, saying why, where a component is not there; fails it where CI=true, which has them all."""
    if there:
        return
    import pytest  # programs that are no tests use this package, too

    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}: not there, but CI must have it")
    pytest.skip(f"{what}: not there (`make test` puts it in place)")


def wait_until(condition: Callable[[], T], timeout_s: float, what: str | Callable[[], str]) -> T:
    """Polls `condition` until it is true and returns what it gave; fails the test after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline_s:
            import pytest

            pytest.fail(f"after {timeout_s:g} s still not so: {what if isinstance(what, str) else what()}")
        time.sleep(0.02)
    return value


def free_port() -> int:
    """A port that nothing on this machine listened to just now, on IPv4 or IPv6."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        return int(listener.getsockname()[1])

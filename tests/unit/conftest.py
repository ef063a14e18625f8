"""A unit test starts no process and opens no connection: one that needs either belongs to tests/component."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

_OUTSIDE = {"subprocess.Popen", "os.fork", "os.posix_spawn", "socket.bind", "socket.connect"}
_running: list[str] = []


def _refuse(event: str, _arguments: tuple[object, ...]) -> None:
    if event in _OUTSIDE and _running:
        raise AssertionError(f"{event} in a unit test, {_running[-1]}: move it to tests/component")


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def inside(request: pytest.FixtureRequest) -> Iterator[None]:
    """Refuses what leaves this process."""
    _running.append(request.node.nodeid)
    yield
    _running.pop()

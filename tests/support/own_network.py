"""A network that this test session has to itself, where the kernel allows one.

In it nothing listens but what tests start: no job of somebody else at a port that a test wants or that tpumon searches,
and no other tpumon that profiles the jobs of tests.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import threading
from pathlib import Path

_CLONE_NEWUSER = 0x1000_0000
_CLONE_NEWNET = 0x4000_0000
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 1


def enter() -> str | None:
    """Moves this process into a network namespace with nothing but a loopback interface.

    Root needs no more; for others a user namespace is made in which they keep their number.

    Returns:
        Why that cannot be done, in which case nothing has changed; None if it was done.
    """
    if threading.active_count() > 1:
        return "there are threads already, which would stay behind"
    try:
        # A system may allow the namespace and then refuse what must follow, so a child tries all of it first.
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _unshare()
                with socket.create_server(("127.0.0.1", 0)) as server:
                    socket.create_connection(server.getsockname(), timeout=5).close()
                status = 0
            finally:
                os._exit(status)
        if os.waitpid(child, 0)[1] != 0:
            return "the kernel does not allow it"
        _unshare()
    except OSError as error:
        return str(error)
    return None


def _unshare() -> None:
    """As enter; may fail half way."""
    user, group = os.geteuid(), os.getegid()
    try:
        _call_unshare(_CLONE_NEWNET)
    except PermissionError:
        _call_unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        flags = _flags_of(any_socket, b"lo", _SIOCGIFFLAGS, 0)
        _flags_of(any_socket, b"lo", _SIOCSIFFLAGS, flags | _IFF_UP)


def _call_unshare(flags: int) -> None:
    # os.unshare is new in Python 3.12.
    if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")


def _flags_of(any_socket: socket.socket, interface: bytes, request: int, flags: int) -> int:
    answer = fcntl.ioctl(any_socket, request, struct.pack("16sh22x", interface, flags))
    return int(struct.unpack("16sh22x", answer)[1])

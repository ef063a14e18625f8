"""Documents that several threads read."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
from msgspec import Struct
from tpumon.model.documents import decoded

read_values = []

def read():
    read_values.append(decoded(Outer, b'{"inner": {"values": [1]}}').inner.values)

other = threading.Thread(target=read)

def number():
    if other.ident is None:
        other.start()
        other.join(timeout=0.3)
    return int

class Inner(Struct):
    values: "tuple[number(), ...]"

class Outer(Struct):
    inner: Inner

read()
other.join()
print(read_values)
"""


def test_a_second_thread_may_read_the_first_document_of_its_kind_at_the_same_time():
    """It begins while the first one is at the type's fields; that is a crash of the process if it may go on."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[(1,), (1,)]\n"), done.stderr

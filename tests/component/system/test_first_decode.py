"""Files of other tpumons, read by several threads at once before any thread has read one: msgspec 0.22 crashed."""

from __future__ import annotations

import subprocess
import sys

import pytest

RACE = """
import sys, threading
from msgspec import json
from tpumon.system import first_port, ledger

text = json.encode({document}).decode()
together = threading.Barrier(8)

def read():
    together.wait()
    {read}

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=read) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""
FILES = {
    "ledger": ('ledger._Document(ledger.boot(), {"k": ledger._nothing()}, {}, 1)', 'ledger._entries(text, "f", 0)'),
    "first port": ('first_port._Note(boot="b", network=1, port=1, since_s=1.0, seen_s=2.0)', "first_port._note(text)"),
}


@pytest.mark.parametrize("name", FILES)
def test_threads_that_read_a_file_for_the_first_time_at_once_do_not_crash(name: str) -> None:
    """Before it was mended, 22 of 25 such processes died of the ledger, and 2 of the first port."""
    document, read = FILES[name]
    script = RACE.replace("{document}", document).replace("{read}", read)
    for _ in range(4):
        assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0

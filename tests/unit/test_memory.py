"""Memory is reused by all threads."""

import subprocess
import sys

_PROGRAM = """
import resource, sys, threading
from pathlib import Path
from tpumon.system.memory import reuse_memory

def taken():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1000, resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def work(turn, done):
    for _ in range(3):
        turn.acquire()
        bytearray(b"x") * int(sys.argv[1])
        done.release()
    turn.acquire()

reuse_memory()
done, turns = threading.Semaphore(0), [threading.Semaphore(0) for _ in range(8)]
for turn in turns:
    threading.Thread(target=work, args=(turn, done), daemon=True).start()
before = taken()
for _ in range(3):
    for turn in turns:
        turn.release()
        done.acquire()
print(*(now - then for now, then in zip(taken(), before)))
"""


def taken(block_bytes):
    """How many MB 24 blocks leave that eight threads made and freed in turns, and how many page faults they took."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(block_bytes)], capture_output=True, text=True, check=True
    )
    return map(float, done.stdout.split())


def test_threads_reuse_the_memory_of_usual_traces():
    """glibc by itself keeps 20 MB and takes 5,700 faults."""
    kept_mb, faults = taken(2_600_000)
    assert kept_mb < 6
    assert faults < 1500


def test_large_blocks_go_back_when_they_are_freed():
    kept_mb, _ = taken(12_000_000)
    assert kept_mb < 6

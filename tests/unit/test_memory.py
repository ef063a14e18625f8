"""Memory is reused by all threads, and goes back when the busiest moment is over."""

import subprocess
import sys
import threading

from support import wait_until
from tpumon.system import memory

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


_BURST = """
import time
from pathlib import Path
from tpumon.system import memory

def size_mb():
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]) / 1000

memory.reuse_memory()
before_mb = size_mb()
large, small = [], []
for _ in range(24):
    large.append(bytearray(b"x") * 5_000_000)
    small.append(bytearray(1000))  # stays above it
large.clear()
memory._GIVE_BACK_S = 0.01
memory.give_back_memory_soon()
until_s = time.monotonic() + 30
while size_mb() > before_mb + 20 and time.monotonic() < until_s:
    time.sleep(0.01)
print(size_mb() - before_mb)
"""


def test_the_memory_of_a_burst_goes_back():
    """Although small blocks lie between: without it, 120 MB stay."""
    done = subprocess.run([sys.executable, "-c", _BURST], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 20


def test_memory_goes_back_once_for_all_and_once_more_for_those_that_came_late(monkeypatch):
    """Whoever asks shortly before it happens may still use what is to go back."""
    given_back, started, go_on = [], threading.Semaphore(0), threading.Semaphore(0)

    def give_back():
        given_back.append(threading.current_thread())
        started.release()
        go_on.acquire()

    monkeypatch.setattr(memory, "give_back_memory", give_back)
    monkeypatch.setattr(memory, "_GIVE_BACK_S", 0.0)
    memory.give_back_memory_soon()
    assert started.acquire(timeout=10)
    for _ in range(3):
        memory.give_back_memory_soon()
    go_on.release()
    assert started.acquire(timeout=10)
    go_on.release()
    wait_until(lambda: not memory._giving_back.locked(), 10, "it is over")
    assert len(given_back) == 2


def test_memory_goes_back_later_where_no_thread_can_start_now(monkeypatch):
    def fail(_timer):
        raise RuntimeError

    given_back = threading.Semaphore(0)
    monkeypatch.setattr(memory, "give_back_memory", given_back.release)
    monkeypatch.setattr(memory, "_GIVE_BACK_S", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Timer, "start", fail)
        memory.give_back_memory_soon()
    memory.give_back_memory_soon()
    assert given_back.acquire(timeout=10)
    wait_until(lambda: not memory._giving_back.locked(), 10, "it is over")

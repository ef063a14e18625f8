"""A job whose owner traces it over and over: `rounds.py jax|tf|torch_xla PORT ROUNDS`.

Prints READY, begins with the first line on stdin, prints what became of the rounds, ends with stdin.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable

import progress

progress.die_with_parent()

framework, port, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def prepare_jax() -> tuple[Callable[[], object], Callable[[str], object], Callable[[], object]]:
    import jax
    import jax.numpy as jnp

    product, x = jax.jit(lambda x: x @ x), jnp.ones((32, 32))
    jax.profiler.start_server(port)
    return lambda: product(x).block_until_ready(), jax.profiler.start_trace, jax.profiler.stop_trace


def prepare_tf() -> tuple[Callable[[], object], Callable[[str], object], Callable[[], object]]:
    import tensorflow as tf

    product, x = tf.function(lambda x: x @ x), tf.ones((32, 32))
    product(x)
    tf.profiler.experimental.server.start(port)
    return lambda: product(x), tf.profiler.experimental.start, tf.profiler.experimental.stop


def prepare_torch_xla() -> tuple[Callable[[], object], Callable[[str], object], Callable[[], object]]:
    import torch
    import torch_xla
    import torch_xla.debug.profiler as xp

    x = torch.ones((32, 32)).to(torch_xla.device())

    def step() -> None:
        x @ x
        torch_xla.sync(wait=True)

    step()
    globals()["server"] = xp.start_server(port)
    return step, xp.start_trace, xp.stop_trace


step, start_trace, stop_trace = {"jax": prepare_jax, "tf": prepare_tf, "torch_xla": prepare_torch_xla}[framework]()


def train() -> None:
    while True:
        step()
        time.sleep(0.002)


threading.Thread(target=train, daemon=True).start()
print("READY", flush=True)
sys.stdin.readline()
failed: Counter[str] = Counter()
waits_s = []
for _number in range(rounds):
    directory = tempfile.mkdtemp()
    start_s = time.monotonic()
    try:
        start_trace(directory)
        waits_s.append(time.monotonic() - start_s)
        time.sleep(0.002)
        stop_trace()
        assert any(files for *_, files in os.walk(directory)), "no file"
    except Exception as error:  # noqa: BLE001  whatever a framework makes of it
        failed[f"{type(error).__name__}: {error}"[:120]] += 1
    shutil.rmtree(directory)
    time.sleep(0.02)
waits_s = sorted(waits_s) or [0.0]
wait = f"begun after {waits_s[len(waits_s) // 2] * 1000:.1f} ms (median), {waits_s[-1] * 1000:.0f} ms (max)"
print(f"{rounds} rounds, {failed.total()} failed {dict(failed)}, {wait}", flush=True)
sys.stdin.read()

"""A job that forks once its framework uses and is attached: `forks.py jax|tf|torch_xla ROUNDS WAY...`.

Prints each way and round when the parent goes on, DONE at its end. Where a fork hangs, nothing more comes.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import subprocess
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import progress

progress.die_with_parent()
warnings.filterwarnings("ignore", message=".*fork.*")  # frameworks and newer Pythons warn of what this tries

fork = multiprocessing.get_context("fork")


def square(x: int) -> int:
    gc.collect()
    return x * x


def os_fork() -> None:
    """A child that collects garbage, and has a child of its own that does."""
    child = os.fork()
    if child == 0:
        gc.collect()
        if grandchild := os.fork():
            os.waitpid(grandchild, 0)
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def sys_exit() -> None:
    """A child whose interpreter takes its modules down. Some versions of JAX crash or hang there, also alone."""
    child = os.fork()
    if child == 0:
        atexit._clear()  # JAX's function for the end crashes in any child
        sys.exit()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def pool() -> None:
    with fork.Pool(2) as workers:
        assert workers.map(square, range(4)) == [0, 1, 4, 9]
        workers.close()
        workers.join()


def process() -> None:
    child = fork.Process(target=square, args=(3,))
    child.start()
    child.join()
    assert child.exitcode == 0


def executor() -> None:
    with ProcessPoolExecutor(2, mp_context=fork) as workers:
        assert list(workers.map(square, range(4))) == [0, 1, 4, 9]


def preexec() -> None:
    assert subprocess.run(["true"], preexec_fn=gc.collect).returncode == 0


WAYS = {
    "os.fork": os_fork,
    "sys.exit": sys_exit,
    "Pool": pool,
    "Process": process,
    "ProcessPoolExecutor": executor,
    "preexec_fn": preexec,
}


def use_jax() -> None:
    import jax.numpy as jnp

    (jnp.ones((32, 32)) @ jnp.ones((32, 32))).block_until_ready()


def use_tf() -> None:
    import tensorflow as tf

    tf.ones((32, 32)) @ tf.ones((32, 32))


def use_torch_xla() -> None:
    import torch
    import torch_xla

    torch.ones((32, 32)).to(torch_xla.device()) @ torch.ones((32, 32)).to(torch_xla.device())
    torch_xla.sync(wait=True)


def main() -> None:
    framework, rounds = sys.argv[1], int(sys.argv[2])
    {"jax": use_jax, "tf": use_tf, "torch_xla": use_torch_xla}[framework]()
    folder = Path(os.environ.get("TPUMON_ATTACH_DIR", ""))
    while "tpumon_attach" in sys.modules and not any(folder.glob(f"tpumon-run-*/*-{os.getpid()}")):
        time.sleep(0.05)
    for way in sys.argv[3:]:
        for number in range(rounds):
            WAYS[way]()
            print(way, number + 1, flush=True)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()

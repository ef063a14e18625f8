"""A JAX training loop that knows nothing of profilers; under `tpumon run` it may say where its steps begin."""

from __future__ import annotations

import sys
import time

import progress

progress.die_with_parent()

import jax  # noqa: E402  after the line that binds this process to its parent
import jax.numpy as jnp  # noqa: E402


@jax.jit
def train_step(weights: jax.Array) -> jax.Array:
    return weights - 0.01 * jax.grad(lambda w: jnp.square(w @ w).sum())(weights)


steps = range(sys.maxsize)
if "--steps" in sys.argv:
    import tpumon_attach

    steps = tpumon_attach.steps(steps)

weights = jnp.ones((16, 16))
done = progress.Progress()
for _ in steps:
    started_s = time.monotonic()
    weights = train_step(weights)
    weights = train_step(weights).block_until_ready()
    progress.pace(started_s, 8)
    done.step_done()

"""A JAX training loop with a profiler server; runs with jax 0.6 to 0.10, TensorFlow neither needed nor there."""

from __future__ import annotations

import contextlib
import sys
import time
import types

import options
import owner
import progress

progress.die_with_parent()
told = options.Options()
args = told.now

if args.tensorflow_stub:
    # At the end of a host trace jaxlib 0.6 to 0.8 imports this module to set `enabled`, and hangs where it cannot.
    for name in ("tensorflow", "tensorflow.python", "tensorflow.python.profiler", "tensorflow.python.profiler.trace"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["tensorflow.python.profiler.trace"].enabled = False

import jax  # noqa: E402  after the line that binds this process to its parent
import jax.numpy as jnp  # noqa: E402


def loss(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((jax.nn.relu(x @ weights["hidden"]) @ weights["readout"] - y) ** 2)


@jax.jit
def train_step(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
    gradient = jax.grad(loss)(weights, x, y)
    return jax.tree.map(lambda weight, slope: weight - 0.01 * slope, weights, gradient)


@jax.jit
def add_gradient(
    total: dict[str, jax.Array], weights: dict[str, jax.Array], x: jax.Array, y: jax.Array
) -> dict[str, jax.Array]:
    return jax.tree.map(jnp.add, total, jax.grad(loss)(weights, x, y))


@jax.jit
def update(weights: dict[str, jax.Array], total: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return jax.tree.map(lambda weight, slope: weight - 0.01 * slope, weights, total)


def slow_scale(loss: jax.Array) -> jax.Array:
    time.sleep(0.02)
    return jnp.float32(1)


@jax.jit
def callback_step(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
    scale = jax.pure_callback(slow_scale, jax.ShapeDtypeStruct((), jnp.float32), loss(weights, x, y))
    return train_step(weights, x * scale, y)


def attention(x: jax.Array) -> jax.Array:
    """One round of operations, each dispatched by itself."""
    scores = x @ x.T * 0.125
    scores = jnp.exp(scores - scores.max(axis=-1, keepdims=True))
    return (scores / scores.sum(axis=-1, keepdims=True)) @ x + x


keys = jax.random.split(jax.random.key(0), 4)
inputs = jax.random.normal(keys[0], (64, 32))
wanted = jax.random.normal(keys[1], (64, 1))
weights = {
    "hidden": 0.1 * jax.random.normal(keys[2], (32, args.width)),
    "readout": 0.1 * jax.random.normal(keys[3], (args.width, 1)),
}
small, few = inputs[:16], wanted[:16]
for batch in ((small, few), (inputs, wanted)):
    weights = train_step(weights, *batch)  # compiled before anybody measures
attention(inputs)
server = jax.profiler.start_server(args.port)  # kept: it stops when it is collected

done = progress.Progress()
profiling = owner.Owner(jax.profiler.start_trace, jax.profiler.stop_trace)
while True:
    started_s = time.monotonic()
    time.sleep(args.input_delay_ms / 1000)
    marked = jax.profiler.StepTraceAnnotation("train", step_num=done.steps) if args.annotate else None
    with marked or contextlib.nullcontext():
        if args.program == "eager":
            jax.block_until_ready(attention(inputs))
        elif args.program == "accumulate":
            total = weights
            for _ in range(4):
                total = add_gradient(total, weights, inputs, wanted)
            weights = jax.block_until_ready(update(weights, total))
        else:
            batch = (small, few) if args.program == "shapes" and done.steps % 2 else (inputs, wanted)
            if args.program == "new-shapes":
                rows = done.steps // args.shape_every + 65
                batch = (jnp.ones((rows, 32)), jnp.ones((rows, 1)))
            step = callback_step if args.program == "callback" else train_step
            weights = jax.block_until_ready(step(weights, *batch))
    progress.pace(started_s, args.step_ms)
    done.step_done()
    if told.changed():
        args = told.now
        profiling.wants(args.own_trace)

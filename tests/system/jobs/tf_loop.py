"""A TensorFlow training loop with a profiler server: a small dense model fed by tf.data."""

from __future__ import annotations

import contextlib
import time

import options
import owner
import progress

progress.die_with_parent()
told = options.Options()
args = told.now

import numpy as np  # noqa: E402  after the line that binds this process to its parent
import tensorflow as tf  # noqa: E402

rng = np.random.default_rng(0)
inputs = tf.constant(rng.normal(size=(64, 32)), tf.float32)
wanted = tf.constant(rng.normal(size=(64, 1)), tf.float32)
hidden = tf.Variable(tf.random.normal((32, args.width), stddev=0.1))
readout = tf.Variable(tf.random.normal((args.width, 1), stddev=0.1))


@tf.function
def train_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.nn.relu(x @ hidden) @ readout - y))
    for weights, gradient in zip((hidden, readout), tape.gradient(loss, (hidden, readout)), strict=True):
        weights.assign_sub(0.01 * gradient)
    return loss


def slowly(x: np.ndarray) -> np.ndarray:
    time.sleep(args.input_delay_ms / 1000)
    return x


def batches() -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensors((inputs, wanted)).repeat()
    if not args.input_delay_ms:
        return dataset
    return dataset.map(lambda x, y: (tf.ensure_shape(tf.numpy_function(slowly, [x], tf.float32), x.shape), y))


train_step(inputs, wanted)  # traced before anybody measures
tf.profiler.experimental.server.start(args.port)

done = progress.Progress()
profiling = owner.Owner(tf.profiler.experimental.start, tf.profiler.experimental.stop)
kept = []  # iterators: once, with nobody sampling, the deletion of one hung for good inside TensorFlow
while True:
    kept.append(iter(batches()))
    for x, y in kept[-1]:
        started_s = time.monotonic()
        marked = tf.profiler.experimental.Trace("train", step_num=done.steps, _r=1) if args.annotate else None
        with marked or contextlib.nullcontext():
            train_step(x, y)
        progress.pace(started_s, args.step_ms)
        done.step_done()
        if told.changed():
            break
    args = told.now
    profiling.wants(args.own_trace)

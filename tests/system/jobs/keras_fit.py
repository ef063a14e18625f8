"""Keras' `fit` as in a tutorial, with nothing for a profiler; ends when the file named in its argument appears.

A second argument: milliseconds that each batch takes to come from tf.data.
"""

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

STOP = Path(sys.argv[1])
INPUT_S = float(sys.argv[2]) / 1000 if sys.argv[2:] else 0.0


def slowly(example, target):
    """Data that comes late."""
    import tensorflow as tf

    def load(batch):
        time.sleep(INPUT_S)
        return batch

    batches = tf.data.Dataset.from_tensors((tf.constant(example[:32]), tf.constant(target[:32]))).repeat()
    return batches.map(lambda x, y: (tf.ensure_shape(tf.numpy_function(load, [x], x.dtype), x.shape), y))


class UntilTold(keras.callbacks.Callback):
    """Ends the training in the middle of nothing."""

    def on_epoch_end(self, epoch, logs=None):
        print(f"epoch {epoch}", flush=True)
        self.model.stop_training = STOP.exists()


model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
dice = np.random.default_rng(0)
examples, targets = dice.normal(size=(256, 16)), dice.normal(size=(256, 1))
given = (examples, targets) if not INPUT_S else (slowly(examples, targets),)
history = model.fit(*given, steps_per_epoch=20 if INPUT_S else None, epochs=100_000, verbose=0, callbacks=[UntilTold()])
print("fitted" if history.history["loss"][-1] < 2 else "not fitted")

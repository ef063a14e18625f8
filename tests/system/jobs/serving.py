"""A small server of models.

Of each of its steps it writes how long the model's program takes at least (processor time), and at most (until somebody
who waits for it runs again); of each reading of its page, when that was and how many tokens it said.

With FORGET_AFTER_S it forgets its compiled programs again and again from then on, as a server whose sizes vary.

python serving.py SERVING_LOOP PROGRAM_TIMES PAGE_READINGS [OPTIONS OF THE LOOP]
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import time
from pathlib import Path

import jax

PATH, TIMES, READINGS = sys.argv[1:4]
del sys.argv[1:4]
SPEC = importlib.util.spec_from_file_location("serving_loop", PATH)
loop = importlib.util.module_from_spec(SPEC)
sys.modules["serving_loop"] = loop
SPEC.loader.exec_module(loop)
execute, execute_and_log, page = loop.Engine._execute, loop.Engine._run, loop.Metrics.text


def timed(engine, model, *args):
    def whole(*inputs):
        begin_s, used_s = time.monotonic(), time.process_time()
        outputs = jax.block_until_ready(model(*inputs))
        engine.program_s = time.monotonic() - begin_s
        engine.least_s = min(time.process_time() - used_s, engine.program_s)  # the profiler's threads count, too
        return outputs

    execute(engine, whole, *args)


def run(engine, *args):
    execute_and_log(engine, *args)
    times.write(f"{engine.least_s} {engine.program_s}\n")


def text(metrics):
    """The page; it may change while it is made, so what it says is read from it."""
    body = page(metrics)
    tokens = next(line for line in body.splitlines() if line.startswith("vllm:generation_tokens_total{"))
    readings.write(f"{time.time()} {tokens.split()[-1]}\n")
    return body


def forget():
    time.sleep(float(os.environ["FORGET_AFTER_S"]))
    while True:
        jax.clear_caches()
        time.sleep(0.4)


if "FORGET_AFTER_S" in os.environ:
    threading.Thread(target=forget, daemon=True).start()
with Path(TIMES).open("w", buffering=1) as times, Path(READINGS).open("w", buffering=1) as readings:
    loop.Engine._execute, loop.Engine._run, loop.Metrics.text = timed, run, text
    loop.main()

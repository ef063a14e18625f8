"""A small server of models, and how long the model's program takes in each of its steps.

python serving.py SERVING_LOOP PROGRAM_TIMES [OPTIONS OF THE LOOP]
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import jax

PATH, TIMES = sys.argv[1:3]
del sys.argv[1:3]
SPEC = importlib.util.spec_from_file_location("serving_loop", PATH)
loop = importlib.util.module_from_spec(SPEC)
sys.modules["serving_loop"] = loop
SPEC.loader.exec_module(loop)
execute, execute_and_log = loop.Engine._execute, loop.Engine._run


def timed(engine, model, *args):
    def whole(*inputs):
        begin_s = time.monotonic()
        outputs = jax.block_until_ready(model(*inputs))
        engine.program_s = time.monotonic() - begin_s
        return outputs

    execute(engine, whole, *args)


def run(engine, *args):
    execute_and_log(engine, *args)
    times.write(f"{engine.program_s}\n")


with Path(TIMES).open("w", buffering=1) as times:
    loop.Engine._execute, loop.Engine._run = timed, run
    loop.main()

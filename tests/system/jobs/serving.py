"""A small server of models, and how much processor time each of its steps had.

python serving.py SERVING_LOOP PROCESSOR_TIMES [OPTIONS OF THE LOOP]
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path

PATH, TIMES = sys.argv[1:3]
del sys.argv[1:3]
SPEC = importlib.util.spec_from_file_location("serving_loop", PATH)
loop = importlib.util.module_from_spec(SPEC)
sys.modules["serving_loop"] = loop
SPEC.loader.exec_module(loop)
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # a step has no more processor time than it takes
execute_and_log = loop.Engine._run


def run(engine, *args):
    begin_s = time.process_time()
    execute_and_log(engine, *args)
    times.write(f"{time.process_time() - begin_s}\n")


with Path(TIMES).open("w", buffering=1) as times:
    loop.Engine._run = run
    loop.main()

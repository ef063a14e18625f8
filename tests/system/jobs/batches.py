"""A JAX loop that annotates its batches as tpu-inference does: `batches.py --port PORT`.

Requests r-0, r-1, ... follow each other; each has six batches, with one of another request after each of them, and
compiles a program in its third. Prints READY, then of each request: "request ID SPAN QUEUE COMPILE", in seconds.
"""

from __future__ import annotations

import itertools
import sys
import time

import jax
import jax.numpy as jnp
import progress

progress.die_with_parent()

BATCHES, COMPILES_AT = 6, 2
x = jnp.ones((256, 256))


@jax.jit
def run_model_impl(x: jax.Array) -> jax.Array:
    for _ in range(10):
        x = x @ x / 256
    return x


def compiled_anew(number: int) -> float:
    begin_s = time.perf_counter()
    jax.jit(lambda x: jnp.sin(x @ x) * number).lower(x).compile()
    return time.perf_counter() - begin_s


def batch(request: str, compiles: int | None = None) -> tuple[float, float, float]:
    """Its begin and end, and the time that it compiled."""
    compile_s, begin_s = 0.0, time.perf_counter()
    with jax.profiler.TraceAnnotation("execute_model: 1 reqs, 4 toks", request_id1=request):
        if compiles is not None:
            compile_s = compiled_anew(compiles)
        run_model_impl(x).block_until_ready()
    end_s = time.perf_counter()
    time.sleep(0.003)
    return begin_s, end_s, compile_s


run_model_impl(x).block_until_ready()
jax.profiler.start_server(int(sys.argv[sys.argv.index("--port") + 1]))
print("READY", flush=True)
for number in itertools.count():
    queue_s, times = 0.0, []
    for i in range(BATCHES):
        if times:
            queue_s -= batch(f"other-{number}")[0]
        times.append(batch(f"r-{number}", number if i == COMPILES_AT else None))
        queue_s += times[-1][0] if i else 0.0
    span_s, compile_s = times[-1][1] - times[0][0], sum(each[2] for each in times)
    print(f"request r-{number} {span_s} {queue_s} {compile_s}", flush=True)

"""The options that both jobs understand."""

from __future__ import annotations

import argparse


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True, help="of the profiler server")
    parser.add_argument("--annotate", action="store_true", help="mark steps as the frameworks' documentation says")
    parser.add_argument("--step-ms", type=float, default=8.0, help="a step lasts at least so long")
    parser.add_argument("--input-delay-ms", type=float, default=0.0, help="so long for the input of every step")
    parser.add_argument(
        "--tensorflow-stub", action="store_true", help="JAX: enough of TensorFlow to survive host tracing"
    )
    return parser.parse_args()

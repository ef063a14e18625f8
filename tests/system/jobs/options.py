"""The options that both jobs understand, and how they are changed while a job runs: one line of them on stdin."""

from __future__ import annotations

import argparse
import os
import select
import shlex
import sys


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, help="of the profiler server")
    parser.add_argument("--annotate", action="store_true", help="mark steps as the frameworks' documentation says")
    parser.add_argument("--step-ms", type=float, default=8.0, help="a step lasts at least so long")
    parser.add_argument("--input-delay-ms", type=float, default=0.0, help="so long for the input of every step")
    parser.add_argument("--width", type=int, default=64, help="of the model, for longer steps; only at the start")
    parser.add_argument(
        "--program",
        choices=("jitted", "shapes", "new-shapes", "callback", "eager", "accumulate"),
        default="jitted",
        help="JAX: one function for a batch of one shape, of two in turn, or ever new ones; one that "
        "calls Python, for 20 ms; operation by operation; or four gradients, called at once, and an update",
    )
    parser.add_argument("--shape-every", type=int, default=1, help="JAX: steps of a shape before a new one comes")
    parser.add_argument("--own-trace", metavar="DIR", help="the job's owner profiles it, from now until this is gone")
    parser.add_argument(
        "--tensorflow-stub", action="store_true", help="JAX: enough of TensorFlow to survive host tracing"
    )
    return parser


class Options:
    """The options that hold now.

    Attributes:
        now: those of the command line, or of the last line on stdin, which replaces all of them.
    """

    def __init__(self) -> None:
        self.now = parser().parse_args()
        self._unread = b""
        self._open = True

    def changed(self) -> bool:
        """Takes a line from stdin if there is one, and says so on stdout by `options LINE`."""
        if self._open and select.select([sys.stdin], [], [], 0)[0]:
            data = os.read(sys.stdin.fileno(), 4096)
            self._unread += data
            self._open = bool(data)
        line, end, rest = self._unread.partition(b"\n")
        if not end:
            return False
        self._unread = rest
        self.now = parser().parse_args(shlex.split(line.decode()))
        print(f"options {line.decode()}", flush=True)
        return True

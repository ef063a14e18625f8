"""Traces: bytes in, figures out. Only `files`, `wire` and `reader_process` read files or pipes; none uses a clock."""

import os

# NumPy would start a thread a core, and their buffers, for matrices that nobody multiplies here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

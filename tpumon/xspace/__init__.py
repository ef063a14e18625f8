"""Traces: bytes in, figures out. Pure: no files, no network, no clock."""

import os

# NumPy would start a thread a core, and their buffers, for matrices that nobody multiplies here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

"""Planes and lines by what they are: TensorCores, SparseCores, GPUs, the host; their events on the trace's clock."""

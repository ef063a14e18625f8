"""Shared with the host: signals, threads, streams, and the files of all its tpumons."""

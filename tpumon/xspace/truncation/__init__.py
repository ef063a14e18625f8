"""Truncated traces: dropped events, and the span of a trace that is whole."""

"""Trace bytes to facts; pure, without I/O."""

"""Samples made readable: text blocks, and the lines about what went wrong."""

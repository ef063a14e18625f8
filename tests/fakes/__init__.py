"""Servers that stand in for a Cloud TPU node, and the command line run as its users run it.

Nothing here imports tpumon: a mistake made on both sides of the wire would cancel out.
"""

"""Outputs: one file each, found through the entry-point group `tpumon.exporters`."""
